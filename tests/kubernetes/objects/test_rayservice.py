"""RayService: on Gaudi around the planned engine, and the Inferentia example as ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from gaudi_launch.cli.main import run
from tests.support.kubernetes_documents import CASES, LLAMA, _plain, main_of, rendered

__all__ = ["_plain"]


def test_the_inferentia_example_without_its_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    """facts of awslabs/ai-on-eks@41a979e: what its manifest has wrong, and what it has right."""
    service = main_of(rendered(capsys, *CASES["rayservice-inf2.48xlarge"]))
    cluster = service["spec"]["rayClusterConfig"]
    (group,) = cluster["workerGroupSpecs"]
    worker = group["template"]["spec"]["containers"][0]
    config = yaml.safe_load(service["spec"]["serveConfigV2"])
    (deployment,) = config["applications"][0]["deployments"]
    assert service["apiVersion"] == "ray.io/v1"
    assert worker["resources"]["limits"]["aws.amazon.com/neuron"] == "12"
    assert deployment["ray_actor_options"]["resources"] == {"neuron_cores": 24}
    assert deployment.get("num_replicas", 0) == group["maxReplicas"] == 1
    assert (
        config["applications"][0]["runtime_env"]["env_vars"]["MODEL_ID"]
        == "NousResearch/Llama-2-13b-chat-hf"
    )
    assert group["rayStartParams"]["resources"] == '"{\\"neuron_cores\\": 24}"'
    text = yaml.safe_dump(service)
    for wrong in (
        "schedulerName",
        "target_num_ongoing",
        "UnhealthySecondThreshold",
        "$LD_LIBRARY_PATH",
        "jupyter",
    ):
        assert wrong not in text
    assert group["template"]["spec"]["nodeSelector"] == {
        "node.kubernetes.io/instance-type": "inf2.48xlarge"
    }


@pytest.mark.parametrize("case", ["rayservice-gaudi3", "rayservice-inf2.48xlarge"])
def test_what_ray_runs_speaks_in_the_logs_of_its_pod(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (group,) = main_of(rendered(capsys, *CASES[case]))["spec"]["rayClusterConfig"][
        "workerGroupSpecs"
    ]
    env = group["template"]["spec"]["containers"][0]["env"]
    assert {"name": "RAY_LOG_TO_STDERR", "value": "1"} in env


def test_an_inferentia_model_in_a_folder_is_mounted(capsys: pytest.CaptureFixture[str]) -> None:
    """The pods find it by the path that their application is told."""
    text = rendered(capsys, "-w", "llama", *LLAMA[2:], "--weights-claim", "weights")
    service = main_of(text)["spec"]
    config = yaml.safe_load(service["serveConfigV2"])
    told = config["applications"][0]["runtime_env"]["env_vars"]["MODEL_ID"]
    pod = service["rayClusterConfig"]["workerGroupSpecs"][0]["template"]["spec"]
    mount = {"name": "weights", "mountPath": told, "subPath": "llama", "readOnly": True}
    assert Path(told).is_absolute() and mount in pod["containers"][0]["volumeMounts"]
    assert {"name": "weights", "persistentVolumeClaim": {"claimName": "weights"}} in pod["volumes"]


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("case", ["rayservice-gaudi3", "rayservice-inf2.48xlarge"])
def test_no_replica_without_a_worker(
    case: str, most: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Serve may ask for as many replicas as there may be workers, each with the cards of one."""
    service = main_of(rendered(capsys, *CASES[case], "--replicas", f"1..{most}"))["spec"]
    (group,) = service["rayClusterConfig"]["workerGroupSpecs"]
    (deployment,) = yaml.safe_load(service["serveConfigV2"])["applications"][0]["deployments"]
    asked = deployment.get("autoscaling_config", {"max_replicas": deployment.get("num_replicas")})[
        "max_replicas"
    ]
    assert asked == group["maxReplicas"] == most
    wanted = deployment["ray_actor_options"]["resources"]
    assert json.loads(json.loads(group["rayStartParams"]["resources"])) == wanted
    assert service["upgradeStrategy"] == {"type": "None"}


@pytest.mark.parametrize(("instance", "short"), [("inf2.xlarge", True), ("inf2.8xlarge", False)])
def test_an_instance_with_less_memory_than_weights_is_said(
    instance: str, short: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """13B in fp16 fits the two cores of either, and passes through 16 or 128 GiB of memory."""
    assert run(["render", "kubernetes", "--json", *LLAMA[:-1], instance]) == 0
    notes = [note["id"] for note in json.loads(capsys.readouterr().out)["notes"]]
    assert ("kubernetes.neuron_memory" in notes) is short
