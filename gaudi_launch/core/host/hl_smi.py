"""Run hl-smi from PATH, with a time limit and a separate folder for its logs.

The queries are in forms that any release answers: one wide query first, then fewer fields when it
fails. No query is repeated.
"""

from __future__ import annotations

import logging
import os
import re
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.child_log import ChildLog
from gaudi_launch.core.base.guard import guarded
from gaudi_launch.core.host import hl_smi_text
from gaudi_launch.core.host.hl_smi_text import Affinity, Table

_log = logging.getLogger(__name__)

# hl-smi ends right after its last output
_TURN_SECONDS = 0.01

# A loaded eight-card server answers in about two seconds; a hung driver never does.
SECONDS = 5.0
_LARGEST = 2 << 20
_CONTROL = re.compile(r"[^\S\n\r\t ]|[\x00-\x08\x0e-\x1f\x7f-\x9f]")

# No release documents what it says to an unknown field, so each list is shorter than the one
# before.
CARD_FIELDS: tuple[tuple[str, ...], ...] = (
    (
        "index",
        "module_id",
        "bus_id",
        "name",
        "driver_version",
        "serial",
        "memory.total",
        "memory.used",
        "temperature.aip",
        "utilization.aip",
        "power.draw",
    ),
    ("index", "module_id", "bus_id", "name", "memory.total", "memory.used"),
    ("index", "module_id"),
)


@dataclass(frozen=True)
class HlSmiOutput:
    """The output of hl-smi; ``problem`` is the reason when there is none."""

    text: str = ""
    problem: str | None = None
    timed_out: bool = False

    @property
    def content(self) -> str:
        """Return the output, "" where there was a problem."""
        return self.text if self.problem is None else ""


Ask = Callable[[Sequence[str]], HlSmiOutput]


def find() -> Ask | None:
    """Return a way to ask the hl-smi on PATH; None when there is none."""
    program = shutil.which("hl-smi")
    return partial(run, program) if program else None


def run(program: str, arguments: Sequence[str], seconds: float | None = None) -> HlSmiOutput:
    """Run hl-smi once, for SECONDS at most.

    Never raises; whatever it started is gone when this returns.
    """
    seconds = SECONDS if seconds is None else seconds
    command = " ".join(["hl-smi", *arguments])
    # hl-smi fails when it cannot write its logs (docs: HABANA_LOGS must be writable)
    logs = f"{tempfile.gettempdir()}/gaudi-launch-hl-smi-{os.urandom(8).hex()}"
    with interrupt.deferred():
        environment = {**os.environ, "HABANA_LOGS": logs, "ENABLE_CONSOLE": "false"}
        seen = ChildLog(_log, [program, *arguments])
        try:
            process = subprocess.Popen(
                [program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
                preexec_fn=guarded(logs),
            )
        except OSError as error:
            seen.failed(error)
            return HlSmiOutput(problem=f"'{command}' cannot be run: {error.strerror or error}")
        seen.started(process.pid)
        try:
            content, finished = _collect(process, time.monotonic() + seconds)
        finally:
            interrupt.end_group(process)
            shutil.rmtree(logs, ignore_errors=True)
            seen.ended(process.returncode)
    text = _CONTROL.sub("?", content.decode("utf-8", errors="replace"))
    if not finished:
        return HlSmiOutput(text, f"'{command}' gave no answer within {seconds:g} s", timed_out=True)
    if process.returncode != 0:
        lines = text.strip().splitlines()
        shown = f": {lines[-1].strip()[:120]}" if lines else ""
        return HlSmiOutput(text, f"'{command}' ended with exit code {process.returncode}{shown}")
    return HlSmiOutput(text)


def _collect(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bool]:
    """Return the output of the process until it ends or the deadline passes.

    More output than hl-smi can produce also ends the reading.
    """
    assert process.stdout is not None
    content = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0 and len(content) < _LARGEST:
            interrupt.check()
            if selector.select(min(left, interrupt.TURN_SECONDS)):
                chunk = os.read(process.stdout.fileno(), 65536)
                if not chunk:
                    break
                content += chunk
        else:
            return content, False
    deadline = max(deadline, time.monotonic() + 0.1)
    while process.poll() is None:
        if time.monotonic() >= deadline:
            _log.debug("hl-smi took too long")
            return content, False
        interrupt.pause(_TURN_SECONDS)
    return content, True


@dataclass
class HlSmi:
    """One session with hl-smi.

    Each query runs once; errors are kept in ``problems``.
    """

    ask: Ask
    problems: dict[str, str] = field(default_factory=dict)
    hangs: bool = False

    def table(self) -> Table | None:
        """Return the plain table, None if there was none."""
        answer = self.ask([])
        self.hangs = answer.timed_out
        table = hl_smi_text.parse_table(answer.text)
        if table.rows:
            return table
        self.problems["hl-smi table"] = answer.problem or "'hl-smi' printed no card"
        return None

    def cards(self) -> tuple[dict[str, str], ...]:
        """Return cards by ``-Q``: as many fields as this release answers, by index.

        They have module IDs where the release reports them.
        """
        timed_out = False
        without_modules: tuple[dict[str, str], ...] = ()
        for fields in CARD_FIELDS:
            if timed_out and fields is not CARD_FIELDS[-1]:
                continue
            answer = self.ask(["-Q", ",".join(fields), "-f", "csv"])
            timed_out = answer.timed_out
            rows = hl_smi_text.parse_csv(answer.content)
            rows = tuple(row for row in rows if row.get("index", "").isdecimal())
            if any(row.get("module_id", "").isdecimal() for row in rows):
                self.problems.pop("hl-smi -Q", None)
                return rows
            without_modules = without_modules or rows
            self.problems["hl-smi -Q"] = (
                answer.problem or f"'hl-smi -Q {','.join(fields)}' listed no module"
            )
        return without_modules

    def log(self) -> dict[int, dict[str, str]]:
        """Return the long list of each card: module, serial, status, firmware, PCIe link."""
        return hl_smi_text.parse_log(self.ask(["-L"]).content)

    def links(self, bus: str) -> dict[int, str]:
        """Return UP or DOWN by port of one card; empty when unknown."""
        return hl_smi_text.parse_links(self.ask(["-n", "link", "-i", bus]).content)

    def name(self) -> str | None:
        """Return the product name that all cards share, by ``-Q name``.

        Its rows do not say which card they mean.
        """
        answer = self.ask(["-Q", "name", "-f", "csv"])
        rows = hl_smi_text.parse_csv(answer.content)
        names = {row["name"] for row in rows if row.get("name", "").startswith("HL-")}
        if len(names) != 1:
            return None
        return names.pop()

    def topo(self) -> tuple[Affinity, ...]:
        """Return CPU ranges and NUMA node by module."""
        answer = self.ask(["topo", "-c", "-N"])
        rows = hl_smi_text.parse_topo(answer.content)
        if not rows:
            self.problems["hl-smi topo"] = answer.problem or "'hl-smi topo -c -N' listed no module"
        return rows
