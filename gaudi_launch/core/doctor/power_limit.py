"""The power limit of cards: set by hl-smi, recorded, and restored.

Each change is in the doctor's journal before hl-smi is called, so that a process that is killed
leaves a change that can be reverted. Only products whose range is documented are changed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.doctor import journal
from gaudi_launch.core.doctor.journal import Journal
from gaudi_launch.core.host import hl_smi_text
from gaudi_launch.core.host.accelerators import PowerRange, accelerator_of, power_range
from gaudi_launch.core.host.hardware import Card, Host
from gaudi_launch.core.host.hl_smi import Ask


@dataclass(frozen=True)
class CapChange:
    """A new power limit of one card, in W; ``before_w`` is the present one."""

    bus: str
    before_w: int
    after_w: int
    module: int | None = None
    index: int | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return hl-smi's arguments (docs: System Management Interface Tool, -i and -p)."""
        return ("-i", self.bus, "-p", str(self.after_w))


@dataclass(frozen=True)
class FormerCap:
    """A change of a power limit by hl-smi."""

    number: str
    root: str
    cap: CapChange
    at: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class CapOutcome:
    """The result of one change.

    ``status``: ``changed``, ``same`` (it was so already), ``failed``. ``now_w`` is what hl-smi
    shows afterwards.
    """

    change: CapChange
    status: str
    now_w: int | None = None
    reason: str = ""


def documented(host: Host) -> PowerRange:
    """Return the documented range of this machine's cards.

    Raises LaunchError (MACHINE) without cards, or where no document states a range.
    """
    if not host.cards:
        raise LaunchError("power.no_cards", ExitCode.MACHINE)
    product = accelerator_of(host)
    found = power_range(product.id) if product is not None else None
    if found is None:
        raise LaunchError(
            "power.not_documented", ExitCode.MACHINE, product=product.id if product else "?"
        )
    return found


def planned(host: Host, watts: int, modules: Sequence[int] | None) -> list[CapChange]:
    """Return the changes that give these modules (None: all) this limit.

    Raises LaunchError: MACHINE for what this machine cannot, USAGE for a limit out of range or a
    module that does not exist.
    """
    limits = documented(host)
    if not limits.least_w <= watts <= limits.most_w:
        raise LaunchError(
            "power.range", ExitCode.USAGE, found=watts, least=limits.least_w, most=limits.most_w
        )
    if modules is None:
        return [_change(card, watts) for card in host.cards]
    return [_change(_card(host, module), watts) for module in modules]


def _card(host: Host, module: int) -> Card:
    card = host.card(module)
    if card is None:
        known = ", ".join(map(str, host.modules)) or "-"
        raise LaunchError("power.module", ExitCode.USAGE, found=module, known=known)
    return card


def _change(card: Card, watts: int) -> CapChange:
    if card.bus is None or card.power_cap_w is None:
        # without the present limit it could not be restored
        raise LaunchError(
            "power.unknown_cap", ExitCode.MACHINE, index="?" if card.index is None else card.index
        )
    return CapChange(card.bus, card.power_cap_w, watts, card.module, card.index)


def apply(root: Path, changes: Sequence[CapChange], ask: Ask) -> list[CapOutcome]:
    """Set the limits, each one journalled first.

    One that fails leaves the others. Raises LaunchError (FAILED) when the journal cannot be
    written: without it nothing is changed.
    """
    outcomes = []
    with _OpenedJournal() as book:
        for change in changes:
            if change.before_w == change.after_w:
                outcomes.append(CapOutcome(change, "same", change.before_w))
                continue
            former = FormerCap(book.next_number(), str(root), change, time.time())
            book.add(former)
            outcome = _set(change, ask)
            if outcome.now_w == change.before_w:
                book.undone(former.number)
            outcomes.append(outcome)
    return outcomes


def undo(root: Path, ask: Ask) -> list[CapOutcome]:
    """Restore the limits that the journal contains for this root, newest first.

    A limit that another program changed since is restored too: it is a setting, not a text.
    Raises LaunchError (FAILED) when the journal cannot be opened.
    """
    if not journal.journal_path().exists():
        return []
    outcomes = []
    with _OpenedJournal() as book:
        for former in reversed(book.waiting_of(root, FormerCap)):
            cap = former.cap
            change = CapChange(cap.bus, cap.after_w, cap.before_w)
            outcome = _set(change, ask)
            outcomes.append(outcome)
            if outcome.status != "failed":
                book.undone(former.number)
    return outcomes


def _set(change: CapChange, ask: Ask) -> CapOutcome:
    answer = ask(change.arguments)
    rows = hl_smi_text.parse_table(ask(()).text).rows
    now = next((row.power_cap_w for row in rows if row.bus == change.bus), None)
    if answer.problem is not None:
        return CapOutcome(change, "failed", now, answer.problem)
    if now != change.after_w:
        shown = "-" if now is None else f"{now} W"
        return CapOutcome(change, "failed", now, f"hl-smi shows a limit of {shown}")
    return CapOutcome(change, "changed", now)


class _OpenedJournal:
    """The journal, with its error as a LaunchError."""

    def __enter__(self) -> Journal:
        self._context = journal.opened()
        try:
            return self._context.__enter__()
        except OSError as error:
            place, reason = str(journal.journal_path()), error.strerror or str(error)
            raise LaunchError(
                "doctor.journal", ExitCode.FAILED, path=place, reason=reason
            ) from None

    def __exit__(self, *error: object) -> None:
        self._context.__exit__(None, None, None)
