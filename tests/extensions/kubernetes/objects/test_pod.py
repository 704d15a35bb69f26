"""The pod of one engine: variables, mounts, places, tolerations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.planning.container import Container, Mount
from gaudi_launch.extensions.kubernetes.chart_values import plain
from gaudi_launch.extensions.kubernetes.objects.pod import (
    HUB_HOME,
    engine_mounts,
    env_of,
    places_of,
    tolerations,
)
from gaudi_launch.extensions.kubernetes.target import KubernetesTarget
from tests.support.refusals import failing
from tests.support.served_models import NEEDS, plain_served, served

PLAIN = KubernetesTarget("chat")


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
