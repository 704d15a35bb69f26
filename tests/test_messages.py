"""The catalogues: every sentence in both languages with the same placeholders, and every id that
code uses."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from string import Formatter

import pytest

from gaudi_launch import messages
from gaudi_launch.doctor.runner import CHECKS

PACKAGE = Path(messages.__file__).parent
AREAS = sorted(path.name for path in (PACKAGE / "locale/en").glob("*.json"))
# functions whose first text argument is an id; the doctor's helpers take it in these places
FIRST = {"message", "text", "Message", "LaunchError", "warn", "fail", "skip", "unknown", "boot"}


def load(language: str, area: str) -> dict[str, str]:
    pairs: list[tuple[str, str]] = json.loads(
        (PACKAGE / "locale" / language / area).read_text(encoding="utf-8"), object_pairs_hook=list
    )
    assert len(pairs) == len(dict(pairs)), f"{language}/{area} names an id twice"
    return dict(pairs)


def placeholders(template: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(template) if name is not None}


def test_both_languages_have_the_same_files() -> None:
    assert AREAS
    assert sorted(path.name for path in (PACKAGE / "locale/zh").glob("*.json")) == AREAS


@pytest.mark.parametrize("area", AREAS)
def test_both_languages_say_the_same_things(area: str) -> None:
    english, chinese = load("en", area), load("zh", area)
    assert english.keys() == chinese.keys()
    different = {id for id in english if placeholders(english[id]) != placeholders(chinese[id])}
    assert different == set()
    assert [id for id in english if not english[id].strip() or not chinese[id].strip()] == []


def test_no_id_stands_in_two_files() -> None:
    ids = [id for area in AREAS for id in load("en", area)]
    assert len(ids) == len(set(ids))


def used_ids(source: str) -> set[str]:
    """Ids that this code gives to the functions that look them up."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        if name not in FIRST:
            continue
        for argument in [
            *node.args,
            *(keyword.value for keyword in node.keywords if keyword.arg == "id"),
        ]:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                word = argument.value
                if "." in word and " " not in word and f"{word.partition('.')[0]}.json" in AREAS:
                    found.add(word)
    return found


def test_every_id_in_the_code_exists() -> None:
    known = {id for area in AREAS for id in load("en", area)}
    used = {
        id: path
        for path in PACKAGE.rglob("*.py")
        for id in used_ids(path.read_text(encoding="utf-8"))
    }
    assert len(used) > 200
    assert {
        id: str(path.relative_to(PACKAGE)) for id, path in used.items() if id not in known
    } == {}


@pytest.mark.parametrize("language", messages.LANGUAGES)
def test_every_check_has_title_and_why(language: str) -> None:
    known = messages.catalogue(language)
    wanted = {sentence.id for check in CHECKS for sentence in (check.title, check.why)}
    assert wanted - known.keys() == set()


def test_the_finder_finds() -> None:
    assert used_ids(
        'raise LaunchError("doctor.none", X)\nwarn("doctor.a.b", "x", id="doctor.c")'
    ) == {
        "doctor.none",
        "doctor.a.b",
        "doctor.c",
    }


def test_an_unknown_id_is_shown_with_its_values() -> None:
    assert messages.text("no.such", path="/x", why=3) == "no.such path=/x why=3"


@pytest.mark.usefixtures("plain_english")
def test_a_sentence_that_lacks_a_value_is_shown_with_those_that_it_has() -> None:
    template = messages.catalogue("en")["profiles.unknown"]
    assert messages.text("profiles.unknown", found="x") == f"{template} found=x"


def test_a_sentence_that_is_not_translated_is_english(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"en": {"a.b": "{n} cards", "a.c": "both"}, "zh": {"a.c": "两者"}}
    monkeypatch.setattr(messages, "catalogue", known.__getitem__)
    assert [messages.text(id, "zh", n=2) for id in ("a.b", "a.c")] == ["2 cards", "两者"]


@pytest.mark.parametrize(
    ("variables", "language"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "en_US.UTF-8"}, "en"),
        ({"LC_MESSAGES": "en_US.UTF-8", "LC_ALL": "ZH_TW"}, "zh"),
        ({"LC_ALL": "zh_CN", "GAUDI_LAUNCH_LANG": "en"}, "en"),
        ({"LC_ALL": "C", "GAUDI_LAUNCH_LANG": "zh"}, "zh"),
        ({"LANG": "zh_CN", "LC_ALL": "", "GAUDI_LAUNCH_LANG": ""}, "zh"),
        ({"LANG": "fr_FR"}, "en"),
    ],
)
@pytest.mark.usefixtures("plain_english")
def test_the_first_variable_that_is_set_gives_the_language(
    variables: dict[str, str], language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GAUDI_LAUNCH_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert messages.language() == language


@pytest.mark.usefixtures("plain_english")
def test_a_chosen_language_is_stronger_than_the_environment() -> None:
    messages.set_language("zh")
    assert (messages.language(), messages.text("common.interrupted")) == ("zh", "已中断。")
    messages.set_language("fr")
    assert (messages.language(), messages.text("common.interrupted")) == ("en", "Interrupted.")


@pytest.mark.usefixtures("plain_english")
def test_a_message_is_rendered_late_and_equal_ones_are_one() -> None:
    made = messages.message("profiles.missing", where="/", name="a")
    assert made == messages.Message("profiles.missing", {"name": "a", "where": "/"})
    assert [made.render(), made.render("zh")] == ["/ lacks a.", "/ 缺少 a。"]
    lists = [messages.message("a.b", known=["x"], other=1), messages.message("a.b", known=["y"])]
    assert len({made, messages.message("profiles.missing", name="a", where="/"), *lists}) == 3
