"""The condition of the cards, from recorded output and from output that says less."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gaudi_launch.core.host.files import Imagined
from gaudi_launch.core.host.hardware import Card, Host
from gaudi_launch.core.host.health import CardHealth, read_health
from gaudi_launch.core.host.hl_smi import HlSmiOutput
from tests.support.machines import sample

ONE_CARD = Host(cards=(Card(index=0, module=0, bus="0000:43:00.0"),))
RECORDED = sample("gaudi2-L-1card-1.12.1")


def answering(texts: dict[str, str]) -> tuple[list[str], object]:
    asked: list[str] = []

    def ask(arguments: Sequence[str]) -> HlSmiOutput:
        asked.append(" ".join(arguments))
        text = texts.get(arguments[0])
        return HlSmiOutput(problem="exit code 1") if text is None else HlSmiOutput(text)

    return asked, ask


def read(texts: dict[str, str], files: dict[str, str] | None = None) -> CardHealth:
    _, ask = answering(texts)
    return read_health(ONE_CARD, ask, Imagined(files or {}, {}))[0]  # type: ignore[arg-type]


def test_a_short_list_is_asked_for_the_long_one() -> None:
    short = "[0] AIP (accel0) 0000:43:00.0\n        Module ID : 0\n"
    asked, ask = answering({"-L": short, "-q": RECORDED})
    assert read_health(ONE_CARD, ask, None)[0].rows_pending is False  # type: ignore[arg-type]
    assert asked[:2] == ["-L", "-q"]


@pytest.mark.parametrize("cell", ["N/A", "", "Not Supported"])
def test_a_counter_that_is_not_told_is_not_zero(cell: str) -> None:
    csv = f"index, stats.violation.thermal, stats.violation.power\n0, {cell}, 3\n"
    assert read({"-Q": csv}).violations == {"power": 3}


@pytest.mark.parametrize("text", ["0", "105", "x", ""])
def test_a_limit_below_one_degree_is_none(text: str) -> None:
    hwmon = {"sys/bus/pci/devices/0000:43:00.0/hwmon/hwmon4/temp1_crit": text}
    assert read({}, hwmon).limit_c is None
