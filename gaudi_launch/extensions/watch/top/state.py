"""The state of the live view, and what each key does to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from gaudi_launch.core.base.messages import text
from gaudi_launch.extensions.watch.sample import CardSample, HostSample, ServiceSample

SECTIONS = ("all", "cards", "services", "hosts")
SORTS = ("module", "use", "memory", "power", "temperature")
_PAGE = 10
# of a trail: two minutes, a value each second
_MOST = 120

Key = tuple[str, str, str]


@dataclass
class Trails:
    """The last two minutes of each value, by host, kind and name.

    None: it was unknown."""

    _values: dict[Key, deque[float | None]] = field(default_factory=dict)

    def add(self, host: HostSample) -> None:
        """Add one sample of a host."""
        for card in host.cards:
            name = card_name(card.module, card.index)
            self._put((host.host, "use", name), card.utilization_percent)
            self._put((host.host, "power", name), card.power_w)
        for service in host.services:
            self._put((host.host, "tokens", service.name), service.tokens_per_second)
        for node in host.nodes:
            self._put((host.host, "cpu", str(node.id)), node.cpu_percent)

    def of(self, host: str, kind: str, name: str) -> tuple[float | None, ...]:
        """Return the values, oldest first; empty when there are none."""
        return tuple(self._values.get((host, kind, name), ()))

    def _put(self, key: Key, value: float | None) -> None:
        self._values.setdefault(key, deque(maxlen=_MOST)).append(value)


def card_name(module: int | None, index: int | None) -> str:
    """Return a card's module ID, or its index marked as such."""
    if module is not None:
        return str(module)
    return "?" if index is None else f"i{index}"


class Actions(Protocol):
    """The actions of the view on a service of this machine."""

    def log(self, service: str) -> list[str]: ...

    def why(self, service: str) -> list[str]: ...

    def stop(self, service: str) -> None: ...


@dataclass
class Overlay:
    """A text over the view: a log, an explanation, the help.

    ``again`` reads it once more."""

    title: str
    lines: list[str]
    again: Callable[[], list[str]] | None = None
    # lines above the end for a log, below the beginning for everything else
    scroll: int = 0
    at_end: bool = False


@dataclass
class TopState:
    """The samples to show, and how to show them."""

    hosts: list[HostSample] = field(default_factory=list)
    trails: Trails = field(default_factory=Trails)
    sort: str = SORTS[0]
    filter: str = ""
    section: str = SECTIONS[0]
    selected: int = 0
    scroll: int = 0
    overlay: Overlay | None = None
    is_typing: bool = False
    to_stop: str = ""
    message: str = ""
    local: bool = True
    everything: bool = False
    # the terminal shows nothing else
    ascii: bool = False

    def update(self, hosts: list[HostSample]) -> None:
        """Take the newest samples."""
        self.hosts = hosts
        for host in hosts:
            if host.answers:
                self.trails.add(host)

    def cards(self) -> list[tuple[HostSample, CardSample]]:
        """Return the cards that the filter passes, sorted."""
        kept = [
            (host, card)
            for host in self.hosts
            for card in host.cards
            if self._passes(
                host.host, str(card.module), card.product, card.owner, card.status, card.bus
            )
        ]
        hosts = [host.host for host in self.hosts]

        def order(pair: tuple[HostSample, CardSample]) -> tuple[float, float]:
            place = _card_order(self.sort, pair[1])
            if self.sort == "module":
                return (hosts.index(pair[0].host), place)
            return (place, 0)

        return sorted(kept, key=order)

    def services(self) -> list[tuple[HostSample, ServiceSample]]:
        """Return the services that the filter passes, the running ones first.

        Those that were stopped are left out unless ``everything`` is shown.
        """
        found = [
            (host, each)
            for host in self.hosts
            for each in host.services
            if (self.everything or each.phase != "stopped")
            and self._passes(host.host, each.name, each.model, each.phase, each.engine)
        ]
        return sorted(found, key=lambda pair: not pair[1].alive)

    def chosen(self) -> ServiceSample | None:
        """Return the service that the keys act on; None without services."""
        rows = self.services()
        if not rows:
            return None
        self.selected = min(max(0, self.selected), len(rows) - 1)
        return rows[self.selected][1]

    def _passes(self, *texts: str | None) -> bool:
        wanted = self.filter.lower()
        return not wanted or any(wanted in each.lower() for each in texts if each)


def _card_order(sort: str, card: CardSample) -> float:
    """Return the place of a card: by module ascending, else by value descending."""
    if sort == "module":
        if card.module is not None:
            return card.module
        return 10_000 + (card.index or 0)
    values = {
        "use": card.utilization_percent,
        "memory": card.memory_used_mib,
        "power": card.power_w,
        "temperature": card.temperature_c,
    }
    value = values[sort]
    return float("inf") if value is None else -value


def press(state: TopState, key: str, actions: Actions) -> bool:
    """Apply a key; return False to leave the program."""
    if state.is_typing:
        _type(state, key)
        return True
    if state.to_stop:
        _answer(state, key, actions)
        return True
    state.message = ""
    if key == "q":
        return state.overlay is not None and _close(state)
    if state.overlay is not None:
        _scroll_overlay(state, key)
        return True
    act = _KEYS.get(key)
    if act is not None:
        act(state, actions)
    return True


def _close(state: TopState) -> bool:
    state.overlay = None
    return True


def _type(state: TopState, key: str) -> None:
    if key in ("enter", "esc"):
        state.is_typing = False
        if key == "esc":
            state.filter = ""
    elif key == "backspace":
        state.filter = state.filter[:-1]
    elif len(key) == 1 and key.isprintable():
        state.filter += key


def _answer(state: TopState, key: str, actions: Actions) -> None:
    """Stop the service when the answer is y; any other key keeps it."""
    name, state.to_stop = state.to_stop, ""
    if key in ("y", "Y"):
        state.message = text("watch.stopping", name=name)
        actions.stop(name)
    else:
        state.message = text("watch.kept", name=name)


def _scroll_overlay(state: TopState, key: str) -> None:
    overlay = state.overlay
    assert overlay is not None
    if key in ("esc", "enter", "l", "w", "h", "?"):
        state.overlay = None
        return
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -_PAGE, "pagedown": _PAGE, " ": _PAGE}
    step = steps.get(key, 0)
    overlay.scroll = max(0, overlay.scroll + (-step if overlay.at_end else step))


def _move(step: int) -> Callable[[TopState, Actions], None]:
    def act(state: TopState, actions: Actions) -> None:
        if state.section in ("cards", "hosts"):
            state.scroll = max(0, state.scroll + step)
            return
        state.selected = max(0, state.selected + step)
        state.chosen()

    return act


def _next_section(state: TopState, actions: Actions) -> None:
    several = len(state.hosts) > 1
    sections = SECTIONS if several else SECTIONS[:-1]
    state.section = sections[(sections.index(state.section) + 1) % len(sections)]
    state.scroll = 0


def _next_sort(state: TopState, actions: Actions) -> None:
    state.sort = SORTS[(SORTS.index(state.sort) + 1) % len(SORTS)]


def _filter(state: TopState, actions: Actions) -> None:
    state.is_typing = True


def _clear(state: TopState, actions: Actions) -> None:
    state.filter, state.section = "", SECTIONS[0]


def _everything(state: TopState, actions: Actions) -> None:
    state.everything = not state.everything


def _help(state: TopState, actions: Actions) -> None:
    state.overlay = Overlay(text("watch.help_title"), text("watch.help").split("\n"))


def _local_service(state: TopState) -> str:
    """Return the chosen service's name.

    Return "" with a message where there is none to act on."""
    service = state.chosen()
    if service is None:
        state.message = text("watch.no_service")
        return ""
    if not state.local:
        state.message = text("watch.only_local")
        return ""
    return service.name


def _log(state: TopState, actions: Actions) -> None:
    name = _local_service(state)
    if name:
        title = text("watch.log_title", name=name)
        state.overlay = Overlay(title, actions.log(name), lambda: actions.log(name), at_end=True)


def _why(state: TopState, actions: Actions) -> None:
    name = _local_service(state)
    if name:
        state.overlay = Overlay(text("watch.why_title", name=name), actions.why(name))


def _stop(state: TopState, actions: Actions) -> None:
    name = _local_service(state)
    service = state.chosen()
    if not name or service is None:
        return
    if service.alive:
        state.to_stop = name
    else:
        state.message = text("watch.not_running", name=name)


_KEYS: dict[str, Callable[[TopState, Actions], None]] = {
    "up": _move(-1),
    "k": _move(-1),
    "down": _move(1),
    "j": _move(1),
    "pageup": _move(-_PAGE),
    "pagedown": _move(_PAGE),
    "tab": _next_section,
    "s": _next_sort,
    "a": _everything,
    "/": _filter,
    "esc": _clear,
    "l": _log,
    "w": _why,
    "x": _stop,
    "h": _help,
    "?": _help,
}
