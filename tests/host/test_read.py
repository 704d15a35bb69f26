"""Reading machines: folders with sysfs, stubs of hl-smi, both, neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gaudi_launch.host import simulated
from gaudi_launch.host.files import Imagined
from gaudi_launch.host.hl_smi import HlSmiOutput
from gaudi_launch.host.machine import load
from gaudi_launch.host.read import assemble
from tests.support.machines import (
    sample,
    use,
    write_stub,
)


def test_endless_output_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_stub(tmp_path / "bin", {}, "while True: sys.stdout.write('| 0  HL-225 ' * 1000)")
    use(monkeypatch, tmp_path, tmp_path / "bin")
    assert load().modules == ()


def test_two_cards_that_claim_one_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated.write_tree(
        "gaudi2e-4+no-hl-smi", tmp_path, {"sys/class/accel/accel2/device/module_id": "1"}
    )
    use(monkeypatch, tmp_path)
    host = load()
    assert host.modules == (0, 2)
    assert "module 1" in host.notes["module"]


def test_a_watcher_does_not_hold_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated.write_tree("hls2+no-hl-smi", tmp_path)
    for pid, command in ((70, "hl-smi"), (71, "python3")):
        folder = tmp_path / "proc" / str(pid) / "fd"
        folder.mkdir(parents=True)
        (folder.parent / "comm").write_text(command)
        (folder / "3").symlink_to(f"/dev/accel/accel_controlD{pid - 70}")
    use(monkeypatch, tmp_path)
    assert [card.index for card in load().cards if card.busy] == [1]


_PATHS = sorted(
    path
    for path in simulated.build("gaudi2e-4").files
    if "/cpu/cpu" not in path or "/cpu0/" in path or "/cpu1/" in path
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
