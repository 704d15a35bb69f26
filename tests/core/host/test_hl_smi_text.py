"""Every recorded hl-smi output, parsed and compared whole, and any text at all."""

from __future__ import annotations

import re
from dataclasses import astuple
from operator import attrgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.core.host.hl_smi_text import (
    Affinity,
    parse_csv,
    parse_links,
    parse_log,
    parse_table,
    parse_topo,
)
from tests.support.cli import golden
from tests.support.machines import sample
from tests.support.places import DATA

RECORDED = {path.stem: sample(path.stem) for path in sorted((DATA / "hl-smi").glob("*.txt"))}
TABLES = [name for name in RECORDED if re.search("table|header|error", name)]
# of the rows without a header
NAMES = (
    *("index", "uuid", "name", "driver_version", "memory.total", "memory.used", "memory.free"),
    *("power.draw", "power.max", "temperature.aip", "utilization.aip"),
)

# what the plain table shows of a card
OF_CARD = attrgetter(
    *("index", "product", "bus", "temperature_c", "power_w", "power_cap_w", "memory_used_mib"),
    *("memory_total_mib", "utilization_percent", "uncorrectable_events"),
)


def test_what_is_read_of_each_recorded_output() -> None:
    shown = ""
    for name, text in RECORDED.items():
        found: list[object] = []
        if "-topo-" in name:
            found += map(astuple, parse_topo(text))
        elif "-Q-" in name:
            found += parse_csv(text, NAMES if "noheader" in name else ())
        elif name in TABLES:
            table = parse_table(text)
            found += [(table.version, table.firmware, table.driver)]
            found += [*map(OF_CARD, table.rows), *map(astuple, table.processes)]
        shown += "".join(f"{name} {each}\n" for each in found)
    golden("hl-smi-read.txt", shown)


@pytest.mark.parametrize(
    ("line", "affinity"),
    [
        ("12 0-13,112-125 3", Affinity(12, ((0, 13), (112, 125)), 3)),
        ("0  0-3, 8, 10-11  -1", Affinity(0, ((0, 3), (8, 8), (10, 11)), None)),
        ("0  0-3  N/A", Affinity(0, ((0, 3),), None)),
        ("0  0-3", Affinity(0, ((0, 3),), None)),
        ("0", Affinity(0)),
        ("0 3-1 0", Affinity(0, (), 0)),
    ],
)
def test_topo_line(line: str, affinity: Affinity) -> None:
    assert parse_topo("modID CPU Affinity NUMA Affinity\n" + line) == (affinity,)


def _all(text: str) -> None:
    """Every parser on this text: it must end, and hold only what its types say."""
    table = parse_table(text)
    for row in table.rows:
        assert all(v is None or isinstance(v, str) or 0 <= v < 10**16 for v in OF_CARD(row))
    for cells in parse_csv(text):
        assert all(cells.values())
    for affinity in parse_topo(text):
        assert affinity.cpus == tuple(sorted(affinity.cpus))
    parse_links(text)
    parse_log(text)


PIECES = st.sampled_from(
    [
        *(line for text in RECORDED.values() for line in text.splitlines()),
        "|",
        "||||",
        "| 0 HL-",
        "| 99999 HL-225 |",
        "0 0-99999999 0",
        "|  AIP       PID",
        "[0] AIP (accel0)",
        "index, index",
    ]
)


@settings(deadline=None)
@given(st.text())
def test_any_text(text: str) -> None:
    _all(text)


@settings(deadline=None)
@given(
    st.lists(PIECES | st.text(max_size=40), max_size=30),
    st.sampled_from(["\n", "\r\n", "\r", "\t", "\0"]),
)
def test_any_mixture_of_real_lines(lines: list[str], between: str) -> None:
    _all(between.join(lines))


@settings(deadline=None)
@given(st.sampled_from(TABLES), st.data())
def test_a_damaged_table(name: str, data: st.DataObject) -> None:
    text = RECORDED[name]
    place = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 200))
    _all(text[:place] + data.draw(st.text(max_size=8)) + text[place + length :])
