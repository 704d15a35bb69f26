"""Help: grouped, readable at any width, in both languages, with a short form for the long
commands."""

from __future__ import annotations

import re
import shlex

import pytest

from gaudi_launch.cli.command_app import HelpCommand, HelpGroup
from gaudi_launch.cli.first_options import every_first_option
from gaudi_launch.cli.help import HelpEntry, HelpPage, HelpSection, examples, layout
from gaudi_launch.cli.main import run
from gaudi_launch.cli.table import COMMANDS, FIRST_COMMANDS, GROUPS
from gaudi_launch.cli.translated import translations
from gaudi_launch.cli.wrapping import cells, wrapped
from tests.support.help_texts import FoundCommand, all_commands

ALL = {each.path: each for each in all_commands()}
FOUND = list(ALL.values())
CHINESE = re.compile(r"[\u4e00-\u9fff]")

pytestmark = pytest.mark.usefixtures("plain_english")


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run([*words]) == 0
    return capsys.readouterr().out


def test_every_command_is_in_one_group() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(COMMANDS)


def test_the_groups_are_in_the_help_most_used_first(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--help-all")
    titles = re.findall(r"(?m)^(\S[^:\n]*):$", text)
    assert titles == [
        *("Start and watch", "Plan", "Machine", "Models", "More machines", "Maintain"),
        *("Options", "Examples"),
    ]
    assert re.findall(r"(?m)^  ([a-z]+) ", text)[:3] == ["serve", "ps", "status"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_first_screen_and_a_prompt_fit_24_rows_of_80_columns(
    language: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = shown(capsys, "--help", "--lang", language).splitlines()
    assert len(lines) < 24 and max(map(cells, lines)) <= 80
    assert tuple(line.split()[0] for line in lines if line.startswith("  ")) == FIRST_COMMANDS
    assert any(line.endswith("gaudi-launch migrate 'COMMAND'") for line in lines)


LISTS = {"--help-all": [*COMMANDS]}
for path in ALL:
    group, _, name = path.partition(" ")
    if name:
        LISTS.setdefault(f"{group} --help", []).append(name)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("line", LISTS)
def test_each_command_has_one_line_of_80_columns_in_the_list(
    line: str, language: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = shown(capsys, *line.split(), "--lang", language)
    folded = [name for name in LISTS[line] if not re.search(rf"(?m)^  {name} +\S.*[.。]$", text)]
    assert folded == []


@pytest.mark.parametrize("found", FOUND, ids=[each.path or "program" for each in FOUND])
def test_completion_is_installed_by_the_program_only(found: FoundCommand) -> None:
    spellings = {
        spelling for param in found.command.get_params(found.context) for spelling in param.opts
    }
    assert ("--install-completion" in spellings) == (found.path == "")
    assert {"-h", "--help"} <= spellings
    assert isinstance(found.command, HelpCommand | HelpGroup)


@pytest.mark.parametrize("width", [40, 80, 100])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_line_of_text_is_wider_than_the_terminal(
    width: int, language: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for path in ("", "serve", "cache", "cache prune", "doctor", "bench", "render kubernetes"):
        text = shown(capsys, *path.split(), "--help", "--lang", language)
        wide = [
            line for line in text.splitlines() if cells(line) > width and not _is_one_piece(line)
        ]
        assert wide == []


def _is_one_piece(line: str) -> bool:
    """Report whether a line may not be broken: an example, or the name of an option."""
    return line.startswith(("  gaudi-launch ", "  -", "      --")) or len(line.split()) == 1


@pytest.mark.parametrize("path", list(every_first_option()))
def test_the_short_help_shows_the_options_that_matter(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    short = shown(capsys, *path.split(), "--help")
    complete = shown(capsys, *path.split(), "--help-all")
    spelled = re.findall(
        r"(?m)^  (?:(-\w), |    )(--[a-z-]+)", short.split("Options:")[1].split("\n\n")[0]
    )
    named = [
        short_name if short_name in every_first_option()[path] else long
        for short_name, long in spelled
    ]
    assert named == [*every_first_option()[path], "--help-all", "--help"]
    assert len(every_first_option()[path]) <= 10
    every = {
        spelling
        for param in ALL[path].command.params
        for spelling in param.opts
        if spelling.startswith("--") and not param.hidden
    }
    assert [spelling for spelling in every if f"{spelling}" not in complete] == []
    assert any(spelling not in short for spelling in every)


def test_an_option_that_the_short_help_leaves_out_works(capsys: pytest.CaptureFixture[str]) -> None:
    words = "plan -w Qwen/Qwen3-8B --machine simulated:hls2 --tuning reference --json"
    assert "--tuning" not in shown(capsys, "plan", "--help").split("Examples:")[0]
    assert run(words.split()) == 0


def test_help_all_after_two_dashes_is_the_engines(capsys: pytest.CaptureFixture[str]) -> None:
    run(
        ["plan", "-w", "Qwen/Qwen3-8B", "--machine", "simulated:hls2", "--json", "--", "--help-all"]
    )
    assert "Usage:" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("variable", "value"),
    [("GAUDI_LAUNCH_LANG", "zh"), ("LC_ALL", "zh_CN.UTF-8"), ("LANG", "zh_CN.UTF-8")],
)
def test_the_environment_chooses_the_language(
    variable: str, value: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GAUDI_LAUNCH_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    assert shown(capsys, "serve", "--help").startswith("用法： gaudi-launch serve")


@pytest.mark.parametrize("found", FOUND, ids=[each.path or "program" for each in FOUND])
def test_each_help_is_chinese_where_chinese_is_wanted(
    found: FoundCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*found.path.split(), "--help"] if found.path else ["--help-all"]
    text = shown(capsys, *words, "--lang", "zh")
    for line in text.splitlines():
        if re.match(r"\S.*[:：]$", line):
            assert CHINESE.search(line) and line.endswith("："), line
    assert "Show this help" not in text and "显示本帮助" in text


def test_chinese_help_has_full_width_punctuation() -> None:
    half = re.compile(
        r"[\u4e00-\u9fff][,;:!?]|[,;!?] "
        r"?[\u4e00-\u9fff]|[\u4e00-\u9fff]\.($|\s)|[\u4e00-\u9fff] ?\("
    )
    assert [text for text in translations("zh").values() if half.search(text)] == []


def test_a_narrow_terminal_has_the_text_below_the_name() -> None:
    entries = (HelpEntry("-n, --cards N", "Number of cards."), HelpEntry("    --force", "Go."))
    page = HelpPage("gaudi-launch x [OPTIONS]", ("Do it.",), (HelpSection("Options", entries),))
    narrow = (
        "Usage: gaudi-launch x\n  [OPTIONS]\n\nDo it.\n\nOptions:\n  -n, --cards N\n"
        "      Number of cards.\n"
    )
    assert layout(page, 24, coloured=False) == narrow + "      --force\n      Go."
    wide = (
        "Usage: gaudi-launch x [OPTIONS]\n\nDo it.\n\nOptions:\n  -n, --cards N  Number of cards.\n"
    )
    assert layout(page, 80, coloured=False) == wide + "      --force    Go."


def test_names_are_coloured_where_the_terminal_has_colours() -> None:
    page = HelpPage("x", (), (HelpSection("Options", (HelpEntry("--a", "A."),)),))
    assert layout(page, 80, coloured=True) == (
        "\x1b[1mUsage: x\x1b[0m\n\n\x1b[1mOptions:\x1b[0m\n  \x1b[36m--a\x1b[0m  A."
    )


def test_chinese_breaks_between_characters_and_never_before_a_comma() -> None:
    lines = wrapped("显示服务（docker），等待请求完成。", 10)
    assert "".join(lines) == "显示服务（docker），等待请求完成。"
    assert all(cells(line) <= 12 and line[0] not in "，。）" and line[-1] != "（" for line in lines)


def test_each_example_is_of_its_command_and_explained_in_both_languages() -> None:
    known = translations("zh")
    for path, found in ALL.items():
        for line, meaning in examples()[path].items():
            whole = f"gaudi-launch {path}".strip()
            assert whole in line
            words = shlex.split(line.partition(whole)[2])
            assert meaning[0].isupper()
            assert CHINESE.search(known[meaning])
            assert _unknown_options(found, words) == []


def _unknown_options(found: FoundCommand, words: list[str]) -> list[str]:
    """Return the options of an example that its command does not have.

    The example of a group is that of one of its commands.
    """
    if isinstance(found.command, HelpGroup):
        return []
    known = {name for param in found.command.get_params(found.context) for name in param.opts}
    known |= {"--lang", "--debug"}
    ours = words
    for end in ("--", "|", "&&"):
        if end in ours:
            ours = ours[: ours.index(end)]
    given = [
        word.partition("=")[0] for word in ours if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word)
    ]
    return [name for name in given if name not in known]
