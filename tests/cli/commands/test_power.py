"""``gaudi-launch power``: what was measured, and limits on a machine in a folder."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gaudi_launch.host.simulated import write_tree
from gaudi_launch.services.engine_counters import EngineCounters
from gaudi_launch.services.history import HistoryRing, HistoryRow
from tests.support.cli import output, reading
from tests.support.machines import use
from tests.support.service_record import service


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plain_english: None) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make a server with Gaudi3 cards this machine."""
    programs = write_tree("gaudi3-oam", tmp_path / "root")
    use(monkeypatch, tmp_path / "root", programs)
    return tmp_path / "root"


def caps(capsys: pytest.CaptureFixture[str]) -> dict[int, int]:
    time.sleep(1.0)
    return {card["module"]: card["power_cap_w"] for card in reading(capsys, "power")["cards"]}


def test_limits_are_set_and_restored(server: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = output(capsys, "power", "--cap", "600", "-m", "0,1", "--yes")
    assert code == 0 and out.count("900 W -> 600 W") == 2
    assert caps(capsys) == {**dict.fromkeys(range(8), 900), 0: 600, 1: 600}
    code, out, _ = output(capsys, "power", "--undo")
    assert code == 0 and out.count("600 W -> 900 W") == 2
    assert set(caps(capsys).values()) == {900}


def test_nothing_is_changed_without_a_confirmation(
    server: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = output(capsys, "power", "--cap", "600")
    assert (code, out) == (2, "") and "--yes" in err
    assert not (server.parent / "state" / "gaudi-launch" / "doctor").exists()


def test_the_commands_of_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = output(
        capsys, "power", "--cap", "600", "-m", "0", "--dry-run", "--machine", "simulated:gaudi3-oam"
    )
    assert (code, out) == (0, "hl-smi -i 0000:c1:00.0 -p 600\n")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--cap", "600", "--undo"), 2, "--undo"),
        (("--dry-run",), 2, "--cap"),
        (("-m", "0"), 2, "--cap"),
        (("--cap", "600", "--yes", "--machine", "simulated:gaudi3-oam"), 2, "--machine"),
        (("--cap", "300", "--dry-run", "--machine", "simulated:hls2"), 3, "gaudi2"),
        (("--days", "0"), 2, "--days"),
    ],
)
def test_what_is_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, says: str
) -> None:
    found, out, err = output(capsys, "power", *words)
    assert (found, out) == (code, "") and says in err and "Traceback" not in err


def test_energy_is_shown_by_day(capsys: pytest.CaptureFixture[str]) -> None:
    now = time.mktime((2026, 11, 20, 12, 0, 0, 0, 0, -1))
    with service("mine", "http://127.0.0.1:9", phase="load") as folder:
        ring = HistoryRing(folder)
        for number in range(361):
            ring.add(
                HistoryRow(now + 10 * number, 1000.0, EngineCounters(generated=5000.0 * number))
            )
        ring.close()
        found = reading(capsys, "power", "--machine", "simulated:hls2")
        code, out, _ = output(capsys, "power", "--machine", "simulated:hls2")
    (energy,) = found["energy"]
    (day,) = energy["days"]
    assert (day["day"], day["joules"], day["tokens"]) == ("2026-11-20", 3.6e6, pytest.approx(1.8e6))
    assert day["joules_per_token"] == pytest.approx(2.0)
    assert code == 0 and "1.000" in out and "Only measured values" in out
