"""Choose the cards of a deployment, and the CPUs and memory node for them.

Pure: the same Host gives the same answer.

Rules and where they are from:

- Sets of 2 and 4 to prefer: docs "Multiple Workloads on a Single Docker", also
  HabanaAI/Model-References@06bfc5ea:PyTorch/examples/multi_tenants/README.md.
- Only within a group on PCIe boxes: HabanaAI/HCL@54fed3a server types, Gaudi2E 1.23.0 manual.
- CPUs of a card are its share of its NUMA node: HabanaAI/vllm-fork@aice/v1.21.0:scripts/utils.sh,
which takes
  the first CPU range only; here complete cores are shared out, with their SMT siblings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from math import comb

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.host.cpus import format_cpus
from gaudi_launch.core.host.hardware import Card, Host
from gaudi_launch.core.planning.parse import number, parse_modules, refuse_doubles

# the numbers that vendors and engines test; any other number runs with a warning
USUAL_COUNTS = (1, 2, 4, 8)
# one process is bound to at most this many cards of a machine
# (HabanaAI/gaudi-pytorch-bridge@5a56187)
LARGEST_JOB = 8
_MOST_SETS = 20_000
_CHOICES = (
    "placement.fewest",
    "placement.balanced",
    "placement.balanced_most",
    "placement.balanced_fewest",
)


@dataclass(frozen=True)
class Placement:
    """The chosen cards and the CPUs their processes run on.

    ``cpus`` ascending CPU numbers (empty: no binding); ``numa_nodes`` of the cards, ascending;
    ``memory_node`` is the preferred (not bound) node, None when the cards span nodes; ``reasons``
    explain the choice. ``parts``: the pipeline stages of all copies, with equal numbers of cards.
    """

    modules: tuple[int, ...]
    cpus: tuple[int, ...] = ()
    numa_nodes: tuple[int, ...] = ()
    memory_node: int | None = None
    cpus_by_module: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    reasons: tuple[Message, ...] = ()
    warnings: tuple[Message, ...] = ()
    parts: int = 1

    @property
    def tensor(self) -> int:
        """Return the number of cards that share the tensors of one part."""
        return len(self.modules) // self.parts

    @property
    def choice(self) -> Message | None:
        """Return the reason for a number of cards that no option names, if any."""
        return next((reason for reason in self.reasons if reason.id in _CHOICES), None)


def documented_sets(count: int, modules: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    """Return the recommended sets of 2, 4 or 8 among these modules.

    They are 0,1 2,3 ..., 0-3 4-7 ..., and complete groups of eight.
    """
    known = set(modules)
    if count not in (2, 4, 8):
        return ()
    starts = range(0, max(known, default=-1) + 1, count)
    sets = (tuple(range(start, start + count)) for start in starts)
    return tuple(s for s in sets if known.issuperset(s))


def parse_visible(text: str | None) -> tuple[int, ...] | None:
    """Return HABANA_VISIBLE_MODULES as modules.

    Return None where it is unset, empty or ``all``. Raises LaunchError (USAGE).
    """
    if text is None or text.strip().lower() in ("", "all"):
        return None
    return parse_modules(text, "HABANA_VISIBLE_MODULES")


def check_named(modules: tuple[int, ...], wanted: int, option: str = "-n") -> None:
    """Raise LaunchError (USAGE) unless -m names this number of modules, each once.

    ``option`` is the one by which the user gave the number.
    """
    refuse_doubles(modules, "-m")
    if len(modules) != wanted:
        raise LaunchError(
            "placement.count_differs",
            ExitCode.USAGE,
            cards=wanted,
            count=len(modules),
            modules=_list(modules),
            option=option,
        )


def choose(
    host: Host,
    cards: int | None = None,
    modules: tuple[int, ...] | None = None,
    visible: tuple[int, ...] | None = None,
    option: str = "-n",
) -> Placement:
    """Return the cards for this deployment and the CPUs of their processes.

    ``cards`` is the number (default: that of ``modules``, else 1), ``modules`` the user's choice,
    whose order is kept, ``visible`` the modules that the environment allows, ``option`` the one by
    which the user gave the number. Raises LaunchError: USAGE for inconsistent options, MACHINE when
    the machine lacks these cards or they are not free.
    """
    wanted = len(modules or ()) or 1
    if cards is not None:
        wanted = cards
    wanted = number("-n", str(wanted))
    if modules is not None:
        check_named(modules, wanted, option)
    _check_host(host)
    reasons: list[Message] = []
    warnings: list[Message] = []
    if modules is not None:
        chosen = _check(host, modules)
        reasons.append(message("placement.as_asked", modules=_list(chosen)))
        outside = [module for module in chosen if visible is not None and module not in visible]
        if outside:
            shown = {"modules": _list(outside), "visible": _list(visible or ())}
            warnings.append(message("placement.outside_visible", **shown))
    else:
        chosen = _best(host, wanted, visible, option, reasons)
    _warn(host, chosen, warnings, asked=modules is not None)
    nodes, shares = _nodes_of(host, chosen), share_cpus(host)
    by_module = {module: shares[module] for module in chosen if shares.get(module)}
    cpus = tuple(sorted({cpu for share in by_module.values() for cpu in share}))
    if cpus:
        reasons.append(message("placement.cpus", cpus=format_cpus(cpus)))
    else:
        warnings.append(message("placement.no_cpus"))
    return Placement(
        modules=chosen,
        cpus=cpus,
        numa_nodes=_known_nodes(host, chosen),
        memory_node=next(iter(nodes)) if len(nodes) == 1 else None,
        cpus_by_module=by_module,
        reasons=tuple(reasons),
        warnings=tuple(warnings),
    )


def _check_host(host: Host) -> None:
    """Check that the machine has cards with module IDs. Raises LaunchError (MACHINE)."""
    why = "; ".join(f"{name}: {text}" for name, text in host.notes.items()) or "-"
    if not host.cards and host.origin == "live":
        raise LaunchError("placement.no_cards", ExitCode.MACHINE, why=why)
    if not host.cards:
        raise LaunchError("placement.no_cards_of", ExitCode.MACHINE, machine=host.origin, why=why)
    if not host.modules:
        raise LaunchError("placement.no_modules", ExitCode.MACHINE, cards=len(host.cards), why=why)


def _check(host: Host, modules: tuple[int, ...]) -> tuple[int, ...]:
    """Return the user's modules, if they exist and are free."""
    unknown = [module for module in modules if module not in host.modules]
    if unknown:
        raise LaunchError(
            "placement.unknown_modules",
            ExitCode.MACHINE,
            modules=_list(unknown),
            known=_list(host.modules),
        )
    busy = [module for module in modules if module not in host.free_modules]
    if busy:
        raise LaunchError(
            "placement.busy_modules",
            ExitCode.MACHINE,
            modules=_list(busy),
            free=_list(host.free_modules),
            holders=holders(host, busy),
        )
    return modules


def _best(
    host: Host, wanted: int, visible: tuple[int, ...] | None, option: str, reasons: list[Message]
) -> tuple[int, ...]:
    """Return the best free set of this many modules."""
    allowed = host.modules
    if visible is not None:
        allowed = tuple(m for m in host.modules if m in visible)
        reasons.append(message("placement.visible", visible=_list(visible)))
    free = tuple(module for module in host.free_modules if module in allowed)
    if wanted > len(free):
        raise _too_few(host, wanted, allowed, free, visible, option)
    candidates = _candidates(host, free, wanted)
    if not candidates:
        raise LaunchError(
            "placement.crosses_group",
            ExitCode.MACHINE,
            cards=wanted,
            free=_list(free),
            groups="; ".join(_list(group) for group in host.groups),
            holders=holders(host, [m for m in allowed if m not in free]),
        )
    chosen = min(candidates, key=lambda candidate: _rank(host, candidate, free))
    if len(chosen) == len(free):
        reasons.append(message("placement.all_free", modules=_list(chosen)))
    else:
        reasons += _why_best(host, chosen, free)
    return chosen


def _why_best(host: Host, chosen: tuple[int, ...], free: tuple[int, ...]) -> list[Message]:
    """Return what is good about these cards among the free ones."""
    reasons = [message("placement.chosen", modules=_list(chosen), free=_list(free))]
    several = len(chosen) > 1
    if several and _groups_of(host, chosen) <= 1 and len(_nodes_of(host, chosen)) == 1:
        reasons.append(message("placement.together"))
    # of one card, no set is documented
    if chosen in documented_sets(len(chosen), host.modules):
        reasons.append(message("placement.documented"))
    left = [module for module in free if module not in chosen]
    complete = [*documented_sets(4, left), *documented_sets(2, left)]
    if complete:
        reasons.append(message("placement.leaves", sets="; ".join(map(_list, complete[:4]))))
    return reasons


def _too_few(
    host: Host,
    wanted: int,
    allowed: tuple[int, ...],
    free: tuple[int, ...],
    visible: tuple[int, ...] | None,
    option: str,
) -> LaunchError:
    if wanted > len(host.modules):
        return LaunchError(
            "placement.too_many",
            ExitCode.MACHINE,
            cards=wanted,
            count=len(host.modules),
            known=_list(host.modules),
            option=option,
        )
    used = [module for module in allowed if module not in free]
    if visible is not None and wanted > len(allowed):
        return LaunchError(
            "placement.too_few_visible",
            ExitCode.MACHINE,
            cards=wanted,
            visible=_list(visible),
            known=_list(host.modules),
            option=option,
        )
    if not free:
        return LaunchError("placement.none_free", ExitCode.MACHINE, holders=holders(host, used))
    return LaunchError(
        "placement.too_few",
        ExitCode.MACHINE,
        cards=wanted,
        count=len(free),
        free=_list(free),
        holders=holders(host, used),
    )


def _candidates(host: Host, free: tuple[int, ...], wanted: int) -> list[tuple[int, ...]]:
    """Return sets to compare. On boxes of several groups, 2 or 4 cards of one group."""
    pools = [free]
    if len(host.groups) > 1 and wanted in (2, 4):
        pools = [tuple(module for module in group if module in free) for group in host.groups]
    found: list[tuple[int, ...]] = []
    for pool in pools:
        if comb(len(pool), wanted) <= _MOST_SETS:
            found.extend(combinations(pool, wanted))
        else:
            # a machine with too many cards to compare all sets: neighbours only
            found.extend(pool[start : start + wanted] for start in range(len(pool) - wanted + 1))
    return found


def _rank(host: Host, candidate: tuple[int, ...], free: tuple[int, ...]) -> tuple[object, ...]:
    """Return the rank of a set; lower is better.

    The order: one group, one NUMA node, a documented set, most complete sets left, lowest modules.
    """
    left = [module for module in free if module not in candidate]
    documented = candidate in documented_sets(len(candidate), host.modules)
    return (
        _groups_of(host, candidate),
        len(_nodes_of(host, candidate)),
        not documented,
        -len(documented_sets(8, left)),
        -len(documented_sets(4, left)),
        -len(documented_sets(2, left)),
        candidate,
    )


def _groups_of(host: Host, modules: Iterable[int]) -> int:
    chosen = set(modules)
    return sum(1 for group in host.groups if chosen.intersection(group))


def spans_groups(host: Host, modules: Iterable[int]) -> bool:
    """Return True if these cards are in several link groups.

    HCCL then needs host network cards between them.
    """
    return _groups_of(host, modules) > 1


def _nodes_of(host: Host, modules: Iterable[int]) -> set[int | None]:
    """Return the NUMA nodes of these cards; None is an unknown one."""
    return {card.numa_node for module in modules if (card := host.card(module))}


def _known_nodes(host: Host, modules: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(node for node in _nodes_of(host, modules) if node is not None))


def _warn(host: Host, chosen: tuple[int, ...], warnings: list[Message], *, asked: bool) -> None:
    count = len(chosen)
    if count not in USUAL_COUNTS:
        warnings.append(message("placement.unusual_count", cards=count))
    if count > LARGEST_JOB:
        warnings.append(message("placement.large", cards=count, most=LARGEST_JOB))
    avoidable = asked and count in (2, 4)
    sets = documented_sets(count, host.modules)
    if _groups_of(host, chosen) > 1:
        id = "placement.crossing"
        if avoidable:
            id = "placement.crossing_asked"
        groups = "; ".join(map(_list, host.groups))
        warnings.append(message(id, modules=_list(chosen), groups=groups))
    elif avoidable and tuple(sorted(chosen)) not in sets:
        shown = "; ".join(map(_list, sets))
        warnings.append(message("placement.not_documented", modules=_list(chosen), sets=shown))
    nodes = _known_nodes(host, chosen)
    if len(nodes) > 1 and count < len(host.modules):
        warnings.append(message("placement.nodes", modules=_list(chosen), nodes=_list(nodes)))
    unknown = [m for m in chosen if (card := host.card(m)) and card.busy is None]
    if unknown:
        warnings.append(message("placement.not_sure", modules=_list(unknown)))


def share_cpus(host: Host) -> dict[int, tuple[int, ...]]:
    """Return the CPUs of each module: its share of its NUMA node's complete cores.

    All cards count, used or not, so that the launches of two users on one node never overlap. Cards
    whose CPU lists overlap share one pool. If there are fewer cores than cards, several cards share
    a core.
    """
    shares: dict[int, tuple[int, ...]] = {}
    for members, pool in _pools(host):
        siblings = {cpu: host.cpu_siblings.get(cpu, ()) for cpu in pool}
        cores = sorted({tuple(c for c in siblings[cpu] if c in pool) or (cpu,) for cpu in pool})
        for place, module in enumerate(members):
            first = place * len(cores) // len(members)
            last = (place + 1) * len(cores) // len(members)
            mine = cores[first:last] or cores[first : first + 1]
            shares[module] = tuple(sorted(cpu for core in mine for cpu in core))
    return shares


def _pools(host: Host) -> list[tuple[list[int], set[int]]]:
    """Return the modules that share CPUs, with these CPUs."""
    pools: list[tuple[list[int], set[int]]] = []
    by_node: dict[int | None, tuple[int, ...]] = {node.id: node.cpus for node in host.numa_nodes}
    for module in host.modules:
        card = host.card(module)
        assert card is not None
        members, cpus = [module], set(card.cpus or by_node.get(card.numa_node, ()))
        # a node's list may contain CPUs that are switched off
        cpus = cpus.intersection(host.cpu_siblings) or cpus
        if not cpus:
            continue
        apart = []
        for other in pools:
            if other[1] & cpus:
                members, cpus = other[0] + members, other[1] | cpus
            else:
                apart.append(other)
        pools = [*apart, (sorted(members), cpus)]
    return pools


def holders(host: Host, modules: Iterable[int]) -> str:
    """Return the users of these cards as text.

    Example: ``0,3: vllm (pid 12, 15, ann); 5: memory``."""
    used: dict[tuple[str, str | None], tuple[set[int], set[int]]] = {}
    for module in modules:
        card = host.card(module)
        if card is None:
            continue
        if not card.holders:
            used.setdefault((_sign(card), None), (set(), set()))[0].add(module)
        for holder in card.holders[:3]:
            by = used.setdefault((holder.command or "?", holder.user or ""), (set(), set()))
            by[0].add(module)
            by[1].add(holder.pid)
    return "; ".join(_shown(*who, *by) for who, by in used.items()) or "-"


def _shown(command: str, user: str | None, modules: set[int], pids: set[int]) -> str:
    shown = f"{_list(sorted(modules))}: {command}"
    if not pids:
        return shown
    known = ", ".join(filter(None, [*map(str, sorted(pids)), user]))
    return f"{shown} (pid {known})"


def _sign(card: Card) -> str:
    """Return why a card without known users counts as busy."""
    if card.busy_because == "memory" and card.memory_used_mib is not None:
        return f"memory {card.memory_used_mib} MiB"
    if card.busy_because == "status" and card.status:
        return f"status {card.status}"
    return card.busy_because or "?"


def _list(modules: Iterable[int]) -> str:
    return ",".join(map(str, modules)) or "-"
