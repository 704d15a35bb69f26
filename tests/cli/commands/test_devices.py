"""``devices``, ``devices pick`` and ``snapshot`` as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.host import simulated
from gaudi_launch.host.machine import load
from tests.support.cli import document, golden, output, stripped
from tests.support.machines import plain, use

pytestmark = pytest.mark.usefixtures("plain_english")


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = output(capsys, "devices", "--machine", "simulated:gaudi2e-8+busy=1,2+failed=6")
    assert code == 0
    golden("devices.txt", stripped(out))


def test_the_table_in_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = output(
        capsys, "devices", "--machine", "simulated:gaudi2e-4+busy=1", "--lang", "zh"
    )
    assert code == 0
    golden("devices-zh.txt", stripped(out))


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
    for arguments in (("devices",), ("devices", "pick"), ("snapshot", "-")):
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
        (("-n", "0"), None, 2, "placement.bad_count"),
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
    code, out, err = output(capsys, "snapshot", path, "--machine", "simulated:hls2+busy=1")
    assert (code, out) == (0, "")
    assert "8 cards of simulated:hls2+busy=1" in err
    assert plain(load(path)) == plain(load("simulated:hls2+busy=1"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["server.json"]
    before = Path(path).read_text()
    code, _, err = output(capsys, "snapshot", path, "--machine", "simulated:hls2")
    assert (code, Path(path).read_text()) == (2, before)
    code, _, _ = output(capsys, "snapshot", path, "--machine", "simulated:hls2", "--force")
    assert code == 0
    assert plain(load(path)) == plain(load("simulated:hls2"))


def test_a_snapshot_without_cards_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "laptop").mkdir()
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path / "laptop"))
    monkeypatch.setenv("PATH", "")
    path = str(tmp_path / "server.json")
    code, out, err = output(capsys, "snapshot", path)
    assert (code, out) == (0, "")
    assert err.startswith(f"Wrote {path}, but this machine shows no Gaudi card (sysfs: ")
    assert load(path).cards == ()
    code, shown = document(capsys, "plan", "-w", "Qwen/Qwen3-8B", "--machine", path)
    assert (code, shown["error"]["id"]) == (3, "placement.no_cards_of")
    assert path in shown["error"]["message"]


def test_snapshot_to_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = output(capsys, "snapshot", "-", "--machine", "simulated:gaudi2e-4")
    assert (code, err) == (0, "")
    assert json.loads(out)["kind"] == "gaudi-launch snapshot"


def test_snapshot_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "box"
    code, _, err = output(
        capsys, "snapshot", "--tree", str(root), "--machine", "simulated:gaudi3-pcie+busy=2"
    )
    assert code == 0
    assert f"GAUDI_LAUNCH_ROOT={root}" in err
    use(monkeypatch, root, root / "bin")
    assert plain(load()) == plain(load("simulated:gaudi3-pcie+busy=2"))
    code, _, _ = output(capsys, "snapshot", "--tree", str(root), "--machine", "simulated:hls2")
    assert code == 2
    assert (
        simulated.build("hls2").files["proc/sys/kernel/hostname"]
        not in (root / "etc/hostname").read_text()
    )


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 2),
        (("--tree", "x"), 2),
        (("--tree", "x", "--machine", "simulated:nothing"), 2),
        (("gone/file.json", "--machine", "simulated:hls2"), 1),
    ],
)
def test_snapshot_refuses_and_writes_nothing(
    arguments: tuple[str, ...],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    found, out, err = output(capsys, "snapshot", *arguments)
    assert (found, out) == (code, "")
    assert err.startswith("gaudi-launch: ")
    assert list(tmp_path.iterdir()) == []
