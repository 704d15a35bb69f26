"""Memory: huge pages, limits of a process, shared memory, room for the weights."""

from __future__ import annotations

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.doctor.cpu import G2E
from gaudi_launch.core.doctor.findings import (
    CARD_PAGES,
    SERVER_PAGES,
    DoctorFacts,
    Remedy,
    Shown,
    Verdict,
    Wants,
    check,
)

_NOFILE = 65535
# assumed: vLLM's message queues between processes take a few hundred MiB; docker's default of 64
# MiB is too small
_SHM_MIB = 1024
# the cards of a node with less than this fraction of its even share use pages of the other socket
_NODE_SHARE = 0.25


def _more_pages(pages: int) -> Remedy:
    return Remedy(
        message("doctor.memory.hugepages.remedy", pages=pages),
        commands=(f"sudo sysctl -w vm.nr_hugepages={pages}",),
        persist=(
            (
                f"echo 'vm.nr_hugepages = {pages}' | sudo tee "
                "/etc/sysctl.d/90-gaudi-launch-hugepages.conf"
            ),
        ),
        root=True,
        fix="hugepages",
    )


@check("memory.hugepages", f"{G2E} 1.1.2; HabanaAI/vllm-fork scripts/README.md", ("gaudi", "host"))
def _hugepages(facts: DoctorFacts) -> Verdict:
    config, wanted = facts.config, facts.wants.pages
    if config.hugepages_total is None:
        return Verdict.unreadable("/proc/meminfo", str(wanted))
    size = config.hugepage_kib or 2048
    pages = config.hugepages_total * size // 2048
    shown = f"{config.hugepages_total:,} x {size // 1024} MiB"
    expected = _expected(facts.wants)
    if pages >= wanted:
        return Verdict.ok(shown, expected)
    if size != 2048:
        # nr_hugepages counts pages of the default size, so this number would mean something else
        # here
        return Verdict.warn("doctor.memory.hugepages.warn", shown, expected)
    if pages == 0:
        return Verdict.fail("doctor.memory.hugepages.fail", shown, expected, _more_pages(wanted))
    return Verdict.warn("doctor.memory.hugepages.warn", shown, expected, _more_pages(wanted))


def _expected(wants: Wants) -> Shown:
    """Return the expected pages, marked where they are a share of the guides'.

    The share is assumed.
    """
    if wants.hugepages is not None or wants.pages == SERVER_PAGES:
        return f"{wants.pages:,} x 2 MiB"
    return message(
        "doctor.memory.hugepages.share",
        pages=wants.pages,
        server=SERVER_PAGES,
        cards=wants.cards_in_use,
    )


@check("memory.hugepages_free", "assumed: an even share of 15000 pages a card", ("gaudi", "host"))
def _hugepages_free(facts: DoctorFacts) -> Verdict:
    free, total = facts.config.hugepages_free, facts.config.hugepages_total
    if free is None or total is None:
        return Verdict.unreadable("/proc/meminfo")
    if total == 0:
        return Verdict.skip("doctor.memory.hugepages_free.skip")
    shown = f"{free:,} / {total:,}"
    # before a choice of cards: the share of one card
    needed = facts.wants.pages if facts.wants.cards_in_use else CARD_PAGES
    expected = message("doctor.memory.hugepages_free.expected", pages=needed)
    if free * (facts.config.hugepage_kib or 2048) // 2048 >= needed:
        return Verdict.ok(shown, expected)
    remedy = Remedy(message("doctor.memory.hugepages_free.remedy"))
    return Verdict.warn("doctor.memory.hugepages_free.warn", shown, expected, remedy)


@check("memory.hugepages_nodes", "assumed: far pages cross the socket", ("gaudi", "host"))
def _hugepages_nodes(facts: DoctorFacts) -> Verdict:
    nodes = [node for node in facts.host.numa_nodes if node.hugepages_total is not None]
    total = sum(node.hugepages_total or 0 for node in nodes)
    if not nodes:
        return Verdict.unreadable("/sys/devices/system/node/node*/hugepages")
    shown = ", ".join(f"node{node.id}={node.hugepages_total}" for node in nodes)
    even = total // len(nodes)
    with_cards = {card.numa_node for card in facts.host.cards} - {None} or {
        node.id for node in nodes
    }
    poor = [
        node
        for node in nodes
        if node.id in with_cards and (node.hugepages_total or 0) < even * _NODE_SHARE
    ]
    expected = message("doctor.memory.hugepages_nodes.expected", pages=even)
    if not poor:
        return Verdict.ok(shown, expected)
    commands = tuple(
        (
            f"echo {even} | sudo tee "
            f"/sys/devices/system/node/node{node.id}/hugepages/hugepages-2048kB/nr_hugepages"
        )
        for node in nodes
    )
    remedy = Remedy(message("doctor.memory.hugepages_nodes.remedy"), commands=commands, root=True)
    return Verdict.warn("doctor.memory.hugepages_nodes.warn", shown, expected, remedy)


@check(
    "memory.transparent_hugepages", "HabanaAI/vllm-fork@deepseek_r1:pd_xpyd/readme.md", ("host",)
)
def _transparent(facts: DoctorFacts) -> Verdict:
    found = facts.config.transparent_hugepages
    if found is None:
        return Verdict.unreadable("/sys/kernel/mm/transparent_hugepage/enabled")
    # only the guide of one model requires "always"; no source states that another value is slower
    # for the rest
    return Verdict.ok(found, id="doctor.memory.transparent_hugepages.shown")


_LIMITS = (
    "printf '* - nofile 1048576\\n* - memlock unlimited\\nroot - nofile 1048576\\nroot - memlock "
    "unlimited\\n' | sudo tee /etc/security/limits.d/90-gaudi-launch.conf"
)


def _limits(container: bool | None) -> Remedy:
    if container:
        flags = ("--ulimit memlock=-1:-1 --ulimit nofile=65535:65535",)
        return Remedy(message("doctor.memory.limits.container"), commands=flags)
    return Remedy(
        message("doctor.memory.limits.remedy"), persist=(_LIMITS,), root=True, fix="limits"
    )


@check("memory.memlock", "docs: container flags for scale-out")
def _memlock(facts: DoctorFacts) -> Verdict:
    found = facts.config.memlock
    if found is None:
        return Verdict.unreadable("/proc/self/limits", "unlimited")
    if found == "unlimited":
        return Verdict.ok(found, "unlimited")
    if facts.wants.nodes == 1:
        return Verdict.ok(found, id="doctor.memory.memlock.one")
    return Verdict.warn(
        "doctor.memory.memlock.warn", found, "unlimited", _limits(facts.host.in_container)
    )


@check("memory.nofile", "vLLM set_ulimit: 65535")
def _nofile(facts: DoctorFacts) -> Verdict:
    found = facts.config.nofile
    expected = f">= {_NOFILE:,}"
    if found is None:
        return Verdict.unreadable("/proc/self/limits", expected)
    if not found.isdecimal():
        return Verdict.ok(found, expected)
    shown = f"{int(found):,}"
    if int(found) >= _NOFILE:
        return Verdict.ok(shown, expected)
    remedy = _limits(facts.host.in_container)
    return Verdict.warn("doctor.memory.nofile.warn", shown, expected, remedy)


@check("memory.shm", "docs: container flags (--ipc=host); size assumed")
def _shm(facts: DoctorFacts) -> Verdict:
    found = facts.config.shm_mib
    if found is None:
        return Verdict.unreadable("/proc/mounts", f">= {_SHM_MIB:,} MiB")
    if found >= _SHM_MIB:
        return Verdict.ok(f"{found:,} MiB", f">= {_SHM_MIB:,} MiB")
    remedy = Remedy(
        message("doctor.memory.shm.remedy"), commands=("sudo mount -o remount,size=50% /dev/shm",)
    )
    if facts.host.in_container:
        remedy = Remedy(message("doctor.memory.shm.container"), commands=("--ipc=host",))
    return Verdict.warn("doctor.memory.shm.warn", f"{found:,} MiB", f">= {_SHM_MIB:,} MiB", remedy)


@check("memory.available", "HabanaAI/vllm-fork guides: host memory above the model", ("weights",))
def _available(facts: DoctorFacts) -> Verdict:
    assert facts.weights is not None
    free, wanted = facts.host.memory_available_mib, facts.weights.bytes
    if free is None:
        return Verdict.unreadable("/proc/meminfo")
    if wanted is None:
        return Verdict.unknown("doctor.memory.available.unknown", f"{free:,} MiB")
    shown, expected = f"{free:,} MiB", f">= {wanted >> 20:,} MiB"
    if free >= wanted >> 20:
        return Verdict.ok(shown, expected)
    remedy = Remedy(message("doctor.memory.available.remedy"))
    return Verdict.warn("doctor.memory.available.warn", shown, expected, remedy)
