"""``gaudi-launch help``: questions with their commands, and the help of one command."""

from __future__ import annotations

import shlex

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.cli.table import COMMANDS, FIRST_COMMANDS, GROUPS
from gaudi_launch.cli.wrapping import cells
from gaudi_launch.commands.help.questions import every_question
from gaudi_launch.commands.help.view import question_lines, questions_markdown
from gaudi_launch.core.base.messages import set_language
from tests.support.cli import golden, reading
from tests.support.help_texts import all_commands
from tests.support.places import TOP

pytestmark = pytest.mark.usefixtures("plain_english")

ALL = [each for questions in every_question().values() for each in questions]


def test_every_command_answers_a_question() -> None:
    assert sorted({each.arguments.split()[0] for each in ALL}) == sorted(COMMANDS)


def test_a_question_is_in_the_group_of_its_command() -> None:
    assert list(every_question()) == list(GROUPS)
    for title, questions in every_question().items():
        for each in questions:
            name = each.arguments.split()[0]
            assert name in GROUPS[title] or name in ("serve", "plan"), each


def test_every_command_of_the_page_and_its_options_exist() -> None:
    known = {found.path: found for found in all_commands()}
    for each in ALL:
        words = shlex.split(each.arguments)
        path = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
        spellings = {
            spelling
            for param in known[path].command.get_params(known[path].context)
            for spelling in param.opts
        }
        assert [word for word in words if word.startswith("-") and word not in spellings] == []


def test_help_shows_a_question_for_each_first_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    asked = [line.partition("?  ")[2].split()[1] for line in lines if "?  " in line]
    assert asked == [*FIRST_COMMANDS]
    assert lines[-1] == f"All {len(ALL)} questions: gaudi-launch help questions"


def test_the_program_is_named_where_there_is_room() -> None:
    wide, middle = (list(question_lines(ALL, width, coloured=False)) for width in (100, 80))
    assert "  Why did it fail?                           gaudi-launch why" in wide
    assert "  Why did it fail?                           why" in middle
    assert "Each command begins with gaudi-launch." in middle and "Each command" not in "".join(
        wide
    )
    assert max(map(cells, middle)) <= 80


def test_help_is_an_object_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    document = reading(capsys, "help")
    assert document["schema"] == 1
    assert document["questions"][0] == {
        "group": "Start and watch",
        "id": "questions.try",
        "question": "Can I try it without a card?",
        "command": "gaudi-launch serve demo",
    }


def test_help_of_a_command_is_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "cache", "prune"]) == 0
    helped = capsys.readouterr().out
    assert run(["cache", "prune", "--help"]) == 0
    assert capsys.readouterr().out == helped


def test_help_of_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "cahce"]) == 2
    assert "Did you mean cache?" in capsys.readouterr().err
    assert run(["help", "ps", "more"]) == 2
    assert "'more'" in capsys.readouterr().err


def test_a_narrow_terminal_has_the_command_below_the_question() -> None:
    lines = list(question_lines(ALL, 40, coloured=False))
    at = lines.index("  Why did it fail?")
    assert lines[at + 1] == "      gaudi-launch why"
    assert all(cells(line) <= 40 for line in lines if not line.startswith("      "))


@pytest.mark.parametrize(("language", "name"), [("en", "questions.md"), ("zh", "questions_zh.md")])
def test_the_page_of_the_documentation_is_the_same(language: str, name: str) -> None:
    set_language(language)
    golden(name, questions_markdown(), TOP / "docs")


def test_a_term_is_found_in_commands_questions_and_pages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = reading(capsys, "help", "Alerts")
    assert found["commands"][0] == "gaudi-launch help render monitoring"
    assert [page["name"] for page in found["pages"]] == ["tutorial", "monitoring"]
    assert run(["help", "prometheus"]) == 0
    out = capsys.readouterr().out
    assert (
        "  exporter  How do I monitor it with Prometheus?\n" in out and "  help monitoring" in out
    )


def test_a_page_with_the_name_of_a_command_is_named_below_its_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["help", "stack"]) == 0
    assert capsys.readouterr().out.endswith(
        "\n\nThe page of this name: gaudi-launch help stack.md\n"
    )
    assert run(["help", "stack.md"]) == 0
    assert capsys.readouterr().out.startswith("# Several models from one file\n")
