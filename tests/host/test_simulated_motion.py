"""A simulated machine as time passes: values move, faults come and go."""

from __future__ import annotations

from typing import Any

from gaudi_launch.host import hl_smi_text
from gaudi_launch.host.simulated import build
from gaudi_launch.host.simulated_motion import moved

# seconds around the beginning and the end of a fault
TURNS = (0, 19, 20, 319, 320, 619, 620)


def card(name: str, module: int, seconds: float) -> dict[str, Any] | None:
    machine = moved(build(name), seconds)
    assert machine.hl_smi is not None
    return next((each for each in machine.hl_smi["cards"] if each["module_id"] == module), None)


def value(name: str, module: int, seconds: float, field: str) -> Any:
    found = card(name, module, seconds)
    assert found is not None
    return found[field]


def test_the_utilisation_of_a_busy_card_moves() -> None:
    shares = {value("hls2+busy=1", 1, second, "utilization.aip") for second in range(30)}
    assert len(shares) > 10 and min(shares) >= 50 and max(shares) <= 100
    assert {value("hls2+busy=1", 2, second, "utilization.aip") for second in range(30)} == {0}


def test_the_readings_of_a_busy_card_at_one_second() -> None:
    readings = ("utilization.aip", "power.draw", "temperature.aip")
    seen = [
        [value(f"hls2+busy={module}", module, second, name) for name in readings]
        for module, second in ((1, 0), (1, 10), (3, 10))
    ]
    assert seen == [[89, 499, 67], [87, 490, 66], [59, 362, 58]]


def test_the_readings_of_a_hot_card_over_a_minute() -> None:
    readings = ("temperature.aip", "stats.violation.thermal", "slowdowns")
    seen = [
        [value("hls2+hot=2", 2, second, name) for name in readings] for second in (0, 10, 20, 80)
    ]
    assert seen == [
        [58, 1250, []],
        [81, 1250, []],
        [104, 1250, ["thermal"]],
        [104, 1650, ["thermal"]],
    ]


def test_a_hot_card_throttles_for_two_thirds_of_each_minute() -> None:
    counts = [
        value("hls2+hot=2", 2, second, "stats.violation.thermal") for second in range(0, 120, 5)
    ]
    assert counts == sorted(counts)
    assert value("hls2+hot=2", 2, 10, "slowdowns") == []
    assert value("hls2+hot=2", 2, 50, "slowdowns") == ["thermal"]
    assert value("hls2+hot=2", 2, 50, "temperature.aip") == 104


def test_a_link_goes_down_and_comes_back() -> None:
    states = [value("hls2+link-down=4", 4, second, "ports")["0"] for second in TURNS]
    assert states == ["UP", "UP", "DOWN", "DOWN", "UP", "UP", "DOWN"]


def test_a_lost_card_is_gone_for_five_of_ten_minutes() -> None:
    assert [card("hls2+lost=5", 5, second) is None for second in TURNS] == [
        *(False, False),
        *(True, True),
        *(False, False),
        True,
    ]
    rows = hl_smi_text.parse_table(moved(build("hls2+lost=5"), 40).ask([]).text).rows
    assert len(rows) == 7


def test_a_machine_without_hl_smi_still_has_cpu_times() -> None:
    machine = moved(build("hls2+no-hl-smi"), 10)
    assert machine.hl_smi is None
    lines = machine.files["proc/stat"].splitlines()
    assert (len(lines), lines[0]) == (160, "cpu0 300 0 0 700 0 0 0 0 0 0")
    # the first CPU of node 1
    assert lines[80] == "cpu40 100 0 0 900 0 0 0 0 0 0"
