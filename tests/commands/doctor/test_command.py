"""The command as users run it: whole processes, their output and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.host import simulated
from tests.support.cli import called


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    folders = {
        f"XDG_{n}_HOME": str(tmp_path / n.lower()) for n in ("STATE", "CACHE", "DATA", "CONFIG")
    }
    return {**os.environ, **folders, "GAUDI_LAUNCH_LANG": "en"}


def run(home: dict[str, str], *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess(words, *called({**home, **more}, "doctor", *words))


def document(home: dict[str, str], *words: str, **more: str) -> dict[str, Any]:
    done = run(home, "--json", *words, **more)
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["schema"], found["exit_code"]) == (1, done.returncode)
    return found


def machine(tmp_path: Path, name: str) -> dict[str, str]:
    root = tmp_path / "machine"
    programs = simulated.write_tree(name, root)
    return {"GAUDI_LAUNCH_ROOT": str(root), "PATH": f"{programs}:{os.environ['PATH']}"}


@pytest.mark.parametrize("name", simulated.NAMES)
def test_a_good_machine_is_ready(home: dict[str, str], name: str) -> None:
    found = document(home, "--machine", f"simulated:{name}")
    assert {finding["status"] for finding in found["findings"]} == {"ok"}
    assert found["summary"] == {
        "ok": len(found["findings"]),
        "warn": 0,
        "fail": 0,
        "skip": 0,
        "unknown": 0,
    }
    assert found["exit_code"] == 0


def test_json_has_the_promised_shape(home: dict[str, str]) -> None:
    found = document(home, "--machine", "simulated:hls2+bad-tuning")
    assert (found["schema"], found["exit_code"]) == (1, 3)
    wanted = {"id", "status", "title", "found", "expected", "message", "remedy"}
    assert all(wanted <= finding.keys() for finding in found["findings"])
    governor = next(finding for finding in found["findings"] if finding["id"] == "cpu.governor")
    assert (governor["status"], governor["found"], governor["expected"]) == (
        "warn",
        "0-159=powersave",
        "performance",
    )
    assert governor["remedy"]["fix"] == "governor"


def test_only_skip_and_strict(home: dict[str, str]) -> None:
    bad = ("--machine", "simulated:hls2+bad-tuning")
    assert [
        f["id"] for f in document(home, *bad, "--only", "cpu.governor,cpu.turbo")["findings"]
    ] == ["cpu.governor", "cpu.turbo"]
    areas = {
        f["id"].partition(".")[0] for f in document(home, *bad, "--skip", "cpu,cards")["findings"]
    }
    assert "kernel" in areas and not areas & {"cpu", "cards"}
    assert run(home, *bad, "--only", "cpu").returncode == 0
    assert run(home, *bad, "--only", "cpu", "--strict").returncode == 3
    named = document(home, *bad, "--only", "engine,weights")["findings"]
    assert {f["status"] for f in named} == {"skip"} and len(named) == 9


@pytest.mark.parametrize(
    ("words", "id"),
    [
        (("--only", "cpu.gouvernor"), "doctor.unknown_check"),
        (("--fix", "--undo"), "doctor.fix.both"),
        (("--fix", "--yes", "--machine", "simulated:hls2"), "doctor.fix.machine"),
        (("--fix",), "doctor.fix.json"),
        (("--machine", "simulated:hls9"), "host.unknown_machine"),
        (("--machine", "/none.json"), "host.snapshot_file"),
        (("-m", "0,x"), "placement.bad_modules"),
        (("--port", "99999"), "common.usage"),
    ],
)
def test_wrong_input_is_an_error_in_words(
    home: dict[str, str], words: tuple[str, ...], id: str
) -> None:
    done = run(home, "--json", *words)
    assert (done.returncode, json.loads(done.stdout)["error"]["id"], done.stderr) == (2, id, "")


def test_fix_and_undo_as_a_user_does_it(home: dict[str, str], tmp_path: Path) -> None:
    here = machine(tmp_path, "gaudi2e-4+bad-tuning")
    governor = tmp_path / "machine/sys/devices/system/cpu/cpu7/cpufreq/scaling_governor"
    asked = run(home, "--fix", **here)
    assert asked.returncode == 2
    assert "and 127 similar files: powersave -> performance" in asked.stdout
    assert governor.read_text() == "powersave\n"

    fixed = document(home, "--fix", "--yes", **here)
    assert {row["id"]: (row["before"], row["after"]) for row in fixed["fixed"]} == {
        "cpu.governor": ("warn", "ok"),
        "kernel.numa_balancing": ("warn", "ok"),
        "memory.hugepages": ("fail", "ok"),
        "memory.nofile": ("warn", "warn"),
    }
    assert governor.read_text() == "performance\n"
    assert (
        "None of the settings that --fix may change" in run(home, "--fix", "--yes", **here).stdout
    )

    undone = document(home, "--undo", **here)
    assert {change["status"] for change in undone["changes"]} == {"restored"}
    assert governor.read_text() == "powersave\n"
    assert "no change to revert" in run(home, "--undo", **here).stdout


def test_in_a_container_the_host_is_left_alone(home: dict[str, str], tmp_path: Path) -> None:
    here = machine(tmp_path, "gaudi2e-4+bad-tuning+container")
    done = run(home, "--fix", "--yes", **here)
    assert (done.returncode, "on the host" in done.stderr) == (3, True)
    assert "what to do, on the host: Set the governor" in run(home, "--only", "cpu", **here).stdout


def test_a_snapshot_is_judged_like_its_machine(home: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "there.json"
    taken = called(home, "devices", "snapshot", str(file), "--machine", "simulated:hls2+bad-tuning")
    assert taken[0] == 0
    words = ("--skip", "cards.links,cards.rows,cards.throttling,driver.firmware_pair,cache")
    there = document(home, "--machine", str(file), *words)
    here = document(home, "--machine", "simulated:hls2+bad-tuning", *words)
    assert there["findings"] == here["findings"]


def test_this_very_machine_is_judged_honestly(home: dict[str, str]) -> None:
    found = document(home)
    assert len(found["findings"]) > 30
    if found["machine"]["cards"] == 0:
        assert {f["id"] for f in found["findings"] if f["status"] == "fail"} <= {
            "cards.present",
            "driver.loaded",
        }
        assert not any(
            f["status"] == "ok" and f["id"].startswith("driver") for f in found["findings"]
        )


def test_chinese_tables_and_lists(home: dict[str, str]) -> None:
    done = run(
        home, "--lang", "zh", "--machine", "simulated:hls2+bad-tuning", "--only", "cpu.governor"
    )
    assert "警告" in done.stdout and "处理方法：" in done.stdout and "what to do" not in done.stdout
    listed = json.loads(run(home, "--list", "--json").stdout)
    assert len(listed["checks"]) > 60
    assert all(check["why"] and check["source"] for check in listed["checks"])


def test_a_bundle_is_written_beside_the_report(home: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "case.tar.gz"
    done = run(home, "--machine", "simulated:hls2", "--json", "--bundle", str(file))
    assert json.loads(done.stdout)["exit_code"] == 0
    with tarfile.open(file) as archive:
        text = "".join(archive.extractfile(m).read().decode() for m in archive)  # type: ignore[union-attr]
    assert "gaudi2-server" not in text and "HL-225" in text and "cpu.governor" in text
    link = tmp_path / "link.tar.gz"
    link.symlink_to(tmp_path / "elsewhere")
    assert run(home, "--machine", "simulated:hls2", "--bundle", str(link)).returncode == 2
    assert not (tmp_path / "elsewhere").exists()


def test_no_text_of_a_machine_steers_the_terminal(home: dict[str, str], tmp_path: Path) -> None:
    here = machine(tmp_path, "gaudi2e-4")
    root = tmp_path / "machine"
    (root / "etc/docker/daemon.json").write_text(
        json.dumps({"runtimes": {"\x1b[2Jx": {"path": "/x"}}})
    )
    (root / "etc/os-release").write_text("ID=\x1b]0;x\x07\nVERSION_ID=1\nPRETTY_NAME=\x1b[31mred\n")
    done = run(home, "-v", **here, HABANA_RUNTIME_ERROR="\x1b[2J[bold]no[/bold]")
    assert done.returncode == 3
    assert not {c for c in done.stdout if ord(c) < 32 and c != "\n"}
    assert "[bold]no[/bold]" in done.stdout
