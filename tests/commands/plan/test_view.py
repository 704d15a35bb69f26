"""The first screen of a plan on terminals of several sizes, in both languages."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from gaudi_launch.cli import short_page
from gaudi_launch.cli.main import run
from gaudi_launch.cli.options import LaunchOptions
from gaudi_launch.cli.views.memory_bar import shares
from gaudi_launch.commands.plan import view
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.doctor.runner import CHECKS, judge
from gaudi_launch.core.launch.route import checked_plan
from gaudi_launch.core.launch.todo import CheckedPlan
from gaudi_launch.core.planning.model_name import INCOMPLETE
from tests.support.cli import golden
from tests.support.doctor_machines import facts
from tests.support.screens import screen

COMMAND = "plan Qwen/Qwen2-72B-Instruct -n 4 --engine vllm-fork@1.21 --machine simulated:hls2"
WORDS = COMMAND.split()
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_first_screen(language: str, tmp_path: Path) -> None:
    words = [*WORDS, "--lang", language]
    shown = screen(words, home=tmp_path, environment={"XDG_DATA_HOME": "/data"})
    golden(f"screen-plan-{language}.txt", shown)


def test_a_terminal_of_ascii_gets_ascii(tmp_path: Path) -> None:
    ascii = {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "ascii",
    }
    shown = screen(WORDS, home=tmp_path, environment=ascii)
    assert shown.isascii()
    assert "[#####" in shown


@pytest.fixture
def checked(plain_english: None) -> CheckedPlan:
    options = LaunchOptions(
        model="Qwen/Qwen2-72B-Instruct", cards=4, engine="vllm-fork@1.21", machine="simulated:hls2"
    )
    return checked_plan(options)


def shown(
    checked: CheckedPlan,
    monkeypatch: pytest.MonkeyPatch,
    *,
    terminal: bool = True,
    height: int = 24,
) -> str:
    """Return the screen at 80 columns."""
    stream = io.StringIO()
    made = Console(
        file=stream,
        width=80,
        height=height,
        force_terminal=terminal,
        no_color=True,
        highlight=False,
    )
    for module in (view, short_page):
        monkeypatch.setattr(module, "console", lambda: made)
    view.show(checked, None, ("gaudi-launch", "serve", "m"))
    return _STYLE.sub("", stream.getvalue())


def with_warnings(checked: CheckedPlan, count: int) -> CheckedPlan:
    made = [
        message("plan.overruled", flags=f"Number {n} is so. " + "More words. " * 20)
        for n in range(count)
    ]
    return replace(checked, plan=replace(checked.plan, warnings=tuple(made)))


def test_many_warnings_do_not_push_the_verdict_off_the_screen(
    checked: CheckedPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = shown(with_warnings(checked, 30), monkeypatch)
    assert len(out.splitlines()) == 22
    shown_warnings = out.count("warning: ")
    assert f"{30 - shown_warnings} more warnings, complete sentences: --all" in out
    assert "More words" not in out


def test_a_tall_terminal_gets_complete_warnings(
    checked: CheckedPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = with_warnings(checked, 4)
    assert shown(few, monkeypatch).count("More words.") == 0
    assert shown(few, monkeypatch, height=60).count("More") == 80
    assert shown(few, monkeypatch, terminal=False).count("More words.") == 0


def verdict(checked: CheckedPlan, monkeypatch: pytest.MonkeyPatch) -> str:
    return shown(checked, monkeypatch).splitlines()[0]


def test_the_verdict_is_about_memory(checked: CheckedPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdict(checked, monkeypatch) == "Qwen2-72B-Instruct fits on 4 cards."
    unknown = replace(checked, plan=replace(checked.plan, memory={}, num_blocks=None))
    assert verdict(unknown, monkeypatch) == "Qwen2-72B-Instruct on 4 cards: memory was not checked."
    large = replace(checked.plan, memory={**checked.plan.memory, "free": 0.0}, num_blocks=None)
    assert (
        verdict(replace(checked, plan=large), monkeypatch)
        == "Qwen2-72B-Instruct does not fit on 4 cards."
    )
    warned = message("fit.tight", length=8448, used="90.3", card="93.5")
    tight = replace(checked, plan=replace(checked.plan, warnings=(warned,)))
    assert verdict(tight, monkeypatch) == "Qwen2-72B-Instruct on 4 cards: memory is too tight."


def test_what_refuses_is_the_verdict_and_serve_is_not_the_next_step(
    checked: CheckedPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = replace(checked.prepared, host=replace(checked.prepared.host, origin="live"))
    check = next(each for each in CHECKS if each.id == "cards.present")
    finding = judge(check, facts("hls2+no-driver"))
    out = shown(replace(checked, prepared=here, failed=(finding,)), monkeypatch)
    assert " ".join(out.split("\n\n")[0].split()) == (
        "serve would stop on this machine: 8 cards on the PCI bus, none shown by the driver. "
        "next: gaudi-launch doctor --only cards.present"
    )
    assert shown(checked, monkeypatch).splitlines()[1] == "next: gaudi-launch serve m"
    error = LaunchError(INCOMPLETE, ExitCode.MODEL, path="m", count=1, files="tokenizer.json")
    refused = shown(replace(checked, incomplete=error), monkeypatch)
    command = f"next: gaudi-launch inspect {checked.prepared.model.path}"
    assert " ".join(refused.split("\n\n")[0].split()) == f"{error} {command}"


def test_an_engine_on_the_cpu_has_no_line_on_cards_memory_or_warm_up(
    plain_english: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "demo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "demo runs on the CPU: no card is needed."
    labels = [line[:10].strip() for line in lines[lines.index("") + 1 :]]
    assert labels[:3] == ["engine", "model", "to do"]


def test_next_repeats_the_options_without_secrets(
    plain_english: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*WORDS, "--force", "--", "--api-key", "sesame"]) == 0
    command = capsys.readouterr().out.splitlines()[1]
    start = (
        "next: gaudi-launch serve Qwen/Qwen2-72B-Instruct -n 4 --engine vllm-fork@1.21 --force "
        "-- --api-key "
    )
    assert command.startswith(start)
    assert "sesame" not in command


@pytest.mark.parametrize("basis", ["published", "measured", "similar"])
def test_the_evidence_of_the_warm_up_is_a_sentence(
    basis: str, checked: CheckedPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimate = checked.plan.estimate
    assert estimate is not None
    evidence = {
        "published": "published figures",
        "measured": "measured on this host",
        "similar": "measured on this host with other models",
    }[basis]
    for cached, before in ((0, ""), (7, "7 graphs from the recipe cache; ")):
        changed = replace(estimate, basis=message(f"warmup.basis_{basis}", count=2), cached=cached)
        seen = shown(replace(checked, plan=replace(checked.plan, estimate=changed)), monkeypatch)
        assert f"after loading ({before}{evidence})" in " ".join(seen.split())


def test_all_and_verbose_show_every_setting(
    plain_english: None, capsys: pytest.CaptureFixture[str], checked: CheckedPlan
) -> None:
    for option in ("--all", "-v"):
        assert run([*WORDS, option]) == 0
        out = capsys.readouterr().out
        assert out.splitlines()[0] == "Qwen2-72B-Instruct fits on 4 cards."
        sources = {each.origin for each in checked.plan.settings if each.origin}
        shown = " ".join(out.split())
        assert {shown.count(f" {each} ") for each in sources} == {int(option == "-v")}
        missing = [each.name for each in checked.plan.settings if f"   {each.name} " not in out]
        assert [name for name in missing if f"   {name}\n" not in out] == []
        assert out.count("computed: the start script sets it") == 2


def test_small_parts_have_a_mark_and_the_bar_keeps_its_width() -> None:
    assert shares([1000.0, 0.1, 0.0, 0.1], 10) == [8, 1, 0, 1]
    assert shares([1.0, 1.0, 1.0], 10) == [4, 3, 3]
