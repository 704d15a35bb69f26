"""Reading machines: folders with sysfs, stubs of hl-smi, both, neither."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gaudi_launch.core.base.locks import Holder
from gaudi_launch.core.host import hl_smi, simulated
from gaudi_launch.core.host.cpus import parse_cpus
from gaudi_launch.core.host.files import Imagined
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.host.hl_smi import HlSmiOutput
from gaudi_launch.core.host.machine import load
from gaudi_launch.core.host.read import assemble
from tests.support.every_case import examples
from tests.support.host_variants import VARIANTS
from tests.support.machines import (
    INDEX_MODULE,
    NAME,
    TOPO,
    calls,
    make_recorded,
    plain,
    recorded_hosts,
    sample,
    use,
    write_stub,
)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_written_machine_reads_back_as_the_simulated_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = simulated.write_tree(name, tmp_path / "root")
    use(monkeypatch, tmp_path / "root", programs)
    assert plain(load()) == plain(load(f"simulated:{name}"))


def test_sysfs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated.write_tree("hls2+no-hl-smi", tmp_path)
    use(monkeypatch, tmp_path)
    host = load()
    seen = load("simulated:hls2").cards
    facts = [(c.index, c.module, c.product, c.bus, c.numa_node, c.status) for c in host.cards]
    assert facts == [(c.index, c.module, c.product, c.bus, c.numa_node, c.status) for c in seen]
    assert {card.memory_used_mib for card in host.cards} == {None}
    assert host.product == "gaudi2"
    assert host.groups == (tuple(range(8)),)
    assert host.notes == {"hl-smi": "not on PATH"}
    assert {card.busy for card in host.cards} == {False}
    assert host.cards[0].sources["product"] == "PCI id"


def test_sysfs_of_the_cards_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No CPU or node folders, and the PCI attributes only behind the class: CPUs and cores still
    come out."""
    machine = simulated.build("hls2+no-hl-smi")
    for path, text in machine.files.items():
        if path.startswith("sys/bus/pci/devices/"):
            bus, name = path.split("/", 5)[4:]
            index = next(
                i for i, card in enumerate(load("simulated:hls2").cards) if card.bus == bus
            )
            target = tmp_path / f"sys/class/accel/accel{index}/device/{name}"
        elif path.startswith("sys/class/accel/"):
            target = tmp_path / path
        else:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    use(monkeypatch, tmp_path)
    host, whole = load(), load("simulated:hls2")
    assert [(c.module, c.numa_node, c.cpus) for c in host.cards] == [
        (c.module, c.numa_node, c.cpus) for c in whole.cards
    ]
    assert host.cpu_siblings == whole.cpu_siblings
    assert [(n.id, n.cpus) for n in host.numa_nodes] == [(n.id, n.cpus) for n in whole.numa_nodes]
    assert host.sources["cpu_siblings"].startswith("assumed")


def test_sysfs_needs_one_question_to_hl_smi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated.write_tree("hls2", tmp_path / "root")
    write_stub(tmp_path / "bin", {"": sample("gaudi2-table-1.22.1")})
    use(monkeypatch, tmp_path / "root", tmp_path / "bin")
    load()
    assert calls(tmp_path / "bin") == [""]


@pytest.mark.parametrize("name", recorded_hosts())
def test_recorded_server(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = recorded_hosts()[name]
    use(monkeypatch, tmp_path, make_recorded(recorded, tmp_path))
    host = load()
    topo = {int(module): line for module, line in recorded["topo"].items()}
    nodes = {m: (int(t["numa_affinity"]), parse_cpus(t["cpu_affinity"])) for m, t in topo.items()}
    assert [(c.index, c.module, c.product, (c.numa_node, c.cpus)) for c in host.cards] == [
        (index, m, recorded["name"], nodes[m]) for index, m in enumerate(recorded["idx2mod"])
    ]
    assert sorted(c.module or 0 for c in host.cards if c.busy) == recorded["used"]
    for card in host.cards:
        if card.busy:
            assert card.holders == (Holder(500 + (card.module or 0), "engine"),)
            assert card.busy_because == "open-file"
    by_node = dict(nodes.values())
    assert {node.id: node.cpus for node in host.numa_nodes} == by_node
    half = len(by_node[0]) // 2
    first = by_node[0][0]
    core = (first,) if "nosmt" in name else (first, by_node[0][half])
    assert host.cpu_siblings[first] == core
    assert host.sources["cpu_siblings"].startswith("assumed")
    assert host.sources["numa_nodes"] == "the cards' own nodes and CPUs"
    products = {"HL-225": "gaudi2", "HL-288": "gaudi2e", "HL-325L": "gaudi3"}
    assert host.product == products[recorded["name"]]


OTHERWISE = {
    "exit 1": "sys.exit(1)",
    "an error": "print('Invalid query field', file=sys.stderr); sys.exit(255)",
    "garbage": "sys.stdout.buffer.write(bytes(range(256)) * 50)",
    "another table": "print('index, module_id'); print('x, y'); print('-1, 99999999')",
    "its usage": "print('usage: hl-smi [-h]\\n  -L  list, all\\n  -Q, --query-aip')",
    "nothing": "sys.exit(0)",
}


@pytest.mark.parametrize("otherwise", OTHERWISE)
def test_a_stub_that_knows_three_questions(
    otherwise: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = recorded_hosts()["g3-oam"]
    programs = make_recorded(recorded, tmp_path)
    answers = _answers(programs)
    write_stub(programs, answers, OTHERWISE[otherwise])
    use(monkeypatch, tmp_path, programs)
    host = load()
    assert [(c.index, c.module, c.product) for c in host.cards] == list(
        zip(range(8), recorded["idx2mod"], ["HL-325L"] * 8, strict=True)
    )
    assert all(card.busy is None for card in host.cards)


def _answers(programs: Path) -> dict[str, str]:
    (line,) = re.findall("^# answers = (.*)$", (programs / "hl-smi").read_text(), re.MULTILINE)
    answers: dict[str, str] = json.loads(line)
    return answers


def test_a_stub_that_hangs_costs_one_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hl_smi, "SECONDS", 4.0)
    programs = make_recorded(recorded_hosts()["hls2-idle"], tmp_path)
    # the sleeping child keeps the pipe open after its parent is gone
    hang = "import os\nif os.fork():\n    os.wait()\ntime.sleep(60)"
    write_stub(programs, _answers(programs), hang)
    use(monkeypatch, tmp_path, programs)
    started = time.monotonic()
    host = load()
    # each question of its own would be one more
    assert time.monotonic() - started < 8
    assert host.modules == tuple(range(8))
    assert "no answer within 4 s" in host.notes["hl-smi table"]


def test_endless_output_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_stub(tmp_path / "bin", {}, "while True: sys.stdout.write('| 0  HL-225 ' * 1000)")
    use(monkeypatch, tmp_path, tmp_path / "bin")
    assert load().modules == ()


def test_table_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_stub(tmp_path / "bin", {"": sample("gaudi2-table-1.21.1-busy")})
    use(monkeypatch, tmp_path, tmp_path / "bin")
    host = load()
    assert [(c.index, c.module, c.busy, c.busy_because) for c in host.cards] == [
        (index, None, index != 1, None if index == 1 else "memory") for index in range(8)
    ]
    assert host.driver_version == "1.21.1-bfcec49"
    assert host.hl_smi_version == "1.21.1"


def test_nothing_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, tmp_path)
    host = load()
    assert replace(host, root="") == Host(
        root="",
        notes={
            "sysfs": "no Gaudi card in /sys/class/accel",
            "hl-smi": "not on PATH",
            "open-files": "no /proc to look for processes that use a card",
        },
    )


def test_sysfs_wins_and_the_quarrel_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated.write_tree(
        "gaudi2e-4", tmp_path / "root", {"sys/class/accel/accel0/device/module_id": None}
    )
    rows = (
        "index, module_id, bus_id\n0, 1, 0000:2a:00.0\n1, 3, 0000:29:00.0\n2, 3, 0000:ab:00.0\n"
        "3, 2, 0000:aa:00.0\n"
    )
    rich = "-Q " + ",".join(hl_smi.CARD_FIELDS[0]) + " -f csv"
    write_stub(tmp_path / "bin", {rich: rows})
    use(monkeypatch, tmp_path / "root", tmp_path / "bin")
    host = load()
    assert [card.module for card in host.cards] == [1, 0, 3, 2]
    assert host.cards[0].sources["module"] == "hl-smi -Q"
    assert host.notes["disagreement"] == "accel1: module is 0 by sysfs module_id and 3 by hl-smi -Q"


def test_the_same_card_under_another_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bus address decides: after a reboot hl-smi of a container may count in another order."""
    simulated.write_tree("gaudi2e-4+no-hl-smi", tmp_path / "root")
    lines = sample("gaudi2e-table-1.23.0").replace("0000:2a", "0000:XX")
    lines = lines.replace("0000:29", "0000:2a").replace("0000:XX", "0000:29")
    write_stub(tmp_path / "bin", {"": lines.replace("   768MiB", " 90000MiB", 1)})
    use(monkeypatch, tmp_path / "root", tmp_path / "bin")
    host = load()
    used = {c.bus: c.memory_used_mib for c in host.cards}
    assert (used["0000:29:00.0"], used["0000:2a:00.0"]) == (90000, 768)


def test_processes_follow_their_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """hl-smi's index 6 is this machine's accel1: the address says so, and the process belongs
    there."""
    simulated.write_tree("hls2", tmp_path / "root")
    text = sample("gaudi2-table-1.16.0-busy").replace("0000:b3", "0000:00")
    text = text.replace("0000:43", "0000:b3")
    write_stub(tmp_path / "bin", {"": text})
    use(monkeypatch, tmp_path / "root", tmp_path / "bin")
    found = [(c.index, c.busy, c.busy_because, c.holders) for c in load().cards if c.holders]
    assert found == [(1, True, "process-table", (Holder(618796, "ray::ServeRepli"),))]


def test_hl_smi_of_quite_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other addresses for the same indices: sysfs's cards stay, none is added, and it is said."""
    simulated.write_tree("hls2", tmp_path / "root")
    write_stub(tmp_path / "bin", {"": sample("gaudi3-table-1.21.0-driver-1.20.1")})
    use(monkeypatch, tmp_path / "root", tmp_path / "bin")
    host = load()
    assert [(card.index, card.module) for card in host.cards] == list(
        enumerate((3, 7, 2, 6, 1, 5, 0, 4))
    )
    assert (
        "accel0: bus is 0000:19:00.0 by sysfs pci_addr and 0000:e9:00.0"
        in host.notes["disagreement"]
    )


def test_nothing_steers_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated.write_tree(
        "gaudi2e-4", tmp_path / "root", {"sys/class/accel/accel0/device/status": "\x1b[2Jgone"}
    )
    (tmp_path / "root/sys/class/net" / os.fsdecode(b"\xff")).mkdir()
    write_stub(
        tmp_path / "bin", {"": sample("gaudi2e-table-1.23.0").replace("HL-288E ", "HL-\x1b[31m")}
    )
    use(monkeypatch, tmp_path / "root", tmp_path / "bin")
    host = load()
    assert (host.cards[0].status, host.cards[0].product) == ("?[2Jgone", "HL-?[31m")
    assert [interface.name for interface in host.interfaces] == ["ens8f0", "ens8f1"]


def test_sixteen_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "index, module_id\n" + "".join(f"{15 - m}, {m}\n" for m in range(16))
    topo = "modID\tCPU Affinity\tNUMA Affinity\n" + "".join(
        f"{m}\t{m * 4}-{m * 4 + 3}\t{m // 6}\n" for m in range(16)
    )
    write_stub(tmp_path / "bin", {INDEX_MODULE: rows, NAME: "name\nHL-225\n", TOPO: topo})
    use(monkeypatch, tmp_path, tmp_path / "bin")
    host = load()
    assert host.modules == tuple(range(16))
    assert [card.module for card in host.cards] == list(range(15, -1, -1))
    assert host.groups == (tuple(range(8)), tuple(range(8, 16)))
    card = host.card(13)
    assert card is not None and (card.cpus, card.numa_node) == ((52, 53, 54, 55), 2)


def test_other_accelerators_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated.write_tree(
        "gaudi2e-4+no-hl-smi",
        tmp_path,
        {
            "sys/class/accel/accel8/device/vendor": "0x8086",
            "sys/class/accel/accel9/device/uevent": "",
        },
    )
    use(monkeypatch, tmp_path)
    assert [card.index for card in load().cards] == [0, 1, 2, 3]


def test_two_cards_that_claim_one_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated.write_tree(
        "gaudi2e-4+no-hl-smi", tmp_path, {"sys/class/accel/accel2/device/module_id": "1"}
    )
    use(monkeypatch, tmp_path)
    host = load()
    assert host.modules == (0, 2)
    assert "module 1" in host.notes["module"]


def test_a_container_has_the_cards_whose_nodes_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: dict[str, str | None] = {f"dev/accel/accel{index}": None for index in (0, 2)}
    simulated.write_tree("hls2+container+no-hl-smi", tmp_path, gone)
    use(monkeypatch, tmp_path)
    host = load()
    assert host.in_container is True
    assert [(c.index, c.busy_because) for c in host.cards if c.busy] == [
        (0, "device-node"),
        (2, "device-node"),
    ]
    assert {c.busy for c in host.cards if c.index not in (0, 2)} == {None}


def test_pipes_and_folders_in_place_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path / "sys/class/accel/accel0/device"
    (device / "module_id").mkdir(parents=True)
    os.mkfifo(device / "pci_addr")
    (device / "status").symlink_to("status")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/12").write_text("")
    use(monkeypatch, tmp_path)
    host = load()
    assert [(c.index, c.module, c.bus, c.status) for c in host.cards] == [(0, None, None, None)]


_PATHS = sorted(
    path
    for path in simulated.build("gaudi2e-4").files
    if "/cpu/cpu" not in path or "/cpu0/" in path or "/cpu1/" in path
)


@settings(
    max_examples=examples(80, 200), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    st.dictionaries(
        st.sampled_from(_PATHS),
        st.text(max_size=60) | st.sampled_from(["-1", "N/A", "0-", "\0", "9" * 40]),
    ),
    st.text(max_size=200)
    | st.sampled_from([sample("gaudi2e-table-1.23.0"), sample("gaudi2-topo-c-N")]),
    st.booleans(),
)
def test_any_file_and_any_hl_smi(changed: dict[str, str], said: str, failing: bool) -> None:
    """Whatever stands in /sys, /proc and /etc and whatever hl-smi says: a Host, never an error."""
    machine = simulated.build("gaudi2e-4+busy=1")
    answer = HlSmiOutput(said, "it failed" if failing else None)
    host = assemble(Imagined({**machine.files, **changed}, machine.links), lambda _: answer)
    assert len(host.modules) == len(set(host.modules))
    assert all(card.cpus == tuple(sorted(set(card.cpus))) for card in host.cards)


@settings(deadline=None)
@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=300))
def test_bare_machine_with_any_answers(table: str, rows: str, topo: str) -> None:
    def ask(arguments: Any) -> HlSmiOutput:
        kind = arguments[0] if arguments else ""
        return HlSmiOutput(
            {"": table, "-Q": "index, module_id, name\n" + rows, "topo": topo}.get(
                kind, table + rows
            )
        )

    assemble(Imagined({}), ask)


LINES = st.sampled_from(
    [
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT",
        "ens8f0\t001E140A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0",
        "ens8f0\t00000000\t011E140A\t0003\t0\t0\t0\t00000000\t0\t0\t0",
        "     |-- 10.20.30.40",
        "     |-- 08.300.1.1",
        "     |-- 010.08.09.1",
        "        /32 host LOCAL",
        "fe80000000000000021b21fffe6c0001 02 40 20 80 ens8f0",
        "MemTotal: x kB",
        "Uid: 99999999999999999999",
    ]
)


@settings(deadline=None)
@given(st.lists(LINES | st.text(max_size=30), max_size=12).map("\n".join))
def test_any_network_and_process_files(text: str) -> None:
    paths = (
        "proc/net/route",
        "proc/net/fib_trie",
        "proc/net/if_inet6",
        "proc/meminfo",
        "proc/7/status",
        "proc/7/comm",
    )
    files = dict.fromkeys(
        (*paths, "proc/7/cmdline", "etc/passwd", "etc/os-release", "proc/1/environ"), text
    )
    files["sys/class/net/ens8f0/operstate"] = "up"
    host = assemble(Imagined(files, {"proc/7/fd/3": "/dev/accel/accel0"}), None)
    assert [interface.name for interface in host.interfaces] == ["ens8f0"]
