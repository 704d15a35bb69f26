"""Who uses a card: the signs, the strongest first, and what their absence shows."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.host.accelerators import accelerators, memory_margin_mib
from gaudi_launch.host.files import Imagined
from gaudi_launch.host.hardware import Holder
from gaudi_launch.host.hl_smi_text import Process
from gaudi_launch.host.merge import CardFacts, Cards
from gaudi_launch.host.occupancy import OpenFiles, judge, read_open_files

GAUDI2 = accelerators()["gaudi2"]
IDLE = GAUDI2.memory_idle_mib
NOBODY = OpenFiles(processes=9)
VLLM = Holder(7, "python3 -m vllm", "ana")


def judged(
    *,
    processes: tuple[Process, ...] = (),
    opened: OpenFiles = NOBODY,
    reserved: dict[int, Holder | None] | None = None,
    in_container: bool | None = False,
    product: Any = GAUDI2,
    other_has_node: bool = False,
    **readings: Any,
) -> tuple[Any, Any, Any]:
    """Return ``busy``, ``busy_because`` and ``holders`` of card 3 in slot 5."""
    card, other = CardFacts(), CardFacts()
    for name, value in {"index": 3, "module": 5, **readings}.items():
        card.put(name, value, f"source of {name}")
    if other_has_node:
        other.put("device_node", "/dev/accel/accel0", "device node")
    judge(
        Cards([card, other]),
        processes,
        opened,
        reserved or {},
        {0: product, 1: product},
        in_container,
    )
    return card.get("busy"), card.get("busy_because"), card.values.get("holders", ())


def test_a_process_of_hl_smis_table_makes_a_card_busy() -> None:
    table = (Process(3, 8, "C", "python3"), Process(4, 9, "C", "other"))
    assert judged(processes=table) == (True, "process-table", (Holder(8, "python3"),))
    # the system's own names are better than hl-smi's
    opened = OpenFiles({3: [Holder(8, "python3 -m vllm", "ana"), VLLM]}, 9)
    assert judged(processes=table, opened=opened) == (
        True,
        "process-table",
        (VLLM, Holder(8, "python3 -m vllm", "ana")),
    )


def test_a_process_with_an_open_node_makes_a_card_busy() -> None:
    assert judged(opened=OpenFiles({3: [VLLM]}, 9)) == (True, "open-file", (VLLM,))
    assert judged(opened=OpenFiles({4: [VLLM]}, 9)) == (False, None, ())


@pytest.mark.parametrize(
    ("used", "busy"),
    [(IDLE, False), (IDLE + memory_margin_mib(), False), (IDLE + memory_margin_mib() + 1, True)],
)
def test_memory_above_the_idle_reading_makes_a_card_busy(used: int, busy: bool) -> None:
    assert judged(memory_used_mib=used)[:2] == (busy, "memory" if busy else None)


def test_of_an_unknown_card_the_largest_idle_reading_counts() -> None:
    most = max(each.memory_idle_mib for each in accelerators().values()) + memory_margin_mib()
    assert judged(product=None, memory_used_mib=most)[0] is False
    assert judged(product=None, memory_used_mib=most + 1)[0] is True


@pytest.mark.parametrize(
    ("readings", "busy"),
    [
        ({"status": "Operational"}, False),
        ({"status": "in device creation"}, True),
        ({"temperature_c": 0}, True),
        ({"temperature_c": 1}, False),
    ],
)
def test_a_card_that_does_not_work_is_not_free(readings: dict[str, Any], busy: bool) -> None:
    assert judged(**readings)[:2] == (busy, "status" if busy else None)


def test_a_card_without_a_node_in_a_container_is_of_another() -> None:
    assert judged(in_container=True, other_has_node=True)[:2] == (True, "device-node")
    node: dict[str, Any] = {"device_node": "/dev/accel/accel3", "memory_used_mib": IDLE}
    assert judged(in_container=True, other_has_node=True, **node)[:2] == (False, None)
    # no card has one: /dev shows nothing
    assert judged(in_container=True, memory_used_mib=IDLE)[:2] == (False, None)
    assert judged(in_container=False, other_has_node=True)[:2] == (False, None)


def test_a_lock_of_another_launch_reserves_the_slot_and_not_the_index() -> None:
    assert judged(reserved={5: VLLM}) == (True, "reserved", (VLLM,))
    assert judged(reserved={5: None}) == (True, "reserved", ())
    assert judged(reserved={3: VLLM}) == (False, None, ())
    assert judged(reserved={5: VLLM}, temperature_c=0)[1] == "status"


@pytest.mark.parametrize(
    ("opened", "in_container", "readings", "busy"),
    [
        (NOBODY, False, {}, False),
        (NOBODY, None, {}, False),
        # only the container's own processes are seen
        (NOBODY, True, {}, None),
        (OpenFiles(processes=9, hidden=1), False, {}, None),
        (OpenFiles(), False, {}, None),
        (OpenFiles(), True, {"memory_used_mib": IDLE}, False),
    ],
)
def test_a_card_is_free_only_where_a_user_would_be_seen(
    opened: OpenFiles, in_container: bool | None, readings: dict[str, Any], busy: bool | None
) -> None:
    assert judged(opened=opened, in_container=in_container, **readings)[:2] == (busy, None)


def test_the_processes_that_have_a_node_open_are_read_from_proc() -> None:
    class OneHidden(Imagined):
        def hidden(self, path: str) -> bool:
            return path == "proc/30/fd"

    files = OneHidden(
        {
            "etc/passwd": "root:x:0:0\nodd\nana:x:1000:1000\n",
            "proc/9/cmdline": "python3\0-m\0vllm\x07\0",
            "proc/9/status": "Name:\tpython3\nUid:\t1000\t0\t0\t0\n",
            "proc/10/cmdline": "",
            "proc/10/comm": "worker\n",
            "proc/10/status": "Uid:\t1001\t1001\n",
            "proc/11/cmdline": "/usr/bin/hl-smi\0-L\0",
            "proc/12/cmdline": "node_exporter\0",
            "proc/13/cmdline": "python3\0",
            "proc/14/cmdline": "sh\0",
            "proc/30/cmdline": "secret\0",
            "proc/self/cmdline": "x\0",
        },
        {
            "proc/9/fd/3": "/dev/accel/accel2",
            "proc/9/fd/4": "/dev/accel/accel11",
            "proc/9/fd/5": "/dev/accel/accel2",
            "proc/10/fd/0": "/dev/hl2",
            # a monitor has the control node open, and the card's node only to use it
            "proc/11/fd/3": "/dev/accel/accel_controlD2",
            "proc/12/fd/3": "/dev/accel/accel3",
            "proc/13/fd/3": "/dev/hl_controlD4",
            "proc/14/fd/3": "/dev/accel/accel2x",
            "proc/self/fd/3": "/dev/accel/accel5",
        },
    )
    ana = Holder(9, "python3 -m vllm?", "ana")
    assert read_open_files(files) == OpenFiles(
        holders={
            2: [ana, Holder(10, "worker", "1001")],
            11: [ana],
            3: [Holder(12, "node_exporter", "")],
            4: [Holder(13, "python3", "")],
        },
        processes=7,
        hidden=1,
    )
