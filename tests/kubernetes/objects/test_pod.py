"""The pod of one engine: variables, mounts, places, tolerations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.errors import ExitCode
from gaudi_launch.kubernetes.chart_values import plain
from gaudi_launch.kubernetes.objects.pod import (
    HUB_HOME,
    engine_container,
    engine_mounts,
    env_of,
    literal,
    places_of,
    port_of,
    tolerations,
)
from gaudi_launch.kubernetes.target import KubernetesTarget
from gaudi_launch.planning.container import Container, Mount
from tests.support.refusals import failing
from tests.support.served_models import NEEDS, plain_served, served

PLAIN = KubernetesTarget("chat")


def test_the_engines_variables_are_its_plans_and_those_of_the_pod() -> None:
    target = KubernetesTarget("chat", secret="hub", secret_names=("HF_TOKEN", "PRICE"))
    made = env_of(served(env_from={"VLLM_HOST_IP": "status.podIP"}), target)
    secrets = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": "hub", "key": name}}}
        for name in ("HF_TOKEN", "PRICE")
    ]
    assert plain(made) == [
        {"name": "VLLM_HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "PT_HPU_RECIPE_CACHE_CONFIG", "value": "/var/cache/recipes,false,4096"},
        {
            "name": "VLLM_BUCKETING_FROM_FILE",
            "value": "/opt/gaudi-launch-plan/buckets.json",
        },
        *secrets,
    ]


def test_a_model_of_a_hub_is_kept_on_the_volume() -> None:
    hub = plain_served()
    assert engine_mounts(hub) == [Mount(HUB_HOME, HUB_HOME, fill=True)]
    assert plain(env_of(hub, PLAIN)) == [
        {"name": "A", "value": "1"},
        {"name": "HF_HOME", "value": HUB_HOME},
    ]
    secret = KubernetesTarget("chat", secret="hub", secret_names=("HF_HOME",))
    assert plain(env_of(hub, secret)) == [
        {"name": "A", "value": "1"},
        {
            "name": "HF_HOME",
            "valueFrom": {"secretKeyRef": {"name": "hub", "key": "HF_HOME"}},
        },
    ]


@pytest.mark.parametrize(
    "container",
    [
        Container("i", (), {"HF_HOME": "/x"}),
        Container("i", (), {"HF_HUB_CACHE": "/x"}),
        Container("i", (), mounts=(Mount("/x", "/data"),)),
        Container("i", (), mounts=(Mount("/x", "/data/hub"),)),
    ],
)
def test_an_engine_with_a_folder_for_its_models_gets_no_other(container: Container) -> None:
    assert engine_mounts(plain_served(container=container)) == list(container.mounts)


def test_the_recipe_cache_and_files_of_the_plan_are_not_weights() -> None:
    assert engine_mounts(served()) == [Mount("/data/Qwen", "/models/Qwen", read_only=True)]
    other = replace(
        served(), recipe_key="", files={}, container=replace(served().container, env={})
    )
    assert engine_mounts(other) == list(other.container.mounts)


def test_two_paths_with_one_last_part_keep_all_parts() -> None:
    def model(*paths: str) -> Container:
        return Container("i", (), mounts=tuple(Mount(path, path) for path in paths))

    one = served(container=model("/a/llama", "/b/qwen"))
    two = served(container=model("/c/llama", "/b/qwen"))
    places = {"/a/llama": "a/llama", "/b/qwen": "qwen", "/c/llama": "c/llama"}
    assert places_of([one, two]) == places


@pytest.mark.parametrize("path", ["/a:b", "/a/../b", "/a/", "/", "/a/$HOME"])
def test_a_path_that_kubernetes_cannot_mount_is_refused(path: str) -> None:
    with failing("kubernetes.path", ExitCode.USAGE) as caught:
        places_of([served(container=Container("i", (), mounts=(Mount(path, "/m"),)))])
    assert caught.value.text.values == {"path": path}


def test_the_cards_taint_and_those_of_the_user_are_tolerated() -> None:
    target = KubernetesTarget("chat", tolerate=("example.com/ai", "habana.ai/gaudi"))

    def taint(key: str) -> dict[str, str]:
        return {"key": key, "operator": "Exists", "effect": "NoSchedule"}

    assert tolerations(served(), PLAIN) == [taint("habana.ai/gaudi")]
    assert tolerations(served(), target) == [taint("habana.ai/gaudi"), taint("example.com/ai")]
    assert tolerations(served(needs=replace(NEEDS, cards=0)), PLAIN) == []


def test_probes_ask_the_engine_until_its_start_may_take_no_longer() -> None:
    container = replace(served().container, health="/ready")
    found = plain(engine_container(served(container=container), PLAIN, {"/data/Qwen": "Qwen"}))
    common = {"httpGet": {"path": "/ready", "port": "http"}, "timeoutSeconds": 5}
    assert {name: found[name] for name in found if name.endswith("Probe")} == {
        # 1201 s are 121 tries
        "startupProbe": {**common, "periodSeconds": 10, "failureThreshold": 121},
        "readinessProbe": {**common, "periodSeconds": 5, "failureThreshold": 3},
        "livenessProbe": {**common, "periodSeconds": 10, "failureThreshold": 12},
    }
    assert found["ports"] == [{"name": "http", "containerPort": 8080}]


def test_kubernetes_changes_no_text() -> None:
    texts = ["$(HOME) 5$", "a$$b", "5$", "$HOME"]
    assert [literal(text) for text in texts] == ["$$(HOME) 5$$", "a$$$$b", "5$", "$HOME"]


def test_an_engine_without_a_published_port_listens_on_8000() -> None:
    assert port_of(Container("i", ())) == 8000
    assert port_of(Container("i", (), ports=((1, 2), (3, 4)))) == 2
