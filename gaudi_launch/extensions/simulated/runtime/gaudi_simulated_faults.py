"""Faults of simulated cards, some time after the warm-up.

Standard library only. What a real engine would log is logged: profiles/signatures.yaml of the
launcher names the threads and files that the texts come from.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# huggingface/tgi-gaudi#216
OUT_OF_MEMORY = "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::268435456 (256)MB"
# HabanaAI/SynapseAI_Core@d4d7f5c:external_includes/synapse_common_types.h, synDeviceReset; the text
# after the number is assumed
LOST = "synStatus=17 [Device reset] Card {module} does not answer."
# vllm-project/vllm-gaudi@091bbadd:docs/dev_guide/ci-failures.md
NOT_FOUND = "synStatus=8 [Device not found] Device acquire failed."
# all cards of an engine wait for the slowest one; the factor is assumed
SLOWER = 2.0
_FOREVER_SECONDS = 3600.0


@dataclass(frozen=True)
class Fault:
    """One fault: its kind, seconds after the warm-up, its card's module ID."""

    kind: str
    after: float
    module: int | None = None


def faults_of(document: Sequence[Mapping[str, Any]], rank: int, restarts: int) -> list[Fault]:
    """Return the coming faults of one copy of the model.

    An engine that was started again has had its faults: only a slow card stays slow, and a lost one
    is missing (`missing_card`).
    """
    mine = [entry for entry in document if entry["rank"] == rank]
    kept = [entry for entry in mine if not restarts or entry["kind"] == "slow-card"]
    return [Fault(entry["kind"], entry["after"], entry["module"]) for entry in kept]


def missing_card(document: Sequence[Mapping[str, Any]], rank: int, restarts: int) -> bool:
    """Return True if this copy lost a card before the engine was restarted."""
    lost = any(entry["kind"] == "card-lost" and entry["rank"] == rank for entry in document)
    return lost and restarts > 0


def restarts_in(folder: str | None) -> int:
    """Return how often the launcher has started this service again, 0 if unknown."""
    if not folder:
        return 0
    try:
        return int(json.loads((Path(folder) / "state.json").read_bytes()).get("restarts") or 0)
    except (OSError, ValueError, AttributeError, TypeError):
        return 0


@dataclass
class Faults:
    """The faults of one engine; ``start`` is called when the warm-up has ended."""

    coming: list[Fault]
    log: Callable[[str], None]
    now: Callable[[], float] = time.monotonic
    began: float | None = None
    _over: list[Fault] = field(default_factory=list)

    def start(self) -> None:
        """Begin to count the time, and arrange the crash, which needs no step."""
        self.began = self.now()
        for fault in self.coming:
            if fault.kind == "crash":
                timer = threading.Timer(fault.after, self._crash, (fault,))
                timer.daemon = True
                timer.start()

    def due(self, kind: str) -> Fault | None:
        """Return the fault of this kind after its time; log it once."""
        for fault in self.coming:
            is_due = self.began is not None and self.now() - self.began >= fault.after
            if fault.kind == kind and is_due:
                self._note(fault)
                return fault
        return None

    def once(self, kind: str) -> Fault | None:
        """Return the fault of this kind at the first step after its time."""
        before = len(self._over)
        fault = self.due(kind)
        return fault if len(self._over) > before else None

    def before_step(self) -> None:
        """Raise the error, or wait for ever, where the card has failed."""
        if self.due("hang"):
            while True:
                time.sleep(_FOREVER_SECONDS)
        lost = self.due("card-lost")
        if lost is not None:
            raise RuntimeError(LOST.format(module="?" if lost.module is None else lost.module))
        if self.due("oom"):
            raise RuntimeError(OUT_OF_MEMORY)

    def slowness(self) -> float:
        """Return the factor on the time of a step."""
        return SLOWER if self.due("slow-card") else 1.0

    def _note(self, fault: Fault) -> None:
        if fault in self._over:
            return
        self._over.append(fault)
        card = "" if fault.module is None else f" of module {fault.module}"
        self.log(f"Simulated fault{card}: {fault.kind}, {fault.after:.0f} s after the warm-up")

    def _crash(self, fault: Fault) -> None:
        self._note(fault)
        os.kill(os.getpid(), signal.SIGSEGV)
