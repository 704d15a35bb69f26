"""Facts of cards from hl-smi: which question is asked, and which answer fills which fact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock

from gaudi_launch.host.from_hl_smi import fill
from gaudi_launch.host.hl_smi import CARD_FIELDS, HlSmiOutput
from gaudi_launch.host.hl_smi_text import Affinity, Process
from gaudi_launch.host.merge import Cards

TABLE = """\
| HL-SMI Version:                              hl-1.22.1-fw-61.4.2.1          |
| Driver Version:                                     1.22.1-97ec1a4          |
|   1  HL-225              N/A  | 0000:19:00.0     N/A |                   2  |
| N/A   30C   P0   90W /  600W  |   768MiB /  98304MiB |     5%            0% |
| Compute Processes:                                               AIP Memory |
|   1         4101     C   python3                                  768MiB     |
"""
LOG = """\
[1] AIP (accel1) 0000:19:00.0
        Product Name                    : HL-225B
        Serial Number                   : AM1
        Module status                   : Operational
        Module ID                       : 4
        Firmware [SPI] Version          : Preboot version hl-gaudi2-1.22.1-fw-61.4.2.1 x
        PCI
                Bus Id                  : 0000:19:00.0
                AIP Link Info
                        Link Speed
                                Max             : 16.0 GT/s
                                Current         : 8.0 GT/s
                        Link Width
                                Max             : x16
                                Current         : x8
"""
ROWS = (
    "index, module_id, bus_id, name, driver_version, serial, memory.total [MiB], "
    "memory.used [MiB], temperature.aip [C], utilization.aip [%], power.draw [W]\n"
    "1, 4, 0000:19:00.0, HL-225, 1.22.1, AM9, 98304 MiB, 700 MiB, 31 C, 6 %, 91 W\n"
)
TOPO = "modID CPU Affinity NUMA Affinity\n4 0-3 1\n7 4-7 0\n"
WIDE = f"-Q {','.join(CARD_FIELDS[0])} -f csv"


class Program:
    """An hl-smi with fixed answers, asked by several threads."""

    def __init__(self, answers: Mapping[str, str]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.lock = Lock()

    def __call__(self, arguments: Sequence[str]) -> HlSmiOutput:
        question = " ".join(arguments)
        with self.lock:
            self.asked.append(question)
        if question in self.answers:
            return HlSmiOutput(self.answers[question])
        return HlSmiOutput(problem=f"not known: {question}")


def of_sysfs(**facts: object) -> Cards:
    cards = Cards()
    one = cards.find()
    for name, value in facts.items():
        one.put(name, value, "sysfs")
    return cards


def test_without_hl_smi_that_is_noted() -> None:
    notes: dict[str, str] = {}
    assert fill(Cards(), None, notes) == (None, (), ())
    assert notes == {"hl-smi": "not on PATH"}


def test_the_table_fills_what_sysfs_lacks_and_gives_the_processes() -> None:
    cards = of_sysfs(index=0, bus="0000:19:00.0", module=4, cpus=(0,), numa_node=1, power_w=80)
    program = Program({"": TABLE})
    notes: dict[str, str] = {}
    table, processes, affinities = fill(cards, program, notes)
    (card,) = cards
    assert program.asked == [""]
    # the process follows its card to the index of sysfs
    assert processes == (Process(0, 4101, "C", "python3", 768),)
    assert (table and table.version, affinities, notes) == ("1.22.1", (), {})
    card.settle()
    assert card.values == {
        "index": 0,
        "bus": "0000:19:00.0",
        "module": 4,
        "cpus": (0,),
        "numa_node": 1,
        "power_w": 80,
        "product": "HL-225",
        "temperature_c": 30,
        "power_cap_w": 600,
        "memory_used_mib": 768,
        "memory_total_mib": 98304,
        "utilization_percent": 5,
        "uncorrectable_events": 2,
        "driver": "1.22.1-97ec1a4",
        "firmware": "61.4.2.1",
    }
    assert card.sources["firmware"] == "hl-smi table: the firmware that belongs to this hl-smi"
    assert (card.sources["driver"], card.sources["bus"]) == ("hl-smi table", "sysfs")
    assert cards.quarrels == ["accel0: index is 0 by sysfs and 1 by hl-smi table"]


def test_without_sysfs_all_questions_fill_a_card() -> None:
    cards = Cards()
    program = Program({WIDE: ROWS, "-L": LOG, "topo -c -N": TOPO})
    notes: dict[str, str] = {}
    table, processes, affinities = fill(cards, program, notes)
    (card,) = cards
    assert sorted(program.asked) == ["", "-L", WIDE, "topo -c -N"]
    assert (table, processes) == (None, ())
    assert affinities == (Affinity(4, ((0, 3),), 1), Affinity(7, ((4, 7),), 0))
    assert card.values == {
        "index": 1,
        "module": 4,
        "bus": "0000:19:00.0",
        "product": "HL-225",
        "serial": "AM9",
        "driver": "1.22.1",
        "memory_total_mib": 98304,
        "memory_used_mib": 700,
        "temperature_c": 31,
        "utilization_percent": 6,
        "power_w": 91,
        "status": "Operational",
        "firmware": "61.4.2.1",
        "pcie_speed": "8.0 GT/s",
        "pcie_max_speed": "16.0 GT/s",
        "pcie_width": 8,
        "pcie_max_width": 16,
        "cpus": (0, 1, 2, 3),
        "numa_node": 1,
    }
    sources = {name: card.sources[name] for name in ("index", "module", "status", "cpus")}
    assert sources == {
        "index": "hl-smi -Q",
        "module": "hl-smi -Q",
        "status": "hl-smi -L",
        "cpus": "hl-smi topo",
    }
    assert notes == {"hl-smi table": "not known: "}


def test_the_long_list_alone_gives_the_slot() -> None:
    cards = Cards()
    fill(cards, Program({"-L": LOG}), {})
    (card,) = cards
    assert {name: card.get(name) for name in ("index", "bus", "module", "product")} == {
        "index": 1,
        "bus": "0000:19:00.0",
        "module": 4,
        "product": "HL-225B",
    }
    assert {card.sources[name] for name in ("index", "bus", "module")} == {"hl-smi -L"}


def test_a_name_is_asked_for_only_where_nothing_else_names_the_product() -> None:
    least = "-Q index,module_id -f csv"
    answers = {least: "index, module_id\n0, 1\n1, 0\n", "-Q name -f csv": "name\nHL-288\n"}
    cards = Cards()
    fill(cards, Program(answers), {})
    assert [(c.get("product"), c.sources["product"]) for c in cards] == [
        ("HL-288", "hl-smi -Q name"),
        ("HL-288", "hl-smi -Q name"),
    ]
    known = of_sysfs(index=0, module=1, cpus=(0,), numa_node=0)
    program = Program(answers)
    fill(known, program, {})
    assert "-Q name -f csv" not in program.asked


def test_rows_are_asked_for_where_the_table_shows_no_card() -> None:
    cards = of_sysfs(index=0, module=1, cpus=(0,), numa_node=0)
    program = Program({WIDE: "index, module_id, serial\n0, 1, AM7\n"})
    fill(cards, program, {})
    assert [card.get("serial") for card in cards] == ["AM7"]
    assert program.asked == ["", WIDE]


def test_only_the_missing_facts_are_asked_for() -> None:
    def asked(**lacking: object) -> list[str]:
        facts = {"index": 0, "module": 1, "cpus": (0,), "numa_node": 0, **lacking}
        program = Program({"": TABLE})
        fill(of_sysfs(**facts), program, {})
        return sorted({question.split()[0] for question in program.asked if question})

    assert asked() == []
    assert asked(module=None) == ["-Q"]
    assert asked(cpus=()) == ["topo"]
    assert asked(numa_node=None) == ["topo"]


def test_a_hanging_table_is_not_followed_by_more_questions() -> None:
    asked: list[str] = []

    def hang(arguments: Sequence[str]) -> HlSmiOutput:
        asked.append(" ".join(arguments))
        return HlSmiOutput(problem="it hangs", timed_out=True)

    notes: dict[str, str] = {}
    fill(of_sysfs(index=0, module=1, cpus=(0,), numa_node=0), hang, notes)
    assert (asked, notes) == ([""], {"hl-smi table": "it hangs"})


def test_a_value_that_is_no_address_name_or_number_is_left_out() -> None:
    rows = "index, module_id, bus_id, name\n1, 9999, odd, other\n"
    cards = Cards()
    fill(
        cards, Program({"-Q index,module_id,bus_id,name,memory.total,memory.used -f csv": rows}), {}
    )
    assert [card.values for card in cards] == [{"index": 1}]
