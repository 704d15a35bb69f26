"""A plan as lines: settings with source, reason and proof, warnings, the command.

The first plan of an engine is written in full, each other one by what differs from it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.messages import Message
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.plan import Plan, Setting
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request

# names of files have a digest of their text
_DIGEST = re.compile(r"-[0-9a-f]{12}\b")


@dataclass(frozen=True)
class Case:
    """A request by its fields, for a model, with exported variables."""

    name: str
    engine: str
    model: Model
    wishes: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def by_engine(cases: Iterable[Case]) -> list[tuple[str, list[Case]]]:
    """Return the name of each engine's golden file, with its cases."""
    found: dict[str, list[Case]] = {}
    for case in cases:
        name = re.sub("[@:]", "-", case.engine)
        found.setdefault(f"engines/{name}.txt", []).append(case)
    return [*found.items()]


def whole_plans(cases: Iterable[Case], host: Host) -> str:
    """Return the plans, or refusals, of some requests on a machine."""
    first: list[str] = []
    lines: list[str] = []
    for case in cases:
        made = [_DIGEST.sub("-DIGEST", line) for line in _plan(case, host)]
        lines.append(f"== {case.name}")
        if first and len(made) > 1:
            made = [*difflib.unified_diff(first, made, n=0, lineterm="")][2:]
        elif len(made) > 1:
            first = made
        lines += made
    # what is left out needs no reason
    lines = [line.partition(" <")[0] if line.startswith("-") else line for line in lines]
    return "\n".join(line for line in lines if not line.startswith("@@")) + "\n"


def _plan(case: Case, host: Host) -> list[str]:
    request = Request(
        model=case.model.path,
        environment=case.environment,
        **{"files_dir": "/cache/buckets", "stamp": "STAMP", **case.wishes},
    )
    try:
        made = make_plan(request, host, case.model, find(case.engine).suited(case.model))
    except LaunchError as error:
        return [f"refused ({error.exit_code.name}): {shown(error.text)}"]
    return [*_lines(made)]


def _lines(made: Plan) -> Iterable[str]:
    yield f"{made.engine.exact} {made.dtype} {made.url} cards {made.placement.modules}"
    yield from (_setting(each) for each in made.settings)
    yield from (f"warning {shown(each)}" for each in made.warnings)
    yield from (f"differs {shown(each)}" for each in made.reference_differences)
    yield from (f"argument {each}" for each in made.command.argv)
    yield from (f"exported {name}={value}" for name, value in sorted(made.command.env.items()))
    if made.container is not None:
        yield from map(str, made.container.mounts)
        yield f"indices {made.container.indices} modules {made.container.modules}"
    yield f"user {made.command.user} cpus {made.command.cpus} node {made.command.memory_node}"
    yield f"files {sorted(made.command.files)}"
    yield f"blocks {made.num_blocks} memory {json.dumps(dict(made.memory))}"
    if made.kv_cache is not None:
        yield f"cache {shown(made.kv_cache)}"
    if made.buckets is not None:
        counts = f"{len(made.buckets.prompt)} + {len(made.buckets.decode)}"
        yield f"buckets {made.bucket_strategy} {counts} graphs {made.buckets.graphs}"
        yield f"largest buckets {made.buckets.prompt[-1:]} {made.buckets.decode[-1:]}"
    if made.estimate is not None:
        seconds = f"{made.estimate.low_seconds:g} to {made.estimate.high_seconds:g}"
        yield f"estimate {seconds} {shown(made.estimate.basis)}"


def _setting(setting: Setting) -> str:
    beaten = "".join(f" over {each.source}: {each.value}" for each in setting.beaten)
    text = f"{setting.kind} {setting.name}={setting.value} <{setting.source}> "
    return f"{text}{shown(setting.reason)} [{setting.origin}]{beaten}"


def shown(found: Message) -> str:
    """Return a message by its id and values."""
    # a text of which something is missing is a defect
    found.render()
    values = [f"{name}={value}" for name, value in sorted(found.values.items())]
    return " ".join([found.id, *values])
