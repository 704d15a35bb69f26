"""The doctor's screen: failures first, warnings without their remedies, the rest counted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gaudi_launch.cli.console import console
from gaudi_launch.cli.main import run
from gaudi_launch.commands.doctor import view as doctor
from gaudi_launch.commands.doctor.remedies import Change, RemedyOutcome
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.doctor.findings import Finding, Remedy
from tests.support.cli import document, golden, stripped
from tests.support.screens import screen
from tests.support.views import for_programs, views

BAD = ["doctor", "--machine", "simulated:hls2+bad-tuning"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_screen_of_a_machine_with_failures(language: str, tmp_path: Path) -> None:
    golden(f"screen-doctor-{language}.txt", screen([*BAD, "--lang", language], home=tmp_path))


def test_a_good_machine_is_a_few_lines(tmp_path: Path) -> None:
    shown = screen(
        ["doctor", "--machine", "simulated:hls2", "--lang", "en"], home=tmp_path
    ).splitlines()
    assert len(shown) == 5
    # the number of checks is of no test
    assert re.fullmatch(r"This server is ready: \d+ checks passed\.", shown[0])
    assert shown[1] == "next: gaudi-launch serve MODEL"


def rows(out: str) -> list[tuple[str, str]]:
    """Return (word, title) of the rows of checks."""
    found = re.findall(r"(?m)^(FAIL|warn|ok|skip) +([^:\n]+)", out)
    return [(word, title) for word, title in found]


def test_failures_come_first(plain_english: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(BAD) == 3
    out = capsys.readouterr().out
    words = re.findall(r"^(FAIL|warn)", out, re.MULTILINE)
    assert words == sorted(words)
    assert re.findall(r"^FAIL +(.*?):", out, re.MULTILINE) == ["IOMMU passthrough", "Huge pages"]
    answer = r"This server is not ready: 2 of \d+ checks failed, 7 warnings, 1 skipped\."
    assert re.match(answer, out)
    assert "cpupower" not in out


def test_all_shows_every_check_with_its_remedy(
    plain_english: None, capsys: pytest.CaptureFixture[str]
) -> None:
    _, shown = document(capsys, *BAD)
    assert run([*BAD, "--all"]) == 3
    out = capsys.readouterr().out
    assert len(rows(out)) == len(shown["findings"])
    assert {word for word, _ in rows(out)} == {"FAIL", "warn", "ok", "skip"}
    assert "now: sudo cpupower frequency-set -g performance" in out
    assert "--all" not in out


def test_skipped_checks_are_counted_by_reason(
    plain_english: None, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["doctor", "--machine", "simulated:hls2+no-driver"])
    out = capsys.readouterr().out
    counted = [line for line in out.splitlines() if line.startswith("skip")]
    assert counted
    assert sum(int(line.split()[-2]) for line in counted) == 17


def test_a_pipe_folds_no_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gaudi_launch", *BAD, "--lang", "en"]
    # readline, which pytest loads, puts COLUMNS into the environment that a child gets without one
    out = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ}
    ).stdout
    assert (
        "FAIL    IOMMU passthrough: IOMMU passthrough is off (kernel 6.8.0-57-generic): cards "
        "compute wrong results. Needed: intel_iommu=on iommu=pt.\n"
    ) in out


def test_selected_checks_with_a_warning_have_no_verdict_about_the_machine(
    plain_english: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*BAD, "--only", "cpu.governor"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "No failure in 1 selected check; the others were not run, 1 warning.",
        "next: gaudi-launch doctor",
    ]


CHANGES = (
    Change("hugepages", "proc/sys/vm/nr_hugepages", "15000\n", kernel=True),
    Change("limits", "etc/security/limits.d/x.conf", "# ours\na\nb\n", kernel=False),
    Change("governor", "sys/cpu0/governor", "performance", kernel=True),
    Change("governor", "sys/cpu1/governor", "performance", kernel=True),
)
OUTCOMES = (
    RemedyOutcome("etc/x.conf", "changed", None, "# ours\na\nb\n"),
    RemedyOutcome("sys/cpu0/governor", "restored", "performance", "powersave"),
    RemedyOutcome("sys/cpu1/governor", "restored", "performance", "powersave"),
    RemedyOutcome("proc/a1", "same", "1", "1"),
    RemedyOutcome("proc/a2", "same", "1", "1"),
    RemedyOutcome("etc/y", "kept", "a", "b", "changed by another program"),
    RemedyOutcome("etc/z", "failed", "a", "b", "Read-only file system"),
)


def finding(id: str, status: str, found: str, *, fix: str | None = None) -> Finding:
    text = message("common.interrupted")
    remedy = None if fix is None else Remedy(text, fix=fix)
    title = message(f"doctor.{id}.title")
    return Finding(status, text, found, remedy=remedy, id=id, title=title, why=text, source="docs")


BEFORE = (
    finding("memory.hugepages", "fail", "0", fix="hugepages"),
    finding("cpu.governor", "warn", "powersave", fix="governor"),
    finding("memory.nofile", "warn", "1024", fix="limits"),
    finding("kernel.iommu", "fail", "none"),
    finding("cards.count", "ok", "8", fix="none"),
)
AFTER = (
    finding("memory.hugepages", "ok", "15,000 x 2 MiB"),
    finding("cpu.governor", "warn", "powersave"),
)


def test_repairs_and_their_outcomes(
    plain_english: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "proc/sys/vm").mkdir(parents=True)
    (tmp_path / "proc/sys/vm/nr_hugepages").write_text("0\n")

    def changes() -> None:
        out = console()
        doctor.show_changes(out, tmp_path, CHANGES)

    views(
        capsys,
        "doctor-fix",
        [
            lambda: doctor.show_outcomes(console(), OUTCOMES),
            lambda: doctor.show_again(console(), BEFORE, AFTER, CHANGES),
            lambda: doctor.show_again(console(), BEFORE, AFTER, CHANGES[:1]),
            lambda: doctor.show_again(console(), BEFORE, AFTER, ()),
            lambda: doctor.show_bundle(Path("/b.tar.gz"), 12, True),
            lambda: doctor.show_bundle(Path("/b.tar.gz"), 12, False),
            lambda: doctor.show_declined(False),
            lambda: doctor.show_declined(True),
        ],
        [for_programs(capsys, lambda: doctor.show_undone(Path("/"), OUTCOMES[:1], True))],
    )
    capsys.readouterr()
    changes()
    shown = capsys.readouterr().out.replace(str(tmp_path), "/root")
    golden("view-doctor-changes.txt", stripped(shown))


def test_what_was_reverted(plain_english: None, capsys: pytest.CaptureFixture[str]) -> None:
    failed = for_programs(capsys, lambda: doctor.show_undone(Path("/"), OUTCOMES, True))
    assert failed["exit_code"] == 1
    assert doctor.show_undone(Path("/"), OUTCOMES, False) == 1
    assert doctor.show_undone(Path("/r"), (), False) == 0
    assert "/r" in capsys.readouterr().out.splitlines()[-1]
