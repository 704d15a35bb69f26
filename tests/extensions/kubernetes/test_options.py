"""Options of a cluster: what they mean, and each refusal with its values."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.host.accelerators import instances
from gaudi_launch.core.planning.container import Container
from gaudi_launch.extensions.kubernetes.options import KubernetesOptions, completed
from tests.support.cli import golden
from tests.support.whole_plans import shown

NEURON = next(iter(instances()))
TOKEN = Container("i", (), secrets=("HF_TOKEN", "VLLM_API_KEY"))


def made(containers: tuple[Container, ...] = (), **words: Any) -> KubernetesOptions:
    return completed(KubernetesOptions(**words), "chat", [*containers])


def refused(**words: Any) -> str:
    with pytest.raises(LaunchError) as caught:
        made(**words)
    return f"({caught.value.exit_code.name}) {shown(caught.value.text)}"


def test_secrets_are_the_named_ones_else_the_exported_ones() -> None:
    def secret(text: str, *containers: Container) -> tuple[str, tuple[str, ...]]:
        found = made(containers, secret=text)
        return found.secret, found.secret_names

    assert secret("", TOKEN, TOKEN) == ("chat-secrets", ("HF_TOKEN", "VLLM_API_KEY"))
    assert secret("mine") == ("mine", ("HF_TOKEN",))
    assert secret("mine", TOKEN) == ("mine", ("HF_TOKEN", "VLLM_API_KEY"))
    assert secret("") == ("chat-secrets", ())
    assert secret(":A", TOKEN) == ("chat-secrets", ("A",))


REFUSED: list[dict[str, Any]] = [
    {"kind": "pod"},
    {"autoscale": "vpa"},
    {"access_mode": "Many"},
    {"kind": "leaderworkerset", "layout": "dp"},
    {"kind": "deployment", "accelerator": NEURON},
    {"kind": "rayservice"},
    {"kind": "rayservice", "image": "i", "monitor": True},
    {"kind": "rayservice", "image": "i", "autoscale": "hpa"},
    {"autoscale": "hpa"},
    {"max_replicas": 2},
    {"requests": 3},
    {"nodes": "2"},
    {"interface": "eth1"},
    {"ray_version": "2.1.0"},
    {"webui_image": "i"},
    {"ingress_class": "nginx"},
    {"layout": "tp"},
    {"kind": "leaderworkerset", "nodes": "1"},
    {"kind": "leaderworkerset", "interface": "eth 1"},
    {"namespace": "a" * 64},
    {"kind": "rayservice", "image": "i", "ray_version": "2"},
    {"image": "I"},
    {"webui": True, "webui_image": "I"},
    {"ingress_host": "*.a_b"},
    {"ingress_host": "a", "ingress_class": "A"},
    {"weights_claim": "-a"},
    {"storage_class": "a" * 254},
    {"runtime_class": "a."},
    {"secret": "A:X"},
    {"secret": "a:1X"},
    {"node_selector": ("a",)},
    {"node_selector": ("a=" + "b" * 64,)},
    {"node_selector": ("-a=b",)},
    {"tolerate": ("a b",)},
    {"tolerate": ("a" * 254,)},
]


def test_what_a_cluster_cannot_have_is_refused() -> None:
    lines = [f"{words}: {refused(**words)}\n" for words in REFUSED]
    golden("kubernetes-options.txt", "".join(lines))
