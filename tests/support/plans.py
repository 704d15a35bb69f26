"""Plans to render: of simulated machines, without looking at this one."""

from __future__ import annotations

from typing import Any

from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.host.simulated import make
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Command, EngineIdentity, Plan
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request

MODEL = "/models/Qwen2-72B-Instruct"


def planned(
    engine: str = "vllm-fork@1.21", machine: str = "hls2", **asked: Any
) -> tuple[Plan, Host]:
    """Return the plan of this engine on this machine, and the machine."""
    request = Request(**{"model": MODEL, "cards": 4, **asked})
    host = make(machine)
    return make_plan(
        request,
        host,
        known_model(request.model, must_exist=False),
        find(engine, None, request.python),
    ), host


def odd(argv: tuple[str, ...], env: dict[str, str]) -> Plan:
    """Return a plan with any arguments, for cards 0 and 1 (hls2's indices 6 and 4)."""
    return Plan(
        engine=EngineIdentity("vllm-fork", "1.21", word="vllm-fork@1.21"),
        model={"path": "/models/m"},
        placement=Placement((0, 1)),
        settings=(),
        command=Command(argv, env),
        url="http://127.0.0.1:30001",
    )
