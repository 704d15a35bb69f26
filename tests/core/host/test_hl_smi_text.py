"""Every recorded hl-smi output, parsed and compared whole, and any text at all."""

from __future__ import annotations

from dataclasses import astuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.core.host.hl_smi_text import (
    Affinity,
    HlSmiRow,
    Process,
    Table,
    parse_csv,
    parse_links,
    parse_log,
    parse_table,
    parse_topo,
)
from tests.support.machines import sample
from tests.support.places import DATA


def rows(
    product: str, cap: int, total: int, *cards: tuple[str, int, int, int, int, int]
) -> tuple[HlSmiRow, ...]:
    """Rows from (bus byte, temperature, power, memory used, utilization, events) by index."""
    return tuple(
        HlSmiRow(
            index,
            product,
            f"0000:{bus}:00.0",
            temperature,
            power,
            cap,
            used,
            total,
            utilization,
            events,
        )
        for index, (bus, temperature, power, used, utilization, events) in enumerate(cards)
    )


TABLES = {
    "gaudi1-table-1.18.0-busy": Table(
        rows(
            "HL-205",
            350,
            32768,
            ("b3", 33, 104, 512, 15, 0),
            ("b4", 30, 102, 512, 14, 0),
            ("cd", 37, 104, 512, 15, 0),
            ("cc", 30, 103, 512, 15, 0),
            ("19", 33, 96, 512, 12, 0),
            ("1a", 33, 105, 512, 15, 0),
            ("34", 36, 103, 512, 15, 0),
            ("33", 32, 100, 512, 13, 0),
        ),
        (Process(0, 10, "C", "python name", 1024), Process(6, 20, "c", "custom process", 2040)),
        "1.18.0",
        "53.1.1.1",
        "1.18.0-ee698fb",
    ),
    "gaudi2-header-1.20.0": Table(version="1.20.0", firmware="58.1.1.1", driver="1.20.0-bd87f71"),
    "gaudi2-table-1.12.1": Table(
        rows(
            "HL-225",
            600,
            98304,
            ("43", 30, 84, 768, 0, 0),
            ("44", 28, 87, 768, 0, 0),
            ("1a", 30, 93, 768, 1, 0),
            ("19", 27, 93, 768, 0, 0),
            ("b3", 26, 93, 768, 0, 0),
            ("b4", 27, 91, 768, 0, 0),
            ("cc", 27, 98, 768, 2, 0),
            ("cd", 27, 85, 768, 0, 0),
        ),
        (),
        "1.12.1",
        "46.0.5.0",
        "1.12.1-cb7a7bc",
    ),
    "gaudi2-table-1.14-driver-1.15": Table(
        rows(
            "HL-225",
            600,
            98304,
            ("09", 26, 87, 768, 0, 0),
            ("08", 28, 99, 768, 0, 0),
            ("0a", 24, 98, 768, 0, 0),
            ("0c", 27, 87, 768, 0, 0),
            ("0b", 25, 112, 768, 0, 0),
            ("0d", 26, 111, 26835, 0, 0),
            ("0f", 24, 93, 768, 0, 0),
            ("0e", 25, 86, 768, 0, 0),
        ),
        (),
        "1.14.0",
        "48.0.1.0",
        "1.15.0-c43dc7b",
    ),
    "gaudi2-table-1.15.1-1card": Table(
        rows("HL-225", 600, 98304, ("19", 29, 93, 768, 0, 0)),
        (),
        "1.15.1",
        "49.0.0.0",
        "1.15.1-62f612b",
    ),
    "gaudi2-table-1.16.0-busy": Table(
        rows(
            "HL-225",
            600,
            98304,
            ("b3", 26, 82, 768, 0, 0),
            ("b4", 26, 96, 768, 0, 0),
            ("cc", 27, 71, 768, 0, 0),
            ("cd", 26, 89, 768, 0, 0),
            ("19", 26, 91, 768, 0, 0),
            ("1a", 31, 100, 768, 0, 0),
            ("43", 26, 101, 27098, 0, 0),
            ("44", 25, 99, 768, 0, 0),
        ),
        (Process(6, 618796, "C", "ray::ServeRepli", 26330),),
        "1.16.0",
        "50.1.2.0",
        "1.16.0-94aac46",
    ),
    "gaudi2-table-1.17.1-2cards": Table(
        rows("HL-225", 600, 98304, ("4d", 31, 95, 768, 0, 0), ("b4", 28, 85, 768, 0, 0)),
        (),
        "1.17.1",
        "51.5.0",
        "1.17.1-78932ae",
    ),
    "gaudi2-table-1.21.1-busy": Table(
        rows(
            "HL-225",
            600,
            98304,
            ("33", 35, 525, 94963, 88, 21),
            ("34", 34, 80, 768, 0, 0),
            ("4e", 25, 81, 90351, 0, 0),
            ("9a", 23, 83, 90356, 0, 0),
            ("9b", 28, 91, 90353, 0, 0),
            ("b3", 29, 82, 90352, 0, 0),
            ("b4", 23, 85, 82507, 0, 176),
            ("4d", 27, 92, 85926, 0, 0),
        ),
        (),
        "1.21.1",
        "59.2.3.0",
        "1.21.1-bfcec49",
    ),
    "gaudi2-table-1.22.1": Table(
        rows(
            "HL-225",
            600,
            98304,
            ("33", 22, 88, 768, 0, 2),
            ("9a", 22, 83, 768, 0, 2),
            ("34", 25, 94, 768, 0, 2),
            ("4d", 24, 80, 768, 0, 2),
            ("4e", 22, 73, 768, 0, 2),
            ("9b", 25, 87, 768, 0, 2),
            ("b3", 24, 91, 768, 0, 2),
            ("b4", 21, 90, 768, 0, 2),
        ),
        (),
        "1.22.1",
        "61.4.2.1",
        "1.22.1-97ec1a4",
    ),
    "gaudi2e-table-1.23.0": Table(
        rows(
            "HL-288E",
            450,
            98304,
            ("2a", 28, 80, 768, 0, 0),
            ("aa", 29, 84, 768, 0, 0),
            ("29", 30, 96, 768, 0, 0),
            ("ab", 29, 78, 768, 0, 0),
            ("3a", 29, 78, 768, 0, 0),
            ("bb", 28, 77, 768, 0, 0),
            ("3b", 29, 77, 768, 0, 0),
            ("bc", 29, 67, 768, 0, 0),
        ),
        (),
        "1.23.0",
        "62.2.1.1",
        "1.23.0-2eae87a",
    ),
    "gaudi3-table-1.18.0-1card": Table(
        rows("HL-325", 900, 131072, ("21", 43, 264, 672, 0, 0)),
        (),
        "1.18.0",
        "53.1.1.1",
        "1.18.0-ee698fb",
    ),
    "gaudi3-table-1.21.0-driver-1.20.1": Table(
        rows(
            "HL-325L",
            900,
            131072,
            ("e9", 36, 228, 672, 0, 0),
            ("c1", 37, 226, 672, 0, 0),
            ("b7", 36, 225, 672, 0, 0),
            ("ad", 40, 228, 672, 0, 0),
            ("a3", 36, 228, 672, 0, 0),
            ("df", 39, 229, 672, 0, 0),
            ("d5", 36, 231, 672, 0, 0),
            ("cb", 38, 227, 672, 0, 0),
        ),
        (),
        "1.21.0",
        "59.2.1.0",
        "1.20.1-366eb9c",
    ),
    "no-device-error-fragment": Table(),
}


def test_every_recorded_table_is_compared() -> None:
    recorded = {path.stem for path in (DATA / "hl-smi").glob("*-table-*.txt")}
    assert len(recorded) == 11
    assert recorded <= set(TABLES)


GAUDI1 = [
    ("P64X00-16-07-11", 102, 29, 14),
    ("P64W98-10-03-11", 103, 32, 15),
    ("P64W98-05-02-04", 103, 30, 14),
    ("P64X00-08-05-09", 103, 35, 15),
    ("P64X78-02-07-10", 96, 31, 12),
    ("P64W99-02-08-05", 105, 33, 15),
    ("P64X00-12-04-07", 100, 31, 13),
    ("P64W99-13-05-03", 103, 34, 14),
]


def index_module(*pairs: tuple[int, int]) -> tuple[dict[str, str], ...]:
    return tuple({"index": str(index), "module_id": str(module)} for index, module in pairs)


CSV = {
    "docs-Q-index-module-truncated": index_module((3, 6), (1, 4), (2, 7), (0, 5), (4, 2), (6, 0)),
    "gaudi2e-Q-index-module-1.23": index_module(
        (0, 2), (1, 6), (2, 3), (3, 7), (4, 0), (5, 4), (6, 5), (7, 1)
    ),
    "gaudi1-Q-csv-nounits-1.18": tuple(
        {
            "name": "HL-205",
            "uuid": f"00P1-HL2000A1-14-{uuid}",
            "power.draw": str(power),
            "temperature.aip": str(temperature),
            "utilization.aip": str(utilization),
            "memory.used": "512",
            "memory.total": "32768",
        }
        for uuid, power, temperature, utilization in GAUDI1
    ),
    "gaudi3-Q-csv-noheader-1.22.1": tuple(
        {
            "index": index,
            "uuid": f"01P4-HL3090A0-18-{uuid}",
            "name": "HL-325L",
            "driver_version": "1.22.1-97ec1a4",
            "memory.total": "131072",
            "memory.used": "672",
            "memory.free": "130400",
            "power.draw": power,
            "power.max": "850",
            "temperature.aip": temperature,
            "utilization.aip": "0",
        }
        for index, uuid, power, temperature in (
            ("0", "U4V193-22-07-00", "226", "36"),
            ("1", "U4V298-03-04-04", "230", "39"),
        )
    ),
}


BOTH = tuple(
    Affinity(m, ((0, 39), (80, 119)) if m < 4 else ((40, 79), (120, 159)), 0 if m < 4 else 1)
    for m in range(8)
)
TOPO = {
    "gaudi2-topo-c-N": BOTH,
    "gaudi2-topo-c-N-tabs-reconstructed": BOTH,
    "gaudi2-topo-c-reconstructed": tuple(Affinity(a.module, a.ranges, None) for a in BOTH),
    "gaudi2-topo-N-reconstructed": tuple(Affinity(a.module, (), a.numa_node) for a in BOTH),
    "snc-single-range-topo-c-N-reconstructed": tuple(
        Affinity(m, ((0, 55),) if m < 4 else ((56, 111),), 0 if m < 4 else 1) for m in range(8)
    ),
}


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
        assert all(v is None or isinstance(v, str) or 0 <= v < 10**16 for v in astuple(row))
    for cells in parse_csv(text):
        assert all(cells.values())
    for affinity in parse_topo(text):
        assert affinity.cpus == tuple(sorted(affinity.cpus))
    parse_links(text)
    parse_log(text)


PIECES = st.sampled_from(
    [
        *(line for name in TABLES for line in sample(name).splitlines()),
        *(line for name in TOPO for line in sample(name).splitlines()),
        *(line for name in CSV for line in sample(name).splitlines()),
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
@given(st.sampled_from(sorted(TABLES)), st.data())
def test_a_damaged_table(name: str, data: st.DataObject) -> None:
    text = sample(name)
    place = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 200))
    _all(text[:place] + data.draw(st.text(max_size=8)) + text[place + length :])
