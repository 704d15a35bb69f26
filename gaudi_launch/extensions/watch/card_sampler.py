"""Sample the cards with one hl-smi call per second at most.

hl-smi's plain table is read each second. What changes slowly (links, throttle counters, the modules
where sysfs lacks them) takes the place of a table now and then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from gaudi_launch.core.base import paths
from gaudi_launch.core.base.background import in_background
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.host import card_locks, hl_smi_text, shared_hl_smi, simulated
from gaudi_launch.core.host.files import Files, FolderFiles
from gaudi_launch.core.host.hardware import Card, Host
from gaudi_launch.core.host.hl_smi import HlSmiOutput
from gaudi_launch.core.host.hl_smi_text import Table
from gaudi_launch.core.host.machine import SIMULATED, load
from gaudi_launch.core.host.read import assemble
from gaudi_launch.core.host.shared_hl_smi import SharedHlSmi, TimedOutput
from gaudi_launch.core.host.simulated_motion import moved
from gaudi_launch.extensions.watch.sample import CardSample

# longer than hl-smi's own limit (host.hl_smi.SECONDS)
PATIENT_SECONDS = 6.0
TABLE: tuple[str, ...] = ()
_TABLE_SECONDS = 1.0
_VIOLATION_SECONDS = 15.0
# one card after the other, so that eight cards take eight of sixty seconds
_LINK_SECONDS = 60.0
_FOREVER = float("inf")
# who uses a card is also in /proc, which takes long to search on a large server
_HOST_SECONDS = 60.0
# a table that is older says nothing about now
_STALE_SECONDS = 10.0
# above the idle reading of every product (profiles/accelerators.yaml)
_USED_MIB = 2048


class Source(Protocol):
    """A machine whose cards are sampled."""

    def files(self) -> Files: ...

    def latest(self, arguments: Sequence[str], most_age: float) -> TimedOutput | None:
        """Return hl-smi's newest output; None when it was not called yet."""

    @property
    def has_hl_smi(self) -> bool: ...


class LiveSource:
    """This machine, below GAUDI_LAUNCH_ROOT."""

    def __init__(self, wait_seconds: float) -> None:
        self.root = paths.machine_root()
        self._shared = shared_hl_smi.find()
        self._wait_seconds = wait_seconds
        self._known: dict[tuple[str, ...], TimedOutput] = {}
        self._call: threading.Thread | None = None

    def files(self) -> Files:
        return FolderFiles(self.root)

    def latest(self, arguments: Sequence[str], most_age: float) -> TimedOutput | None:
        """Return what is known after ``wait_seconds``.

        A call that lasts longer is for a later sample.
        """
        if self._shared is None:
            return None
        key = tuple(arguments)
        if self._call is None or not self._call.is_alive():
            self._call = in_background(partial(self._ask, self._shared, key, most_age))
        self._call.join(self._wait_seconds)
        return self._known.get(key)

    def _ask(self, shared: SharedHlSmi, arguments: tuple[str, ...], most_age: float) -> None:
        answer = shared.latest(arguments, most_age)
        if answer is not None:
            self._known[arguments] = answer

    @property
    def has_hl_smi(self) -> bool:
        return self._shared is not None


class SimulatedSource:
    """A simulated machine whose values change with the time since ``begin``."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._machine = simulated.build(name)
        self._clock = clock
        self._begin = clock()

    def _now(self) -> simulated.Machine:
        return moved(self._machine, self._clock() - self._begin)

    def files(self) -> Files:
        return self._now().view

    def latest(self, arguments: Sequence[str], most_age: float) -> TimedOutput | None:
        return TimedOutput(self._now().ask(arguments), self._clock())

    @property
    def has_hl_smi(self) -> bool:
        return self._machine.hl_smi is not None


def source_of(machine: str | None, wait_seconds: float) -> Source | None:
    """Return the source of ``--machine``; None for a snapshot, which never changes.

    ``wait_seconds`` is how long a sample waits for a live hl-smi.

    Raises LaunchError (USAGE) for an unknown name.
    """
    if machine is None:
        return LiveSource(wait_seconds)
    if machine.startswith(SIMULATED):
        return SimulatedSource(machine.removeprefix(SIMULATED))
    return None


class CardSampler:
    """Samples the cards of one machine, as often as it is called."""

    def __init__(
        self,
        machine: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait_seconds: float = PATIENT_SECONDS,
    ) -> None:
        self._clock = clock
        self._source = source_of(machine, wait_seconds)
        self._fixed = load(machine) if self._source is None else None
        self._host: Host | None = self._fixed
        self._host_at = float("-inf")
        self._wanted: list[tuple[str, ...]] = []
        self._answers: dict[tuple[str, ...], TimedOutput] = {}
        # throttle counters of each card, and those that grew between its last two readings
        self._counters: dict[int, dict[str, int]] = {}
        self._grown: dict[int, tuple[str, ...]] = {}
        self._seen: dict[int | None, Card] = {}
        self._slow_last = False
        self._use: set[tuple[int | None, int]] = set()

    @property
    def host(self) -> Host | None:
        """Return the machine as it was read last; None before the first sample."""
        return self._host

    @property
    def files(self) -> Files | None:
        """Return the machine's files; None for a snapshot."""
        if self._source is None:
            return None
        return self._source.files()

    @property
    def has_answer(self) -> bool:
        """Return False while the first table of hl-smi has not come."""
        return self._source is None or not self._source.has_hl_smi or TABLE in self._answers

    def sample(self) -> tuple[tuple[CardSample, ...], str | None]:
        """Return the cards, and why hl-smi gave no values (None: it did)."""
        if self._source is None:
            assert self._fixed is not None
            fixed = self._fixed
            cards = (replace(_identity(fixed, card), **_values(card)) for card in fixed.cards)
            return tuple(cards), None
        problem = self._read(self._source)
        host = self._read_host(self._source)
        table = self._table()
        rows = {row.index: row for row in table.rows} if table is not None else None
        if table is not None and rows:
            self._seen.update(rows)
            # the users of the cards are read again when the table shows other ones
            use = {
                *((process.index, process.pid) for process in table.processes),
                *((row.index, (row.memory_used_mib or 0) > _USED_MIB) for row in table.rows),
            }
            if use != self._use:
                self._use = use
                self._host_at = float("-inf")
        # also those that hl-smi listed earlier
        listed = {card.index for card in host.cards}
        gone = (card for index, card in self._seen.items() if index not in listed)
        return tuple(self._sampled(host, card, rows) for card in (*host.cards, *gone)), problem

    # --- hl-smi ---------------------------------------------------------------------------------

    def _read(self, source: Source) -> str | None:
        """Make this second's call; return why the table is not known."""
        if not source.has_hl_smi:
            return text("watch.no_hl_smi")
        due = None if self._slow_last else self._due()
        self._slow_last = due is not None
        if due is not None:
            arguments, age = due
            self._keep(source, arguments, age)
        else:
            self._keep(source, TABLE, _TABLE_SECONDS)
        answer = self._answers.get(TABLE)
        if answer is None:
            return text("watch.hl_smi_waits")
        if self._clock() - answer.at > _STALE_SECONDS:
            return text("watch.hl_smi_late", seconds=f"{self._clock() - answer.at:.0f}")
        return answer.output.problem

    def _keep(self, source: Source, arguments: tuple[str, ...], age: float) -> None:
        answer = source.latest(arguments, age)
        former = self._answers.get(arguments)
        if answer is None or (former is not None and former.at == answer.at):
            return
        self._answers[arguments] = answer
        if arguments in self._wanted:
            self._wanted.remove(arguments)
            self._host_at = float("-inf")
        if arguments == hl_smi_text.VIOLATIONS:
            self._count(answer.output)

    def _due(self) -> tuple[tuple[str, ...], float] | None:
        """Return the slow query that is due, with the age that is good enough."""
        if TABLE not in self._answers:
            return None
        if self._wanted:
            return self._wanted[0], _FOREVER
        queries = [(hl_smi_text.VIOLATIONS, _VIOLATION_SECONDS)]
        for card in self._host.cards if self._host is not None else ():
            if card.bus is not None:
                queries.append((("-n", "link", "-i", card.bus), _LINK_SECONDS))
        return self._latest_due(queries)

    def _latest_due(
        self, queries: Sequence[tuple[tuple[str, ...], float]]
    ) -> tuple[tuple[str, ...], float] | None:
        """Return the query that is the most overdue by its period; None when none is."""
        found, overdue = None, 1.0
        for query, period in queries:
            known = self._answers.get(query)
            age = _FOREVER if known is None else self._clock() - known.at
            if age / period >= overdue and (found is None or age / period > overdue):
                found, overdue = (query, period), age / period
        return found

    def _count(self, output: HlSmiOutput) -> None:
        if output.problem is not None:
            return
        for index, now in hl_smi_text.parse_violations(output.text).items():
            known = self._counters.get(index)
            if not now:
                continue
            if known is not None:
                grown = (name for name in now if now[name] > known.get(name, now[name]))
                self._grown[index] = tuple(grown)
            self._counters[index] = now

    def _table(self) -> Table | None:
        answer = self._answers.get(TABLE)
        if answer is None or answer.output.problem is not None:
            return None
        if self._clock() - answer.at > _STALE_SECONDS:
            return None
        return hl_smi_text.parse_table(answer.output.text)

    # --- the machine ----------------------------------------------------------------------------

    def _read_host(self, source: Source) -> Host:
        now = self._clock()
        if self._host is not None and now - self._host_at < _HOST_SECONDS:
            return self._host
        root = source.root if isinstance(source, LiveSource) else None
        self._host = assemble(
            source.files(),
            self._recall if source.has_hl_smi else None,
            reserved=mapped(card_locks.read_reserved, root),
        )
        if isinstance(root, Path):
            self._host = replace(self._host, root=str(root))
        self._host_at = now
        return self._host

    def _recall(self, arguments: Sequence[str]) -> HlSmiOutput:
        """Answer from what is known, and want the first query that is not."""
        key = tuple(arguments)
        if key in self._answers:
            return self._answers[key].output
        if key != TABLE and not self._wanted:
            self._wanted.append(key)
        return HlSmiOutput(problem="not read yet")

    # --- one card -------------------------------------------------------------------------------

    def _sampled(self, host: Host, card: Card, rows: dict[int | None, Card] | None) -> CardSample:
        base = _identity(host, card)
        if rows is None or card.index is None:
            return base
        row = rows.get(card.index)
        if row is None:
            return replace(base, present=card.index not in self._seen)
        grown = self._grown.get(card.index)
        return replace(
            base,
            **_values(row),
            throttled=mapped(bool, grown),
            throttled_by=grown or (),
            ports_down=self._ports_down(card.bus),
        )

    def _ports_down(self, bus: str | None) -> tuple[int, ...] | None:
        answer = self._answers.get(("-n", "link", "-i", bus or ""))
        if answer is None or answer.output.problem is not None:
            return None
        ports = hl_smi_text.parse_links(answer.output.text)
        if not ports:
            return None
        return tuple(port for port, state in sorted(ports.items()) if state.upper() != "UP")


# of the plain table; never from an older reading
_CHANGING = (
    "temperature_c",
    "power_w",
    "power_cap_w",
    "memory_used_mib",
    "memory_total_mib",
    "utilization_percent",
    "uncorrectable_events",
)


def _values(reading: Card) -> dict[str, Any]:
    return {name: getattr(reading, name) for name in _CHANGING}


def _identity(host: Host, card: Card) -> CardSample:
    """Return a card without what changes each second."""
    group = next(
        (number for number, modules in enumerate(host.groups) if card.module in modules), None
    )
    owner = next((holder.command for holder in card.holders if holder.command), None)
    return CardSample(
        module=card.module,
        index=card.index,
        product=card.product,
        bus=card.bus,
        group=group,
        numa_node=card.numa_node,
        status=card.status,
        busy=card.busy,
        owner=owner,
    )
