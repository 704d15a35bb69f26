"""``devices`` and its subcommands as a user runs them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from gaudi_launch.core.host import simulated
from gaudi_launch.core.host.machine import load
from gaudi_launch.core.services.engine_counters import EngineCounters
from gaudi_launch.core.services.history import HistoryRing, HistoryRow
from gaudi_launch.core.services.state import store
from tests.support.cli import document, golden, output, reading, stripped
from tests.support.clock import utc
from tests.support.machines import link_tree, plain, use
from tests.support.service_record import service

__all__ = ["utc"]
pytestmark = pytest.mark.usefixtures("plain_english")


SNAPSHOT = ("devices", "snapshot")


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = output(capsys, "devices", "--machine", "simulated:gaudi2e-8+busy=1,2+failed=6")
    assert code == 0
    golden("devices.txt", stripped(out))


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = document(capsys, "devices", "--machine", "simulated:gaudi2e-4+busy=1+no-sysfs")
    assert code == 0
    golden("devices.json", json.dumps(shown, indent=2) + "\n")


def test_no_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, tmp_path)
    code, out, _ = output(capsys, "devices")
    assert (code, out.splitlines()[0]) == (0, "No Gaudi card was found on this machine.")
    code, shown = document(capsys, "devices")
    assert (code, shown["cards"], shown["free"]) == (0, [], [])
    code, shown = document(capsys, "devices", "pick")
    assert (code, shown["error"]["id"]) == (3, "placement.no_cards")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make a server with Gaudi3 cards this machine."""
    programs = link_tree("gaudi3-oam", tmp_path / "root")
    use(monkeypatch, tmp_path / "root", programs)
    return tmp_path / "root"


def test_the_energy_of_a_service_is_shown_at_its_cards(
    utc: None, server: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # a time zone in which it is about noon: no midnight is between
    monkeypatch.setenv("TZ", f"NOON{time.gmtime().tm_hour - 12}")
    time.tzset()
    now = time.time()
    with service("mine", "http://127.0.0.1:9", phase="load") as folder:
        store.write(folder, "state.json", {"phase": "load", "modules": [2, 3]})
        ring = HistoryRing(folder)
        ring.add(HistoryRow(now, 20_000.0, EngineCounters(generated=0.0)))
        ring.add(HistoryRow(now + 9, 20_000.0, EngineCounters(generated=45_000.0)))
        ring.close()
        cards = reading(capsys, "devices")["cards"]
        code, out, _ = output(capsys, "devices", "--all")
        elsewhere = reading(capsys, "devices", "--machine", "simulated:hls2")["cards"]
        (host,) = reading(capsys, "top", "--once")["hosts"]
    shown = {card["module"]: (card["joules_per_token"], card["kwh_today"]) for card in cards}
    assert shown == {**dict.fromkeys(range(8), (None, None)), 2: (4.0, 0.05), 3: (4.0, 0.05)}
    assert code == 0 and out.count(" 4.00 ") == out.count(" 0.05 ") == 2
    assert {(card["power_cap_w"], card["kwh_today"]) for card in elsewhere} == {(600, None)}
    assert [(each["name"], each["kwh_today"]) for each in host["services"]] == [("mine", 0.05)]


def caps(capsys: pytest.CaptureFixture[str]) -> dict[int, int]:
    time.sleep(1.0)
    return {card["module"]: card["power_cap_w"] for card in reading(capsys, "devices")["cards"]}


def test_limits_are_set_and_restored(server: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = output(capsys, "devices", "power", "--limit", "600", "-m", "0,1", "--yes")
    assert code == 0 and out.count("900 W -> 600 W") == 2
    assert caps(capsys) == {**dict.fromkeys(range(8), 900), 0: 600, 1: 600}
    code, shown = document(capsys, "devices", "--json", "power", "--undo")
    assert code == 0
    assert [(card["status"], card["before_w"], card["now_w"]) for card in shown["cards"]] == [
        ("changed", 600, 900),
        ("changed", 600, 900),
    ]
    assert set(caps(capsys).values()) == {900}
    assert output(capsys, "devices", "power", "--undo") == (
        0,
        "No power limit was changed by gaudi-launch.\n",
        "",
    )


def test_no_limit_is_changed_without_a_confirmation(
    server: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = output(capsys, "devices", "power", "--limit", "600")
    assert (code, out) == (2, "") and "--yes" in err
    assert not (server.parent / "state" / "gaudi-launch" / "doctor").exists()


def test_the_commands_of_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("power", "--limit", "600", "-m", "0", "--dry-run")
    command = "hl-smi -i 0000:c1:00.0 -p 600"
    assert output(capsys, "devices", *arguments, "--machine", "simulated:gaudi3-oam") == (
        0,
        f"{command}\n",
        "",
    )
    assert document(capsys, "devices", "--machine", "simulated:gaudi3-oam", *arguments) == (
        0,
        {"schema": 1, "commands": [command]},
    )
    found, out, err = output(capsys, "devices", *arguments, "--machine", "simulated:hls2")
    assert (found, out) == (3, "") and "gaudi2" in err


def test_pick(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = output(
        capsys, "devices", "pick", "-n", "4", "--machine", "simulated:hls2+busy=1"
    )
    assert code == 0
    golden("devices-pick.txt", stripped(out))
    code, shown = document(capsys, "devices", "--machine", "simulated:hls2", "pick", "-m", "3,2")
    assert code == 0
    assert (shown["modules"], shown["indices"], shown["cpus"]) == ([3, 2], [0, 2], "20-39,100-119")
    assert (shown["numa_nodes"], shown["memory_node"], shown["warnings"]) == ([0], 0, [])


def test_options_may_stand_before_pick(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = output(
        capsys, "devices", "--json", "--machine", "simulated:hls2", "pick", "-n", "2"
    )
    assert (code, json.loads(out)["modules"]) == (0, [0, 1])


def test_an_empty_machine_is_not_this_one(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (("devices",), ("devices", "pick"), ("devices", "snapshot", "-")):
        code, _, err = output(capsys, *arguments, "--machine", "")
        assert (code, "cannot be read" in err) == (2, True)


@pytest.mark.parametrize(
    ("form", "text"), [("modules", "0,1"), ("indices", "6,4"), ("cpus", "0-19,80-99")]
)
def test_pick_for_scripts(form: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("devices", "pick", "-n", "2", "--machine", "simulated:hls2", "--format", form)
    assert output(capsys, *arguments) == (0, text + "\n", "")


@pytest.mark.parametrize(
    ("arguments", "visible", "code", "id"),
    [
        (("-n", "16"), None, 3, "placement.too_many"),
        (("-n", "0"), None, 2, "plan.number"),
        (("-n", "four"), None, 2, "common.usage"),
        (("-m", "x"), None, 2, "placement.bad_modules"),
        (("-m", "0,1", "-n", "1"), None, 2, "placement.count_differs"),
        (("--format", "xml"), None, 2, "placement.format"),
        (("-n", "2"), "0", 3, "placement.too_few_visible"),
        (("-n", "2"), "zero", 2, "placement.bad_modules"),
    ],
)
def test_pick_refuses(
    arguments: tuple[str, ...],
    visible: str | None,
    code: int,
    id: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if visible is not None:
        monkeypatch.setenv("HABANA_VISIBLE_MODULES", visible)
    found, shown = document(capsys, "devices", "pick", "--machine", "simulated:hls2", *arguments)
    assert (found, shown["error"]["id"]) == (code, id)


def test_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "server.json")
    code, out, err = output(capsys, *SNAPSHOT, path, "--machine", "simulated:hls2+busy=1")
    assert (code, out) == (0, "")
    assert "8 cards of simulated:hls2+busy=1" in err
    assert plain(load(path)) == plain(load("simulated:hls2+busy=1"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["server.json"]
    before = Path(path).read_text()
    code, _, err = output(capsys, *SNAPSHOT, path, "--machine", "simulated:hls2")
    assert (code, Path(path).read_text()) == (2, before)
    code, _, _ = output(capsys, *SNAPSHOT, path, "--machine", "simulated:hls2", "--force")
    assert code == 0
    assert plain(load(path)) == plain(load("simulated:hls2"))


def test_a_snapshot_without_cards_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "laptop").mkdir()
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path / "laptop"))
    monkeypatch.setenv("PATH", "")
    path = str(tmp_path / "server.json")
    code, out, err = output(capsys, *SNAPSHOT, path)
    assert (code, out) == (0, "")
    assert err.startswith("The snapshot was written, but this machine shows no Gaudi card (sysfs: ")
    assert output(capsys, *SNAPSHOT, "-")[2] == err
    assert load(path).cards == ()
    code, shown = document(capsys, "plan", "-w", "Qwen/Qwen3-8B", "--machine", path)
    assert (code, shown["error"]["id"]) == (3, "placement.no_cards_of")
    assert path in shown["error"]["message"]


def test_snapshot_to_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = output(capsys, *SNAPSHOT, "-", "--machine", "simulated:gaudi2e-4")
    assert (code, err) == (0, "")
    assert json.loads(out)["kind"] == "gaudi-launch snapshot"


def test_snapshot_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "box"
    code, _, err = output(
        capsys,
        "devices",
        "snapshot",
        "--tree",
        str(root),
        "--machine",
        "simulated:gaudi3-pcie+busy=2",
    )
    assert code == 0
    assert f"GAUDI_LAUNCH_ROOT={root}" in err
    use(monkeypatch, root, root / "bin")
    assert plain(load()) == plain(load("simulated:gaudi3-pcie+busy=2"))
    code, _, _ = output(capsys, *SNAPSHOT, "--tree", str(root), "--machine", "simulated:hls2")
    assert code == 2
    assert (
        simulated.build("hls2").files["proc/sys/kernel/hostname"]
        not in (root / "etc/hostname").read_text()
    )
