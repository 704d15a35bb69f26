"""The columns of the live view: cards, services and hosts as cells with a style."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.cells import cell_len, set_cell_size

from gaudi_launch.cli.sparkline import sparkline
from gaudi_launch.core.base.messages import printable, text
from gaudi_launch.core.base.optional import mapped, mean
from gaudi_launch.extensions.watch.sample import CardSample, HostSample, ServiceSample
from gaudi_launch.extensions.watch.top.state import TopState, card_name

UNKNOWN = "-"
PLAIN, DIM, GOOD, WARN, BAD = "plain", "dim", "good", "warn", "bad"
TITLE, CHOSEN = "title", "chosen"

_T = TypeVar("_T")


@dataclass(frozen=True)
class Cell:
    """A text with the name of its style."""

    text: str
    style: str = PLAIN


@dataclass(frozen=True)
class Column(Generic[_T]):
    """One column: its title's ID, its least width, and its cell.

    Without a cell it shows the host. ``trail`` draws past values instead: their kind and name, and
    the most that they can be. ``grow`` takes the space that is left; ``from_width`` is the
    terminal's width from which it is shown. Where the columns do not fit, those with the highest
    ``drop`` are left out first.
    """

    title: str
    width: int
    cell: Callable[[_T], Cell] | None = None
    right: bool = True
    grow: bool = False
    from_width: int = 0
    drop: int = 0
    trail: Callable[[_T], tuple[str, str, float | None]] | None = None

    def cell_of(self, host: HostSample, item: _T, state: TopState, width: int) -> Cell:
        """Return the cell of a host's item, of this width."""
        if self.trail is not None:
            kind, name, most = self.trail(item)
            values = state.trails.of(host.host, kind, name)
            return Cell(sparkline(values, width, most, ascii=state.ascii), GOOD)
        if self.cell is None:
            return Cell(host.host)
        return self.cell(item)


def shown_columns(
    columns: Sequence[Column[_T]], width: int, *, several: bool
) -> list[tuple[Column[_T], int]]:
    """Return the columns for this width, each with its own width in cells."""
    chosen = [column for column in columns if column.from_width <= width]
    if not several:
        chosen = [column for column in chosen if column.title != "host"]
    while _needed(chosen) > width and any(column.drop for column in chosen):
        chosen.remove(max(chosen, key=lambda column: column.drop))
    widths = [_least(column) for column in chosen]
    left = max(0, width - _needed(chosen))
    growing = [number for number, column in enumerate(chosen) if column.grow]
    for number in growing:
        widths[number] = max(chosen[number].width, widths[number] + left // max(1, len(growing)))
    return list(zip(chosen, widths, strict=True))


def _least(column: Column[_T]) -> int:
    return max(column.width, cell_len(title_of(column.title)))


def _needed(columns: Sequence[Column[_T]]) -> int:
    """Return the cells that these columns and the gaps between them take."""
    return sum(map(_least, columns)) + len(columns) - 1


def title_of(name: str) -> str:
    """Return a column's title; one that continues the column before has none."""
    if not name:
        return ""
    return text(f"watch.col_{name}")


def fitted(value: str, width: int, *, right: bool) -> str:
    """Return a text of exactly this many cells, with a mark where it is cut.

    Texts come from other hosts and processes: what could steer the terminal is replaced.
    """
    value = printable(value)
    if cell_len(value) > width:
        if width > 1:
            return set_cell_size(value, max(0, width - 1)) + "~"
        return set_cell_size(value, width)
    blanks = " " * (width - cell_len(value))
    return blanks + value if right else value + blanks


def number(value: float | None, form: str = "{:.0f}") -> str:
    return UNKNOWN if value is None else form.format(value)


def amount(value: float | None) -> str:
    """Return a number for the screen: 1,320. Lines for programs have it plain."""
    return number(value, "{:,.0f}")


# --- cards --------------------------------------------------------------------------------------


def card_state(card: CardSample) -> Cell:
    """Return the most important fact of a card's state."""
    if not card.present:
        return Cell(text("watch.state_lost"), BAD)
    if card.status is not None and card.status.lower() != "operational":
        return Cell(card.status, BAD)
    if card.temperature_c == 0:
        # docs: System Verifications; the card failed to initialise
        return Cell(text("watch.state_failed"), BAD)
    if card.throttled:
        return Cell(text("watch.state_throttled"), WARN)
    if card.busy is None:
        return Cell(UNKNOWN)
    if card.busy:
        return Cell(text("watch.state_busy"), GOOD)
    return Cell(text("watch.state_free"), DIM)


def links(card: CardSample) -> Cell:
    if card.ports_down is None:
        return Cell(UNKNOWN)
    if not card.ports_down:
        return Cell(text("watch.links_ok"), DIM)
    return Cell(text("watch.links_down", count=len(card.ports_down)), BAD)


def _memory(card: CardSample) -> Cell:
    if card.memory_total_mib is None:
        return Cell(UNKNOWN)
    used = number(mapped(lambda mib: mib / 1024, card.memory_used_mib), "{:.1f}")
    return Cell(f"{used}/{card.memory_total_mib / 1024:.1f}")


def _power(card: CardSample) -> Cell:
    if card.power_w is None and card.power_cap_w is None:
        return Cell(UNKNOWN)
    return Cell(f"{number(card.power_w)}/{number(card.power_cap_w)}")


def _style(style: str, *, when: object) -> str:
    """Return a style for a value that is to be seen, else the plain one."""
    if when:
        return style
    return PLAIN


def _counted(count: int | None, style: str = WARN) -> Cell:
    """Return a number of events, with a style where there are any."""
    return Cell(number(count), _style(style, when=count))


def _owner(card: CardSample) -> Cell:
    # a command without the folder of its program
    first, blank, rest = (card.owner or "").partition(" ")
    return Cell((first.rsplit("/", 1)[-1] + blank + rest) or UNKNOWN)


def _name(card: CardSample) -> str:
    return card_name(card.module, card.index)


CARDS: tuple[Column[CardSample], ...] = (
    Column("host", 10, right=False),
    Column("module", 3, lambda card: Cell(_name(card))),
    Column("group", 3, lambda card: Cell(number(card.group)), drop=5),
    Column("node", 4, lambda card: Cell(number(card.numa_node)), drop=6),
    Column("use", 4, lambda card: Cell(number(card.utilization_percent, "{:.0f}%"))),
    Column(
        "use_trail",
        8,
        right=False,
        grow=True,
        drop=7,
        trail=lambda card: ("use", _name(card), 100.0),
    ),
    Column("memory", 11, _memory),
    Column("power", 8, _power),
    Column(
        "power_trail",
        8,
        right=False,
        grow=True,
        from_width=110,
        trail=lambda card: ("power", _name(card), card.power_cap_w),
    ),
    Column(
        "temperature",
        4,
        lambda card: Cell(number(card.temperature_c), _style(WARN, when=card.throttled)),
        drop=1,
    ),
    Column("links", 6, links, drop=2),
    Column("events", 6, lambda card: _counted(card.uncorrectable_events, BAD), from_width=100),
    Column("state", 9, card_state, right=False),
    Column("owner", 8, _owner, right=False, grow=True),
)


# --- services -----------------------------------------------------------------------------------


def phase_of(service: ServiceSample) -> Cell:
    """Return a service's phase with its progress."""
    if service.phase == "ready":
        return Cell(text("services.phase_ready"), GOOD)
    if service.phase in _SHORT:
        words = text(f"watch.phase_{service.phase}")
    else:
        words = service.phase
    if service.phase in ("failed", "lost"):
        return Cell(words, BAD)
    if service.alive and service.total:
        return Cell(f"{words} {service.done or 0}/{service.total}", WARN)
    return Cell(words, WARN if service.alive else DIM)


# phases with a short text
_SHORT = frozenset(
    [
        "start",
        "load",
        "profile",
        "kv_cache",
        "multimodal",
        "warmup_prompt",
        "warmup_decode",
        "graph_prompt",
        "graph_decode",
        "sampler",
        "stopping",
        "failed",
        "lost",
        "stopped",
        "answering",
        "waiting",
    ]
)


def _requests(service: ServiceSample) -> Cell:
    if service.running is None and service.waiting is None:
        return Cell(UNKNOWN)
    words = f"{number(service.running)}+{number(service.waiting)}"
    return Cell(words, _style(WARN, when=service.waiting))


def seconds(value: float | None) -> str:
    """Return a time in milliseconds, in seconds from ten seconds on."""
    if value is None:
        return UNKNOWN
    if value < 10:
        return f"{value * 1000:.0f}ms"
    return f"{value:.1f}s"


def _kv(service: ServiceSample) -> Cell:
    use = service.kv_use
    if use is None:
        return Cell(UNKNOWN)
    return Cell(f"{use * 100:.0f}%", _style(BAD, when=use >= 0.95))


def _left(service: ServiceSample) -> Cell:
    left = service.left_seconds
    if left is None:
        return Cell(UNKNOWN)
    return Cell(text("watch.left", minutes=f"{int(left) // 60}:{int(left) % 60:02}"))


def service_columns(services: Iterable[ServiceSample]) -> tuple[Column[ServiceSample], ...]:
    """Return the columns of services: one more where cards of some are simulated."""
    if any(service.simulated for service in services):
        return SERVICES
    return tuple(column for column in SERVICES if column.title != "simulated")


def _simulated(service: ServiceSample) -> Cell:
    if service.simulated:
        return Cell(title_of("simulated"), WARN)
    return Cell("")


SERVICES: tuple[Column[ServiceSample], ...] = (
    Column("host", 10, right=False),
    Column("service", 11, lambda service: Cell(service.name), right=False, grow=True),
    Column("simulated", 3, _simulated, right=False),
    Column("phase", 14, phase_of, right=False),
    Column("left", 6, _left, from_width=100),
    Column("requests", 6, _requests),
    Column("tokens", 6, lambda service: Cell(amount(service.tokens_per_second))),
    Column(
        "",
        6,
        right=False,
        grow=True,
        drop=7,
        trail=lambda service: ("tokens", service.name, None),
    ),
    Column("ttft", 6, lambda service: Cell(seconds(service.ttft_seconds))),
    Column("tpot", 5, lambda service: Cell(seconds(service.tpot_seconds))),
    Column("kv", 4, _kv),
    Column("preemptions", 4, lambda each: _counted(each.preemptions), drop=2),
    Column("compiles", 4, lambda each: _counted(each.run_time_compiles), drop=3),
    Column("restarts", 3, lambda each: _counted(each.restarts), drop=4),
    Column("watts", 5, lambda each: Cell(amount(each.power_w)), from_width=100),
    Column("joules", 6, lambda each: Cell(number(each.joules_per_token, "{:.2f}")), from_width=110),
    Column("kwh", 6, lambda each: Cell(number(each.kwh_today, "{:.2f}")), from_width=130),
)


# --- hosts --------------------------------------------------------------------------------------


def total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return sum(known)


def faults(host: HostSample) -> int:
    """Return the number of cards that are lost, failed, throttled or without a link."""
    return sum(
        card_state(card).style in (BAD, WARN) or bool(card.ports_down) for card in host.cards
    )


def host_state(host: HostSample) -> Cell:
    """Return whether a host answers, whether it is simulated, and its faults."""
    state = _host_state(host)
    if not host.simulated:
        return state
    return Cell(text("watch.simulated_state", state=state.text), state.style)


def _host_state(host: HostSample) -> Cell:
    if not host.answers:
        return Cell(host.problem or text("watch.host_off"), BAD)
    count = faults(host)
    if count:
        return Cell(text("watch.host_faults", count=count), WARN)
    if host.problem:
        return Cell(host.problem, WARN)
    return Cell(text("watch.host_ok"), GOOD)


def _total(host: HostSample, name: str) -> float | None:
    return total([getattr(card, name) for card in host.cards])


def _ready(host: HostSample) -> Cell:
    if not host.answers:
        return Cell(UNKNOWN)
    alive = [service for service in host.services if service.alive]
    ready = sum(service.phase == "ready" for service in alive)
    return Cell(f"{ready}/{len(alive)}")


def _mean_use(host: HostSample) -> Cell:
    return Cell(number(mean([card.utilization_percent for card in host.cards]), "{:.0f}%"))


def _memory_of(host: HostSample) -> Cell:
    return Cell(amount(mapped(lambda mib: mib / 1024, _total(host, "memory_used_mib"))))


HOSTS: tuple[Column[HostSample], ...] = (
    Column("hostname", 14, right=False),
    Column("product", 11, lambda host: Cell(host.product or UNKNOWN), right=False, drop=1),
    Column("cards", 5, lambda host: Cell(str(len(host.cards)) if host.answers else UNKNOWN)),
    Column("use", 5, _mean_use),
    Column("memory", 8, _memory_of),
    Column("power", 8, lambda host: Cell(amount(_total(host, "power_w")))),
    Column("services", 8, _ready),
    Column("state", 14, host_state, right=False, grow=True),
)
