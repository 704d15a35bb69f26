"""render kubernetes: options inside a cluster, what is refused, containers and needs of pods."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import kubernetes as cases
from gaudi_launch.app.kubernetes import PlannedModel
from gaudi_launch.errors import ExitCode
from gaudi_launch.host.host_config import load_config
from gaudi_launch.models.model import Model
from gaudi_launch.planning.container import Container
from tests.support.plans import planned
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")
HLS2 = "simulated:hls2"


def one(cards: int = 4, image: str = "image", **model: Any) -> PlannedModel:
    """Return a planned model on a simulated node."""
    plan, host = planned("vllm-fork@1.21", cards=cards)
    return PlannedModel(
        plan,
        Container(image, (), {"A": "b"}, start_seconds=77),
        host,
        load_config(HLS2),
        Model("/m", "m", **model),
        {},
    )


def cluster(kind: str = "deployment", **more: Any) -> Any:
    known = {"interface": "eth9", "nodes": 1, "release": "chat", "replicas": 1, "max_replicas": 1}
    return SimpleNamespace(kind=kind, **{**known, **more})


# --- options -------------------------------------------------------------------------------------


# --- refusals ------------------------------------------------------------------------------------


def test_several_models_share_a_node_as_deployments_only() -> None:
    with refused("kubernetes.not_with", ExitCode.USAGE, one="--with", other="--kind rayservice"):
        cases._refuse([one(), one()], cluster("rayservice"))
    with refused("kubernetes.cards", ExitCode.MACHINE, wanted=12, there=8):
        cases._refuse([one(), one(8)], cluster())
    cases._refuse([one(), one()], cluster())
    cases._refuse([one(8)], cluster("rayservice"))


# --- pods ----------------------------------------------------------------------------------------
