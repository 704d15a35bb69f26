"""RayService: on Gaudi around the planned engine, and the Inferentia example as ours."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.support.kubernetes_documents import CASES, _plain, main_of, rendered

__all__ = ["_plain"]


@pytest.mark.parametrize("case", ["rayservice-gaudi3", "rayservice-inf2.48xlarge"])
def test_what_ray_runs_speaks_in_the_logs_of_its_pod(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (group,) = main_of(rendered(capsys, *CASES[case]))["spec"]["rayClusterConfig"][
        "workerGroupSpecs"
    ]
    env = group["template"]["spec"]["containers"][0]["env"]
    assert {"name": "RAY_LOG_TO_STDERR", "value": "1"} in env


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
