"""The catalogues: every sentence in both languages with the same placeholders, and every id that
code uses."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from string import Formatter
from typing import get_args

import pytest

from gaudi_launch.cli.views.memory_bar import PARTS
from gaudi_launch.core.base import messages
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.doctor.runner import CHECKS
from gaudi_launch.core.engines.entries import names
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.hosts.differences import Level
from gaudi_launch.core.planning.plan import Source
from gaudi_launch.core.planning.support_answer import SupportStatus
from gaudi_launch.core.predict.published import Kind
from gaudi_launch.extensions.acceptance.records import STATUSES, all_steps
from gaudi_launch.extensions.bench import compare
from gaudi_launch.extensions.bench.check import rows as check_rows
from tests.support.places import PACKAGE

FOLDERS = [path.parent.relative_to(PACKAGE).as_posix() for path in messages.catalogue_files("en")]
# functions whose first text argument is an id; the doctor's helpers take it in these places
FIRST = {"message", "text", "Message", "LaunchError", "file_error"}
FIRST |= {"warn", "fail", "skip", "unknown", "boot"}


def load(language: str, folder: str) -> dict[str, str]:
    pairs: list[tuple[str, str]] = json.loads(
        (PACKAGE / folder / f"{language}.json").read_text(encoding="utf-8"), object_pairs_hook=list
    )
    assert len(pairs) == len(dict(pairs)), f"{folder}/{language}.json names an id twice"
    return dict(pairs)


ENGLISH = {id: folder for folder in FOLDERS for id in load("en", folder)}
AREAS = {id.partition(".")[0] for id in ENGLISH}


def placeholders(template: str) -> set[str]:
    parts = [(name, form) for _, name, form, _ in Formatter().parse(template) if name is not None]
    return {name for name, _ in parts}.union(*(placeholders(form or "") for _, form in parts))


def test_both_languages_have_the_same_files() -> None:
    chinese = [path.parent.relative_to(PACKAGE) for path in messages.catalogue_files("zh")]
    assert [path.as_posix() for path in chinese] == FOLDERS != []


@pytest.mark.parametrize("folder", FOLDERS)
def test_both_languages_say_the_same_things(folder: str) -> None:
    english, chinese = load("en", folder), load("zh", folder)
    assert english.keys() == chinese.keys()
    different = {id for id in english if placeholders(english[id]) != placeholders(chinese[id])}
    assert different == set()
    assert [id for id in english if not english[id].strip() or not chinese[id].strip()] == []


def test_a_sentence_is_in_a_folder_that_its_users_may_import() -> None:
    """An extension can be left out with its sentences; none of the core's is lost with it."""
    wrong = {
        id: (ENGLISH[id], path.relative_to(PACKAGE).as_posix())
        for path in PACKAGE.rglob("*.py")
        for id in used_ids(path.read_text(encoding="utf-8")) & ENGLISH.keys()
        if _height(ENGLISH[id]) > _height(path.relative_to(PACKAGE).as_posix())
    }
    assert wrong == {}


def _height(path: str) -> int:
    return ("core", "cli", "commands", "extensions").index(path.partition("/")[0])


def test_no_id_stands_in_two_files() -> None:
    ids = [id for folder in FOLDERS for id in load("en", folder)]
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
                if "." in word and " " not in word and word.partition(".")[0] in AREAS:
                    found.add(word)
    return found


def test_every_id_in_the_code_exists() -> None:
    known = ENGLISH.keys()
    used = {
        id: path
        for path in PACKAGE.rglob("*.py")
        for id in used_ids(path.read_text(encoding="utf-8"))
    }
    assert len(used) > 200
    assert {
        id: str(path.relative_to(PACKAGE)) for id, path in used.items() if id not in known
    } == {}


def composed(node: ast.JoinedStr) -> str:
    """Return a pattern of the texts of an f-string."""
    parts = (str(each.value) if isinstance(each, ast.Constant) else "" for each in node.values)
    return "".join(re.escape(part) or ".+" for part in parts)


def test_every_id_is_used_in_the_code() -> None:
    literal: set[str] = set()
    patterns: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                literal.add(node.value)
            elif isinstance(node, ast.JoinedStr):
                patterns.add(composed(node))
        document = path.with_suffix(".json")  # that the module reads
        if document.is_file():
            literal |= set(re.findall(r'"([a-z_.]+)"', document.read_text(encoding="utf-8")))
    # one with a point between area and name
    pattern = re.compile(
        "|".join(each for each in patterns if re.search(r"\\\.[a-z]|[a-z]\\\.", each))
    )
    known = ENGLISH.keys()
    assert {id for id in known - literal if not pattern.fullmatch(id)} == set()


# what stands in the hole of a composed id, where the code has a type for it
VALUES: dict[str, tuple[str, ...]] = {
    "accept.step.{}": tuple(all_steps()),
    "accept.do.{}": ("wrong", *filter(None, (each.remedy for each in all_steps().values()))),
    "accept.status.{}": STATUSES,
    "cluster.word_{}": get_args(Level),
    "engines.can_{}": tuple({word for name in names() for word in find(name).can}),
    "estimate.class_{}": tuple(kind.value for kind in Kind),
    "measure.check_verdict_{}": get_args(check_rows.Verdict),
    "measure.answer_{}": get_args(compare.Verdict),
    "measure.verdict_{}": get_args(compare.Verdict),
    "plan.part_{}": tuple(part.name for part in PARTS),
    "plan.source_{}": get_args(Source),
    "support.answer_{}": tuple(status.value for status in SupportStatus),
}

# whose values are data: a new composed id belongs above, or is written out
OF_DATA = """
cache.state_{} cache.word_{} calibrate.phase_{} diagnose.{} diagnose.{}_fix doctor.{}.title
doctor.{}.why engines.diff_{} engines.problem_{} estimate.part_{} estimate.row_{}
estimate.load_{} features.name_{} features.{} host.devices_use_{} kube.phase_{}
measure.arrivals_{} measure.check_name_{} measure.column_{} measure.fail_{} measure.name_{}
models.word_{} offline.column_{} offline.{} plan.cache_{} recommend.goal_{} recommend.other_{}
services.history_{} services.word_{} support.kind_{} watch.col_{} watch.disk_{} watch.no_{}
watch.no_{}_match watch.phase_{} warmup.column_{}
"""


def composed_ids(tree: ast.Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each composed id of this code with the values of its hole, () where they vary.

    Values are those of a loop over words, written in it or named in the module.
    """
    named = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    loops = {
        (each.target.id, call): named.get(getattr(each.iter, "id", ""), each.iter)
        for outer in ast.walk(tree)
        for each in [*getattr(outer, "generators", ()), outer]
        if isinstance(each, ast.For | ast.comprehension) and isinstance(each.target, ast.Name)
        for call in ast.walk(outer)
    }
    for call in ast.walk(tree):
        name = getattr(getattr(call, "func", None), "attr", getattr(call, "func", None))
        if getattr(name, "id", name) not in FIRST:
            continue
        for argument in getattr(call, "args", ()):
            if not isinstance(argument, ast.JoinedStr):
                continue
            holes = [each.value for each in argument.values if isinstance(each, ast.FormattedValue)]
            words = "".join(
                str(each.value) if isinstance(each, ast.Constant) else "{}"
                for each in argument.values
            )
            if words.partition(".")[0] not in AREAS:
                continue
            over = loops.get((getattr(holes[0], "id", ""), call))
            values: tuple[str, ...] = ()
            if isinstance(over, ast.Tuple | ast.List):
                values = tuple(str(getattr(each, "value", "")) for each in over.elts)
            yield words, values or VALUES.get(words, ())


def test_every_composed_id_exists_with_each_of_its_values() -> None:
    known = ENGLISH.keys()
    wrong: set[str] = set()
    of_data: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for template, values in composed_ids(ast.parse(path.read_text(encoding="utf-8"))):
            wrong |= {template.replace("{}", value) for value in values} - known
            if not values:
                of_data.add(template)
    assert wrong == set()
    assert of_data == set(OF_DATA.split())
    patterns = {each: re.escape(each).replace(r"\{\}", r"[\w.]+") for each in of_data}
    unmatched = {each for each, one in patterns.items() if not re.search(one, " ".join(known))}
    assert unmatched == set()


# the catalogues of extensions follow with their commands
OURS = [folder for folder in FOLDERS if not folder.startswith("extensions")]
NOUNS = (
    "card|graph|file|request|process|check|warm-up|measurement|service|package|bucket|module"
    "|prompt|setting|replica|host|server|layer|head|block|row|difference|connection|profile|token"
    "|image|step|launch|level|weight|day|change|node|chunk|shape|expert|warning|failure|figure"
)
NOT_COUNTS = "rate|throughput|product|dtype|method|found|version|times|input|output"
NOT_WORDS = "of|in|on|over|per|to|and|with|keeps"
PLURAL = re.compile(rf"\{{(?!{NOT_COUNTS})\w+\}} ((?!{NOT_WORDS})[a-z-]+ )?({NOUNS})(s|es)\b")
OF_ONE = re.compile(rf"\b1 ([A-Za-z-]+ )?({NOUNS}) (are|were|have|need)\b")
PATHS = dict.fromkeys(("path", "file", "log", "source", "place"), "/p")


@pytest.mark.parametrize("folder", OURS)
def test_a_count_is_right_for_1_and_what_was_expected_has_one_form(folder: str) -> None:
    wrong: list[str] = []
    for id, template in load("en", folder).items():
        one = text(id, "en", **dict.fromkeys(placeholders(template), 1))
        plural = PLURAL.search(template) or "(s)" in template.replace("run (s)", "")
        if plural or OF_ONE.search(one):
            wrong.append(one)
        if re.search(r"Expected|\bexpected: |\b(is|was|are) expected", template):
            wrong.append(template)
    assert wrong == []


@pytest.mark.parametrize("language", messages.LANGUAGES)
def test_a_missing_value_is_a_word(language: str) -> None:
    for id, template in messages.catalogue(language).items():
        for value in (None, "-"):
            values = {**dict.fromkeys(placeholders(template), value), **PATHS}
            shown = text(id, language, **values)
            assert not re.search(r"=None|: (None|-)[.;)]|\((None|-)\)", shown), id


@pytest.mark.parametrize("folder", OURS)
def test_chinese_has_chinese_units_of_time(folder: str) -> None:
    unit = re.compile(r"\} ?(s|min|h|d)\b(?!/)")
    assert [id for id, template in load("zh", folder).items() if unit.search(template)] == []


@pytest.mark.parametrize("language", messages.LANGUAGES)
def test_every_check_has_title_and_why(language: str) -> None:
    known = messages.catalogue(language)
    wanted = {sentence.id for check in CHECKS for sentence in (check.title, check.why)}
    assert wanted - known.keys() == set()


def test_the_finder_finds() -> None:
    assert used_ids(
        'raise LaunchError("doctor.none", X)\nwarn("doctor.a.b", "x", id="doctor.c")'
    ) == {"doctor.none", "doctor.a.b", "doctor.c"}


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
