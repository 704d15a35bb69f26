"""The live view: samples in, lines of cells out. It neither reads nor prints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from rich.cells import cell_len

from gaudi_launch.cli.console import sentences
from gaudi_launch.cli.sparkline import sparkline
from gaudi_launch.cli.wrapping import wrapped
from gaudi_launch.core.base import codec
from gaudi_launch.core.base.messages import printable, text
from gaudi_launch.extensions.watch.sample import (
    DiskSample,
    HostSample,
    NodeSample,
)
from gaudi_launch.extensions.watch.top.columns import (
    BAD,
    CARDS,
    CHOSEN,
    DIM,
    HOSTS,
    PLAIN,
    TITLE,
    WARN,
    Cell,
    Column,
    fitted,
    number,
    service_columns,
    shown_columns,
    title_of,
)
from gaudi_launch.extensions.watch.top.state import TopState

Line = list[Cell]
_T = TypeVar("_T")
_TRAIL = 8
_FULL_DISK = 0.9


def to_json(hosts: Sequence[HostSample]) -> dict[str, Any]:
    """Return the samples for programs."""
    return {"schema": 1, "hosts": [codec.write(host) for host in hosts]}


def lines(state: TopState, width: int, height: int) -> list[Line]:
    """Return the screen: exactly ``height`` lines of at most ``width`` cells."""
    head = [_title(state, width)]
    if state.overlay is not None:
        body = _overlay(state, width, height - 2)
    else:
        body = [*_machine_lines(state, width), *_sections(state, width, height - 2)]
    body = body[: height - 2]
    body += [[Cell("")]] * (height - 2 - len(body))
    return [_within(line, width) for line in (*head, *body, _footer(state, width))]


def _title(state: TopState, width: int) -> Line:
    hosts = state.hosts
    if not hosts:
        name = text("watch.reading")
    elif len(hosts) == 1:
        name = " ".join(part for part in (hosts[0].host, hosts[0].product) if part)
        if hosts[0].simulated:
            name = text("watch.simulated_name", name=name)
    else:
        name = text(
            "watch.hosts_count", count=len(hosts), silent=sum(not host.answers for host in hosts)
        )
    at = max((host.at for host in hosts), default=None)
    clock = time.strftime("%H:%M:%S", time.localtime(at)) if at is not None else ""
    left = fitted(f"gaudi-launch top  {name}", max(1, width - len(clock) - 1), right=False)
    return [Cell(f"{left} {clock}", TITLE)]


def _footer(state: TopState, width: int) -> Line:
    if state.to_stop:
        return [Cell(fitted(text("watch.ask_stop", name=state.to_stop), width, right=False), WARN)]
    if state.is_typing:
        return [Cell(fitted(text("watch.typing", filter=state.filter), width, right=False), TITLE)]
    if state.message:
        return [Cell(fitted(state.message, width, right=False), WARN)]
    if state.overlay is not None:
        return [Cell(fitted(text("watch.overlay_keys"), width, right=False), DIM)]
    keys = text("watch.keys", sort=title_of(state.sort), filter=state.filter or "-")
    return [Cell(fitted(keys, width, right=False), DIM)]


# --- one host's CPUs and disks ------------------------------------------------------------------


def _machine_lines(state: TopState, width: int) -> list[Line]:
    if len(state.hosts) != 1:
        return []
    host = state.hosts[0]
    if not host.answers:
        return [[Cell(fitted(host.problem or "", width, right=False), BAD)]]
    parts = [_node(host, node, state) for node in host.nodes]
    if host.nodes:
        free = [node.hugepages_free for node in host.nodes]
        all_pages = [node.hugepages_total for node in host.nodes]
        parts.append(Cell(text("watch.pages", free=_sum(free), total=_sum(all_pages))))
    parts += [_disk(disk) for disk in _distinct(host.disks)]
    found = _flowed(parts, width)
    if host.problem:
        found.append([Cell(fitted(host.problem, width, right=False), WARN)])
    return found


def _node(host: HostSample, node: NodeSample, state: TopState) -> Cell:
    trail = sparkline(
        state.trails.of(host.host, "cpu", str(node.id)), _TRAIL, 100.0, ascii=state.ascii
    )
    return Cell(
        text(
            "watch.node", node=node.id, use=number(node.cpu_percent, "{:.0f}%"), trail=trail.strip()
        )
    )


def _sum(values: Sequence[int | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    return str(sum(known))


def _distinct(disks: Iterable[DiskSample]) -> list[DiskSample]:
    """Return one disk of those that are the same file system by their sizes."""
    found: dict[tuple[int, int], DiskSample] = {}
    for disk in disks:
        found.setdefault((disk.total_bytes, disk.free_bytes), disk)
    return list(found.values())


def _disk(disk: DiskSample) -> Cell:
    used = 1 - disk.free_bytes / disk.total_bytes if disk.total_bytes else 0.0
    words = text(
        f"watch.disk_{disk.use}", free=f"{disk.free_bytes / 2**30:.0f}", used=f"{used * 100:.0f}"
    )
    return Cell(words, BAD if used >= _FULL_DISK else PLAIN)


def _flowed(parts: Sequence[Cell], width: int) -> list[Line]:
    """Return parts in as many lines as they need, with a gap between them."""
    found: list[Line] = []
    used = 0
    for part in parts:
        size = cell_len(part.text)
        if found and used + 3 + size <= width:
            found[-1] += [Cell("   "), part]
            used += 3 + size
        else:
            found.append([part])
            used = size
    return found


# --- tables -------------------------------------------------------------------------------------


def _sections(state: TopState, width: int, height: int) -> list[Line]:
    room = height - len(_machine_lines(state, width))
    parts: dict[str, list[Line]] = {}
    if len(state.hosts) > 1:
        parts["hosts"] = _table(HOSTS, [(host, host) for host in state.hosts], state, width)
    cards = _table(CARDS, state.cards(), state, width)
    parts["cards"] = cards or _nothing(state, "cards")
    services = state.services()
    columns = service_columns(service for _, service in services)
    table = _table(columns, services, state, width)
    parts["services"] = table or _nothing(state, "services")
    if services:
        state.chosen()
        chosen = parts["services"][state.selected + 1]
        parts["services"][state.selected + 1] = [Cell(cell.text, CHOSEN) for cell in chosen]
    if state.section != "all":
        return _scrolled(state, parts[state.section], room)
    # a free line between two sections
    gaps = len(parts) - 1
    sizes = shares([len(part) for part in parts.values()], room - gaps)
    found: list[Line] = []
    first = {"services": state.selected}
    for (name, part), size in zip(parts.items(), sizes, strict=True):
        found += [[Cell("")], *_cut(part, size, first.get(name, 0))]
    return found[1:]


def _nothing(state: TopState, section: str) -> list[Line]:
    """Return the only line of a section without rows."""
    if state.filter:
        return [[Cell(text(f"watch.no_{section}_match", filter=state.filter), DIM)]]
    return [[Cell(text(f"watch.no_{section}"), DIM)]]


def shares(needs: Sequence[int], room: int) -> list[int]:
    """Return the lines of each section: what it needs, or a fair part of the room."""
    given = [0] * len(needs)
    while room > 0 and given != list(needs):
        for at, need in enumerate(needs):
            if given[at] < need and room > 0:
                given[at] += 1
                room -= 1
    return given


def _cut(part: list[Line], size: int, selected: int) -> list[Line]:
    """Return a table in this many lines, with the number of rows that are left out."""
    if len(part) <= size:
        return part
    if size < 3:
        return part[:size]
    rows = size - 2
    first = max(0, min(selected - rows + 1, len(part) - 1 - rows))
    left = len(part) - 1 - rows
    return [
        part[0],
        *part[1 + first : 1 + first + rows],
        [Cell(text("watch.more", count=left), DIM)],
    ]


def _scrolled(state: TopState, part: list[Line], room: int) -> list[Line]:
    rows = max(1, room - 1)
    last = max(0, len(part) - 1 - rows)
    if state.section == "services":
        first = max(0, min(state.selected - rows + 1, last))
    else:
        state.scroll = min(state.scroll, last)
        first = state.scroll
    return [part[0], *part[1 + first : 1 + first + rows]]


def _table(
    columns: Sequence[Column[_T]],
    rows: Sequence[tuple[HostSample, _T]],
    state: TopState,
    width: int,
) -> list[Line]:
    """Return a line of titles and one for each row; nothing without rows."""
    if not rows:
        return []
    chosen = shown_columns(columns, width, several=len(state.hosts) > 1)
    titles = [fitted(title_of(column.title), size, right=column.right) for column, size in chosen]
    found: list[Line] = [[Cell(fitted(" ".join(titles), width, right=False), TITLE)]]
    for host, item in rows:
        line: Line = []
        for column, size in chosen:
            cell = column.cell_of(host, item, state, size)
            shown = fitted(cell.text, size, right=column.right)
            line += [Cell(" "), Cell(shown, cell.style)]
        found.append(_within(line[1:], width))
    return found


def _within(line: Line, width: int) -> Line:
    found: Line = []
    left = width
    for cell in line:
        if left <= 0:
            break
        size = cell_len(cell.text)
        if size > left:
            cell = Cell(fitted(cell.text, left, right=False), cell.style)
        found.append(cell)
        left -= size
    return found


def _overlay(state: TopState, width: int, height: int) -> list[Line]:
    overlay = state.overlay
    assert overlay is not None
    folded: list[str] = []
    for line in overlay.lines:
        # a line that fits stays as it is: its blanks may align it
        folded += [line] if cell_len(line) <= width else wrapped(line, width)
    room = max(1, height - 1)
    last = max(0, len(folded) - room)
    overlay.scroll = min(overlay.scroll, last)
    first = last - overlay.scroll if overlay.at_end else overlay.scroll
    shown: list[Line] = [
        [Cell(fitted(line, width, right=False))] for line in folded[first : first + room]
    ]
    return [[Cell(fitted(overlay.title, width, right=False), TITLE)], *shown]


# --- a pipe -------------------------------------------------------------------------------------

# no row of a sample is left out
_ALL_ROWS = 10_000


def printed_lines(hosts: Sequence[HostSample], width: int) -> list[str]:
    """Return one sample as text: the answer, and the tables of the live view."""
    state = TopState()
    state.update([*hosts])
    page = [_title(state, width), *_machine_lines(state, width)]
    page += _sections(state, width, _ALL_ROWS)
    shown = ["".join(cell.text for cell in line).rstrip() for line in page]
    return [*map(printable, wrapped(_answer(state), width)), *shown]


def _answer(state: TopState) -> str:
    found = []
    if len(state.hosts) > 1:
        silent = sum(not host.answers for host in state.hosts)
        found.append(text("watch.answer_hosts", n=len(state.hosts), silent=silent))
    cards = [card for _, card in state.cards()]
    free = sum(card.present and card.busy is False for card in cards)
    warmest = max((card.temperature_c or 0 for card in cards), default=0)
    if warmest:
        found.append(text("watch.answer_warm", n=len(cards), free=free, warmest=f"{warmest:.0f}"))
    elif cards:
        found.append(text("watch.answer_cards", n=len(cards), free=free))
    else:
        found.append(text("watch.no_cards"))
    services = [service for _, service in state.services()]
    ready = sum(service.phase == "ready" for service in services)
    if services:
        found.append(text("watch.answer_services", n=len(services), ready=ready))
    return sentences(*found)


def painted(line: Line, codes: Callable[[str], str]) -> str:
    """Return a line with the escape sequences of its styles (``codes``: "" for none)."""
    parts = []
    for cell in line:
        code = codes(cell.style)
        parts.append(f"\x1b[{code}m{cell.text}\x1b[0m" if code and cell.text else cell.text)
    return "".join(parts)
