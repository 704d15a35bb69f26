"""Run hccl_demo, hl_qual and torch programs, and read their output.

Sources: HabanaAI/hccl_demo@f623d69 (env.cpp: variables of a rank; hccl_demo.cpp: output, custom
communicators, module = rank); docs.habana.ai, Qualification Library; Intel's validation scripts
"bm-gnr-gaudi3-smc" and "bm-icx-gaudi2" (how the summary of hl_qual is read).
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.doctor.cards import QUAL, qual_kind
from gaudi_launch.core.engines.detect import marked
from gaudi_launch.core.host.hardware import Card
from gaudi_launch.core.services.addresses import system_port
from gaudi_launch.extensions.acceptance.judge import facts
from gaudi_launch.extensions.acceptance.records import NoFigure

if TYPE_CHECKING:
    from gaudi_launch.core.doctor.findings import DoctorFacts
    from gaudi_launch.core.host.accelerators import Accelerator

_log = logging.getLogger(__name__)

_RUNTIME = Path(__file__).with_name("runtime")
_RATES = _RUNTIME / "gaudi_card_rates.py"
_DEMO_FOLDERS = ("opt/hccl_demo", "opt/habanalabs/hccl_demo", "root/hccl_demo")
# settings of the user for an engine, which would change what is measured
_DROPPED = ("PT_", "HCCL_", "HABANA_VISIBLE", "HLS_", "VLLM_", "OMPI_", "ID", "LOG_LEVEL")
_EXPORT = re.compile(
    r"^\s*(?:export\s+)?([A-Z_]+)=[\"']?([^\"'$\s;]+)[\"']?\s*;?\s*$", re.MULTILINE
)
_SHOWN = 160
# the status of a shell for a program that does not start, and letters of the end of an output
_NOT_STARTED, _MOST_OUTPUT = 127, 1 << 16


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

    def seconds(self, step: str) -> float:
        """Return how long a step measures."""
        return float(facts()["steps"][step].get("seconds", 0)) / self.scale

    def timeout(self, step: str) -> float:
        """Return the time limit of a step; the start of programs is not scaled."""
        row = facts()["steps"][step]
        return float(row["timeout"]) - float(row.get("seconds", 0)) + self.seconds(step)


@dataclass(frozen=True)
class Program:
    """One of several programs that run together."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None = None


@dataclass(frozen=True)
class ProgramEnd:
    """Its exit status and the end of its output."""

    code: int
    output: str

    @property
    def last_line(self) -> str:
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return lines[-1][:_SHOWN] if lines else "-"

    @property
    def details(self) -> dict[str, str]:
        """Return what the evidence keeps of it."""
        return {"output": self.output[-4000:]}

    def failed(self, who: str, line: str = "") -> NoFigure:
        """Return that it failed, with a line of its output; the last one by default."""
        shown = line or self.last_line
        why = message("accept.program_failed", who=who, code=self.code, line=shown)
        return NoFigure("broken", why, self.details)


def together(programs: Sequence[Program], seconds: float) -> list[ProgramEnd]:
    """Run programs at the same time; none is left at the end. Raises NoFigure."""
    return interrupt.in_threads(partial(_run, seconds=seconds), programs, len(programs))


def _run(program: Program, seconds: float) -> ProgramEnd:
    try:
        done = interrupt.run(
            program.argv,
            env=program.env,
            cwd=program.cwd,
            streams=interrupt.MIXED,
            seconds=seconds,
            ending=interrupt.Ending(with_main=True),
        )
    except subprocess.TimeoutExpired:
        name = Path(program.argv[0]).name
        why = message("accept.timeout", seconds=f"{seconds:g}", program=name)
        raise NoFigure("broken", why) from None
    except OSError as error:
        return ProgramEnd(_NOT_STARTED, str(error))
    return ProgramEnd(done.returncode, done.stdout[-_MOST_OUTPUT:])


def environment(bed: TestBed) -> dict[str, str]:
    """Return the tools' environment: the driver's packages, no engine's settings."""
    found = {name: text for name, text in os.environ.items() if not name.startswith(_DROPPED)}
    folder = bed.root / "etc/profile.d"
    for path in sorted(folder.glob("habanalabs*.sh")):
        found.update(_EXPORT.findall(path.read_text(encoding="utf-8", errors="replace")))
    return found


# --- torch ----------------------------------------------------------------------------------------


def torch_answers(bed: TestBed, test: str) -> dict[str, dict[str, Any]]:
    """Return a test's answer by card; all run together. Raises NoFigure."""
    if bed.python is None:
        raise NoFigure("skipped", message("accept.no_python"))
    on_card = "card" if bed.cards else "host"
    shapes, dtype = facts()["shapes"], facts()["steps"][test].get("dtype", "bf16")
    family = bed.product_id if bed.product_id in shapes else "other"
    job = {
        "test": test,
        "device": "hpu" if bed.cards else "",
        "seconds": bed.seconds(test),
        "shapes": shapes[family if bed.cards else "host"][dtype],
        "tensor_mib": facts()["tensor_mib"][on_card],
        "fill": facts()["fill"][on_card],
    }
    argv = [bed.python, str(_RATES), json.dumps(job)]
    own = environment(bed)
    names = [str(card.module) for card in bed.cards] or ["host"]
    programs = [Program(argv, own)]
    if bed.cards:
        base = {**own, "PT_HPU_LAZY_MODE": "1"}
        programs = [Program(argv, {**base, "HABANA_VISIBLE_MODULES": name}) for name in names]
    ends = together(programs, bed.timeout(test))
    answers = {}
    for name, end in zip(names, ends, strict=True):
        text = marked(end.output)
        if end.code or not text:
            raise end.failed(name)
        answers[name] = parse_json(text)
    return answers


# --- hccl_demo ------------------------------------------------------------------------------------

_RATE = re.compile(r"NW Bandwidth\s*:\s*([\d.]+)\s*([MG])B/s")


def demo_program(root: Path) -> Path:
    """Return the built hccl_demo. Raises NoFigure without one."""
    home = os.environ.get("HCCL_DEMO_HOME")
    folders = [Path(home)] if home else [root / folder for folder in _DEMO_FOLDERS]
    for folder in folders:
        if (folder / "hccl_demo").is_file():
            return folder / "hccl_demo"
    raise NoFigure("skipped", message("accept.no_demo"))


def all_reduce(bed: TestBed, groups: Sequence[Sequence[int]], step: str) -> list[float]:
    """Return the network rate in GB/s of each group; the groups run at the same time.

    A process for each rank, whose number is the module of its card. Raises NoFigure.
    """
    demo = demo_program(bed.root)
    row, modules = facts()["steps"][step], bed.facts.host.modules
    per_node = max(modules) + 1
    base = {
        **environment(bed),
        **facts()["hccl_demo"],
        "HCCL_DEMO_TEST_LOOP": str(max(10, int(row["loops"] / bed.scale))),
        "HCCL_NRANKS": str(per_node),
        "HCCL_RANKS_PER_NODE": str(per_node),
        "HCCL_SCALEUP_GROUP_SIZE": str(bed.product.group_size if bed.product else per_node),
    }
    programs: list[Program] = []
    first = []
    for group in groups:
        first.append(len(programs))
        here = {**base, "HCCL_COMM_ID": f"127.0.0.1:{system_port()}"}
        if len(group) < per_node:
            here["HCCL_DEMO_CUSTOM_COMM"] = ",".join(map(str, group))
        for rank in group:
            own = {**here, "ID": str(rank), "HCCL_RANK": str(rank)}
            programs.append(Program([str(demo)], own, str(demo.parent)))
    ends = together(programs, bed.timeout(step))
    rates = []
    for group, at in zip(groups, first, strict=True):
        rates.append(_demo_rate(group, ends[at : at + len(group)]))
    return rates


def _demo_rate(group: Sequence[int], ends: Sequence[ProgramEnd]) -> float:
    """Return the rate that the first rank printed. Raises NoFigure."""
    names = ",".join(map(str, group))
    for end in ends:
        if "which is bad." in end.output:
            raise NoFigure("broken", message("accept.wrong_sum", who=names))
        if end.code:
            error = re.search(r"HCCL demo error: (.*)", end.output)
            raise end.failed(names, error[1][:_SHOWN] if error else "")
    for end in ends:
        found = _RATE.findall(end.output)
        if found:
            value, unit = found[-1]
            return float(value) / (1 if unit == "G" else 1000)
    raise NoFigure("broken", message("accept.no_rate", who=names, line=ends[0].last_line))


# --- hl_qual --------------------------------------------------------------------------------------


def qual(bed: TestBed, step: str) -> dict[str, bool]:
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
    options = list(facts()["steps"][step]["options"])
    if options[-1] == "-t":
        options.append(str(max(1, round(bed.seconds(step)))))
    argv = [str(program), f"-{kind}", "-c", chosen, "-rmod", "parallel", *options, "-dis_mon"]
    env = {**environment(bed), "__python_cmd": "python3"}
    (end,) = together([Program(argv, env, str(program.parent))], bed.timeout(step))
    summary = end.output.partition("Test result summary")[2]
    devices = re.findall(r"^(.*\S)\s*:\s*(PASSED|FAILED)\s*$", summary, re.MULTILINE)
    found = {name.strip(" |"): word == "PASSED" for name, word in devices}
    if not found:
        raise end.failed("hl_qual")
    if len(found) < len(bed.cards):
        why = message("accept.qual_few", found=len(found), cards=len(bed.cards))
        raise NoFigure("broken", why, end.details)
    return found
