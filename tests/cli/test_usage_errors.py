"""Usage errors: nearest names, colours and line breaks.

Their sentences are recorded in data/golden/refusals.
"""

from __future__ import annotations

from contextlib import redirect_stderr
from io import StringIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.cli.foreign_options import other_names
from gaudi_launch.cli.main import run
from gaudi_launch.cli.nearest import nearest, suggestion
from gaudi_launch.cli.table import COMMANDS
from gaudi_launch.core.base.errors import ExitCode, LaunchError

pytestmark = pytest.mark.usefixtures("plain_english")


def test_every_command_of_another_tool_is_one_that_we_have() -> None:
    for theirs, ours in other_names("commands").items():
        assert theirs not in COMMANDS
        assert ours.split()[0] in COMMANDS or ours.startswith("--")


# quotes, escapes and controls are written in several ways by the library of options
@settings(deadline=None, max_examples=40)
@given(st.text(st.sampled_from("ab'\"\\\t\n\x1b. é中"), min_size=1))
def test_any_word_that_is_no_command_is_refused_with_its_name(word: str) -> None:
    for words in ([word], ["stack", word]):
        with redirect_stderr(StringIO()) as shown:
            assert run(words) == 2
        assert "".join(word.split()) in "".join(shown.getvalue().split())


def test_a_model_that_the_hub_does_not_have_is_answered_with_the_nearest() -> None:
    hub = {"source": "https://huggingface.co", "token": "HF_TOKEN"}
    error = LaunchError("models.not_on_hub", ExitCode.MODEL, model="Qwen/Qwn3-8B", **hub)
    assert suggestion(error) == ("Qwen/Qwn3-8B", ("Qwen/Qwen3-8B", "Qwen/Qwen3-32B"))
    model = "Qwen/Qwen3-8B"
    offline = LaunchError("models.offline", ExitCode.MODEL, model=model, source="h", why="w")
    assert not suggestion(offline)[1]


def test_only_names_as_near_as_the_nearest_are_suggested() -> None:
    assert nearest("--hlep", ["--help", "--name", "--helper"]) == ["--help"]
    assert nearest("HLS2", ["hls2", "gaudi2e-8"]) == ["hls2"]


def test_an_error_without_known_names_suggests_nothing() -> None:
    for id, code, known in (
        ("plan.no_model", ExitCode.USAGE, "-"),
        ("engines.unknown", ExitCode.USAGE, "-"),
        ("engines.unknown", ExitCode.MACHINE, "cpu"),
    ):
        assert not suggestion(LaunchError(id, code, found="cp", known=known))[1]


def test_errors_are_coloured_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    run(["serv"])
    assert capsys.readouterr().err.startswith("\x1b[1;31mgaudi-launch:\x1b[0m There")
    monkeypatch.setenv("NO_COLOR", "1")
    run(["serv"])
    assert capsys.readouterr().err.startswith("gaudi-launch: There")
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    run(["serv"])
    assert capsys.readouterr().err.startswith("gaudi-launch: There")


# the second has the reason of the failed search below its sentence
@pytest.mark.parametrize(("words", "rows"), [("--zzz", 1), ("nosuch/model -n 1", 2)])
def test_a_long_error_is_broken_between_words_where_the_width_is_known(
    words: str, rows: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    run(["estimate", *words.split()])
    whole = capsys.readouterr().err.splitlines()
    monkeypatch.setenv("COLUMNS", "40")
    run(["estimate", *words.split()])
    lines = capsys.readouterr().err.splitlines()
    assert len(whole) == rows and len(lines) > 2 and all(len(line) <= 40 for line in lines)
    assert " ".join(lines) == " ".join(whole)
