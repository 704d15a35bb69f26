"""Options of a cluster: what they mean, and each refusal with its values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.host.accelerators import instances
from gaudi_launch.core.planning.container import Container
from gaudi_launch.extensions.kubernetes.options import (
    KubernetesOptions,
    completed,
)
from gaudi_launch.extensions.ray.engine import VERSION as RAY

NEURON = next(iter(instances()))
TOKEN = Container("i", (), secrets=("HF_TOKEN", "VLLM_API_KEY"))


def made(containers: tuple[Container, ...] = (), **words: Any) -> KubernetesOptions:
    return completed(KubernetesOptions(**words), "chat", [*containers])


def refused(**words: Any) -> tuple[str, Mapping[str, Any]]:
    with pytest.raises(LaunchError) as caught:
        made(**words)
    assert caught.value.exit_code == ExitCode.USAGE
    assert str(caught.value)
    return caught.value.id, caught.value.text.values


def test_secrets_are_the_named_ones_else_the_exported_ones() -> None:
    def secret(text: str, *containers: Container) -> tuple[str, tuple[str, ...]]:
        found = made(containers, secret=text)
        return found.secret, found.secret_names

    assert secret("", TOKEN, TOKEN) == ("chat-secrets", ("HF_TOKEN", "VLLM_API_KEY"))
    assert secret("mine") == ("mine", ("HF_TOKEN",))
    assert secret("mine", TOKEN) == ("mine", ("HF_TOKEN", "VLLM_API_KEY"))
    assert secret("") == ("chat-secrets", ())
    assert secret(":A", TOKEN) == ("chat-secrets", ("A",))


MANY = "--replicas MIN..MAX"
RANGE = {"max_replicas": 2}


@pytest.mark.parametrize(
    ("words", "id", "values"),
    [
        (
            {"kind": "pod"},
            "kubernetes.one_of",
            {
                "option": "--kind",
                "found": "pod",
                "known": "deployment, leaderworkerset, rayservice",
            },
        ),
        (
            {"autoscale": "vpa"},
            "kubernetes.one_of",
            {"option": "--autoscale", "found": "vpa", "known": "hpa"},
        ),
        (
            {"access_mode": "Many"},
            "kubernetes.one_of",
            {
                "option": "--access-mode",
                "found": "Many",
                "known": "ReadWriteOnce, ReadWriteMany, ReadWriteOncePod",
            },
        ),
        (
            {"kind": "leaderworkerset", "layout": "dp"},
            "kubernetes.one_of",
            {"option": "--layout", "found": "dp", "known": "tp, pp, auto"},
        ),
        (
            {"kind": "deployment", "accelerator": NEURON},
            "kubernetes.not_with",
            {"one": "--kind deployment", "other": f"--accelerator {NEURON}"},
        ),
        ({"kind": "rayservice"}, "kubernetes.ray_image", {"ray": RAY}),
        (
            {"kind": "rayservice", "image": "i", "monitor": True},
            "kubernetes.not_with",
            {"one": "--monitor", "other": "--kind rayservice"},
        ),
        (
            {"kind": "rayservice", "image": "i", "autoscale": "hpa"},
            "kubernetes.not_with",
            {"one": "--autoscale", "other": "--kind rayservice"},
        ),
        ({"autoscale": "hpa"}, "kubernetes.needs", {"one": "--autoscale", "other": MANY}),
        (RANGE, "kubernetes.needs", {"one": "--autoscale", "other": MANY}),
        ({"requests": 3}, "kubernetes.only_with", {"one": "--ongoing", "other": MANY}),
        (
            {"nodes": "2"},
            "kubernetes.only_with",
            {"one": "--nodes", "other": "--kind leaderworkerset"},
        ),
        (
            {"interface": "eth1"},
            "kubernetes.only_with",
            {"one": "--interface", "other": "--kind leaderworkerset"},
        ),
        (
            {"ray_version": "2.1.0"},
            "kubernetes.only_with",
            {"one": "--ray-version", "other": "--kind rayservice"},
        ),
        (
            {"webui_image": "i"},
            "kubernetes.only_with",
            {"one": "--webui-image", "other": "--webui"},
        ),
        (
            {"ingress_class": "nginx"},
            "kubernetes.only_with",
            {"one": "--ingress-class", "other": "--ingress-host"},
        ),
        (
            {"layout": "tp"},
            "kubernetes.only_with",
            {"one": "--layout", "other": "--kind leaderworkerset"},
        ),
        (
            {"kind": "leaderworkerset", "nodes": "1"},
            "plan.number",
            {"flag": "--nodes", "found": "1", "least": 2, "most": 64},
        ),
        (
            {"kind": "leaderworkerset", "interface": "eth 1"},
            "kubernetes.interface",
            {"option": "--interface", "found": "eth 1"},
        ),
        (
            {"namespace": "a" * 64},
            "kubernetes.namespace",
            {"option": "--namespace", "found": "a" * 64},
        ),
        (
            {"kind": "rayservice", "image": "i", "ray_version": "2"},
            "kubernetes.release",
            {"option": "--ray-version", "found": "2"},
        ),
        ({"image": "I"}, "kubernetes.image", {"option": "--image", "found": "I"}),
        (
            {"webui": True, "webui_image": "I"},
            "kubernetes.image",
            {"option": "--webui-image", "found": "I"},
        ),
        (
            {"ingress_host": "*.a_b"},
            "kubernetes.dns",
            {"option": "--ingress-host", "found": "a_b"},
        ),
        (
            {"ingress_host": "a", "ingress_class": "A"},
            "kubernetes.dns",
            {"option": "--ingress-class", "found": "A"},
        ),
        ({"weights_claim": "-a"}, "kubernetes.dns", {"option": "--weights-claim", "found": "-a"}),
        (
            {"storage_class": "a" * 254},
            "kubernetes.dns",
            {"option": "--storage-class", "found": "a" * 254},
        ),
        ({"runtime_class": "a."}, "kubernetes.dns", {"option": "--runtime-class", "found": "a."}),
        ({"secret": "A:X"}, "kubernetes.dns", {"option": "--secret", "found": "A"}),
        ({"secret": "a:1X"}, "kubernetes.secret_name", {"found": "1X"}),
        (
            {"node_selector": ("a",)},
            "kubernetes.label",
            {"option": "--node-selector", "found": "a"},
        ),
        (
            {"node_selector": ("a=" + "b" * 64,)},
            "kubernetes.label",
            {"option": "--node-selector", "found": "b" * 64},
        ),
        (
            {"node_selector": ("-a=b",)},
            "kubernetes.label",
            {"option": "--node-selector", "found": "-a"},
        ),
        ({"tolerate": ("a b",)}, "kubernetes.label", {"option": "--tolerate", "found": "a b"}),
        (
            {"tolerate": ("a" * 254,)},
            "kubernetes.label",
            {"option": "--tolerate", "found": "a" * 254},
        ),
    ],
)
def test_what_a_cluster_cannot_have_is_refused(
    words: dict[str, Any], id: str, values: dict[str, Any]
) -> None:
    assert refused(**words) == (id, values)
