"""Run hccl_demo, hl_qual and torch programs, and read their output.

Sources: HabanaAI/hccl_demo@f623d69 (env.cpp: variables of a rank; hccl_demo.cpp: output, custom
communicators, module = rank); docs.habana.ai, Qualification Library; Intel's validation scripts
"bm-gnr-gaudi3-smc" and "bm-icx-gaudi2" (how the summary of hl_qual is read).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from typing import Any

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.doctor.cards import QUAL, qual_kind
from gaudi_launch.core.doctor.findings import DoctorFacts
from gaudi_launch.core.engines.detect import marked
from gaudi_launch.core.host.accelerators import Accelerator
from gaudi_launch.core.host.hardware import Card
from gaudi_launch.core.services.addresses import system_port
from gaudi_launch.extensions.acceptance.records import NoFigure, Step, facts

_RATES = Path(__file__).with_name("runtime") / "gaudi_card_rates.py"
_EXPORT = re.compile(r"(?m)^\s*(?:export\s+)?([A-Z_]+)=[\"']?([^\"'$\s;]+)[\"']?\s*;?\s*$")
_SHOWN = 160
# the status of a shell for a program that does not start
_NOT_STARTED = 127


@dataclass(frozen=True)
class TestBed:
    """The inputs of all steps.

    ``cards`` are the free ones that were chosen; none on a machine without cards: this CPU is
    measured. ``python`` is an interpreter with torch, ``model`` the chosen one for the last level.
    """

    facts: DoctorFacts
    cards: tuple[Card, ...]
    product: Accelerator | None
    python: str | None
    engine: str
    model: str | None = None
    scale: float = 1.0
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """Return the folder that is read as /."""
        return Path(self.facts.config.root)

    @property
    def product_id(self) -> str:
        return self.product.id if self.product is not None else ""

    def seconds(self, step: Step) -> float:
        """Return how long a step measures."""
        return step.seconds / self.scale

    def timeout(self, step: Step) -> float:
        """Return the time limit of a step; the start of programs is not scaled."""
        return step.timeout - step.seconds + self.seconds(step)


def name_of(card: Card) -> str:
    """Return the name of a card in results: its module ID."""
    return str(card.module)


def together(
    argv: Sequence[str],
    environments: Sequence[Mapping[str, str] | None],
    seconds: float | None = None,
    cwd: Path | None = None,
) -> list[CompletedProcess[str]]:
    """Run a program once in each environment, all at the same time.

    None is left at the end. Raises NoFigure.
    """

    def run(env: Mapping[str, str] | None) -> CompletedProcess[str]:
        try:
            return interrupt.run(
                argv,
                env=env,
                cwd=cwd,
                streams=interrupt.MIXED,
                seconds=seconds,
                ending=interrupt.Ending(with_main=True),
            )
        except TimeoutExpired:
            raise late(Path(argv[0]).name, seconds or 0.0) from None
        except OSError as error:
            return CompletedProcess(argv, _NOT_STARTED, str(error))

    return interrupt.in_threads(run, environments, len(environments))


def late(program: str, seconds: float) -> NoFigure:
    """Return that a program did not end, or was not ready, in time."""
    return NoFigure("broken", message("accept.timeout", seconds=f"{seconds:g}", program=program))


def failed(who: str, end: CompletedProcess[str], line: str = "") -> NoFigure:
    """Return that a program failed, with a line of its output.

    By default the last one.
    """
    shown = line or _last_line(end)
    why = message("accept.program_failed", who=who, code=end.returncode, line=shown[:_SHOWN])
    return NoFigure("broken", why, _ending(end))


def _last_line(end: CompletedProcess[str]) -> str:
    lines = end.stdout.strip().splitlines() or ["-"]
    return lines[-1].strip()


def _ending(end: CompletedProcess[str]) -> dict[str, str]:
    """Return what the evidence keeps of an output."""
    return {"output": end.stdout[-4000:]}


def environment(bed: TestBed) -> dict[str, str]:
    """Return the tools' environment: the driver's packages, no engine's settings."""
    dropped = tuple(facts()["dropped_variables"])
    found = {name: text for name, text in os.environ.items() if not name.startswith(dropped)}
    for path in sorted(bed.root.glob("etc/profile.d/habanalabs*.sh")):
        found.update(_EXPORT.findall(path.read_text(encoding="utf-8", errors="replace")))
    return found


# --- torch ----------------------------------------------------------------------------------------


def torch_answers(bed: TestBed, step: Step) -> dict[str, dict[str, Any]]:
    """Return a test's answer by card; all run together. Raises NoFigure."""
    if bed.python is None:
        raise NoFigure("skipped", message("accept.no_python"))
    on_card, shapes = "card" if bed.cards else "host", facts()["shapes"]
    family = bed.product_id if bed.product_id in shapes else "other"
    job = {
        "test": step.name,
        "device": "hpu" if bed.cards else "",
        "seconds": bed.seconds(step),
        "shapes": shapes[family if bed.cards else "host"][step.dtype],
        "tensor_mib": facts()["tensor_mib"][on_card],
        "fill": facts()["fill"][on_card],
    }
    own, names = environment(bed), [name_of(card) for card in bed.cards] or ["host"]
    environments = [own]
    if bed.cards:
        base = {**own, "PT_HPU_LAZY_MODE": "1"}
        environments = [{**base, "HABANA_VISIBLE_MODULES": name} for name in names]
    ends = together([bed.python, str(_RATES), json.dumps(job)], environments, bed.timeout(step))
    answers = {}
    for name, end in zip(names, ends, strict=True):
        text = marked(end.stdout)
        if end.returncode or not text:
            raise failed(name, end)
        answers[name] = parse_json(text)
    return answers


# --- hccl_demo ------------------------------------------------------------------------------------

_RATE = re.compile(r"NW Bandwidth\s*:\s*([\d.]+)\s*([MG])B/s")


def demo_program(root: Path) -> Path:
    """Return the built hccl_demo. Raises NoFigure without one."""
    home = os.environ.get("HCCL_DEMO_HOME")
    folders = [Path(home)] if home else [root / folder for folder in facts()["hccl_demo_folders"]]
    for folder in folders:
        if (folder / "hccl_demo").is_file():
            return folder / "hccl_demo"
    raise NoFigure("skipped", message("accept.no_demo"))


def all_reduce(bed: TestBed, groups: Sequence[Sequence[int]], step: Step) -> list[float]:
    """Return the network rate in GB/s of each group; the groups run at the same time.

    A process for each rank, whose number is the module of its card. Raises NoFigure.
    """
    demo = demo_program(bed.root)
    per_node = max(bed.facts.host.modules) + 1
    base = {
        **environment(bed),
        **facts()["hccl_demo"],
        "HCCL_DEMO_TEST_LOOP": str(max(10, int(step.loops / bed.scale))),
        "HCCL_NRANKS": str(per_node),
        "HCCL_RANKS_PER_NODE": str(per_node),
        "HCCL_SCALEUP_GROUP_SIZE": str(bed.product.group_size if bed.product else per_node),
    }
    ranks: list[dict[str, str]] = []
    for group in groups:
        here = {**base, "HCCL_COMM_ID": f"127.0.0.1:{system_port()}"}
        if len(group) < per_node:
            here["HCCL_DEMO_CUSTOM_COMM"] = ",".join(map(str, group))
        ranks += [{**here, "ID": str(rank), "HCCL_RANK": str(rank)} for rank in group]
    ends = iter(together([str(demo)], ranks, bed.timeout(step), demo.parent))
    return [_demo_rate(group, [*islice(ends, len(group))]) for group in groups]


def _demo_rate(group: Sequence[int], ends: Sequence[CompletedProcess[str]]) -> float:
    """Return the rate that the first rank printed. Raises NoFigure."""
    names = ",".join(map(str, group))
    for end in ends:
        if "which is bad." in end.stdout:
            raise NoFigure("broken", message("accept.wrong_sum", who=names))
        if end.returncode:
            error = re.search(r"HCCL demo error: (.*)", end.stdout)
            raise failed(names, end, error[1] if error else "")
    rates = [rate for end in ends for rate in _RATE.findall(end.stdout)]
    if not rates:
        line = _last_line(ends[0])[:_SHOWN]
        raise NoFigure("broken", message("accept.no_rate", who=names, line=line))
    value, unit = rates[-1]
    return float(value) / (1 if unit == "G" else 1000)


# --- hl_qual --------------------------------------------------------------------------------------


def qual(bed: TestBed, step: Step) -> dict[str, bool]:
    """Return what hl_qual states of each device. Raises NoFigure.

    Its exit status has no documented meaning, and one PASSED may be of one device of eight.
    """
    kind = qual_kind(bed.facts.host)
    program = bed.root / QUAL / kind / "bin/hl_qual"
    if not program.is_file():
        raise NoFigure("skipped", message("accept.no_qual"))
    if not bed.facts.config.root_user:
        raise NoFigure("skipped", message("accept.qual_root"))
    buses = ",".join(card.bus for card in bed.cards if card.bus)
    chosen = "all" if len(bed.cards) == len(bed.facts.host.cards) else buses
    options = [*step.options]
    if options[-1] == "-t":
        options.append(str(max(1, round(bed.seconds(step)))))
    argv = [str(program), f"-{kind}", "-c", chosen, "-rmod", "parallel", *options, "-dis_mon"]
    env = {**environment(bed), "__python_cmd": "python3"}
    (end,) = together(argv, [env], bed.timeout(step), program.parent)
    summary = end.stdout.partition("Test result summary")[2]
    devices = re.findall(r"^(.*\S)\s*:\s*(PASSED|FAILED)\s*$", summary, re.MULTILINE)
    found = {name.strip(" |"): word == "PASSED" for name, word in devices}
    if not found:
        raise failed("hl_qual", end)
    if len(found) < len(bed.cards):
        why = message("accept.qual_few", found=len(found), cards=len(bed.cards))
        raise NoFigure("broken", why, _ending(end))
    return found
