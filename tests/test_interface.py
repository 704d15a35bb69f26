"""The public interface only grows: this tree has all that tests/data/interface records.

`scripts/interface.py` writes the record and, run again at a release, adds to it. What is deprecated
keeps working, warns, and has a line in CHANGELOG.md with a command that uses it: ``- `gaudi-launch
ps --old`: use `--new` ``.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from tests.support.scripts import script

TOP = Path(__file__).parents[1]
RECORD = TOP / "tests" / "data" / "interface"
NAMES = ("commands", "exit_codes", "messages", "json")

Documents = dict[str, dict[str, Any]]


def read(folder: Path) -> Documents:
    """Return the four documents of a folder by name."""
    return {
        name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in NAMES
    }


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> Documents:
    """Return the interface of this tree, collected by the script in a process of its own."""
    folder = tmp_path_factory.mktemp("interface")
    made = subprocess.run(
        [sys.executable, str(TOP / "scripts" / "interface.py"), str(folder)],
        capture_output=True,
        text=True,
    )
    assert (made.returncode, made.stderr) == (0, "")
    return read(folder)


@pytest.fixture(scope="module")
def recorded() -> Documents:
    return read(RECORD)


def deprecated() -> list[str]:
    """Return the command lines that CHANGELOG.md names as deprecated."""
    changelog = (TOP / "CHANGELOG.md").read_text(encoding="utf-8")
    return entries(changelog, "deprecated")


def changed() -> list[str]:
    """Return the options whose default CHANGELOG.md says has changed, each with its command."""
    changelog = (TOP / "CHANGELOG.md").read_text(encoding="utf-8")
    return entries(changelog, "changed")


def entries(changelog: str, heading: str) -> list[str]:
    """Return the first command line of each entry below a heading."""
    found: list[str] = []
    inside = False
    for line in changelog.splitlines():
        if line.startswith("#"):
            inside = line.strip("# ").lower() == heading
        entry = re.match(r"- `([^`]+)`", line)
        if inside and entry is not None:
            found.append(entry[1])
    return found


# --- rules: each yields what is gone --------------------------------------------------------------


def _given_by_default(option: dict[str, Any]) -> Any:
    """Return the default; an option that may be repeated is not given by None as by an empty
    list."""
    return None if option["default"] == [] else option["default"]


def gone(old: Documents, new: Documents, named: list[str]) -> list[str]:
    """Return a line for each recorded part of the interface that is not there any more."""
    return [
        *gone_commands(old["commands"], new["commands"], named),
        *gone_codes(old["exit_codes"], new["exit_codes"]),
        *(f"message id {id}" for id in old["messages"]["ids"] if id not in new["messages"]["ids"]),
        *gone_outputs(old["json"], new["json"]),
    ]


def gone_codes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name, value in old.items():
        if new.get(name) != value:
            yield f"exit code {name} = {value}"


def gone_commands(
    old: Mapping[str, Any], new: Mapping[str, Any], named: list[str]
) -> Iterator[str]:
    for command, parts in old.items():
        if command not in new:
            yield f"command {command}"
            continue
        yield from gone_options(command, parts["options"], new[command]["options"], named)
        for name, argument in parts["arguments"].items():
            yield from gone_argument(command, name, argument, new[command]["arguments"])


def gone_options(
    command: str, old: Mapping[str, Any], new: Mapping[str, Any], named: list[str]
) -> Iterator[str]:
    by_spelling = {
        spelling: option
        for option in new.values()
        for spelling in (*option["spellings"], *option.get("opposite", ()))
    }
    for option in old.values():
        for spelling in (*option["spellings"], *option.get("opposite", ())):
            found = by_spelling.get(spelling)
            if found is None:
                yield f"option {command} {spelling}"
                continue
            where = f"{command} {spelling}"
            yield from changed_option(where, option, found)
            same = _given_by_default(option) == _given_by_default(found)
            if not same and not found.get("hidden") and where not in named:
                yield f"{where}: default {option['default']!r}"
            hidden = found.get("hidden") and not option.get("hidden")
            if hidden and not any(spelling in shlex.split(line) for line in named):
                yield f"option {command} {spelling} is hidden, but CHANGELOG.md does not name it"


def changed_option(where: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    if old["takes_value"] != new["takes_value"]:
        yield f"{where}: takes_value"
    if old.get("multiple") and not new.get("multiple"):
        yield f"{where}: multiple"
    if new.get("required") and not old.get("required"):
        yield f"{where}: required"
    for choice in old.get("choices", ()):
        # choices that are no longer listed may be checked elsewhere; a shorter list is a loss
        if "choices" in new and choice not in new["choices"]:
            yield f"{where}: choice {choice}"


def gone_argument(
    command: str, name: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[str]:
    found = new.get(name)
    if found is None:
        yield f"argument {command} {name}"
    elif found["required"] and not old["required"]:
        yield f"argument {command} {name}: required"
    elif found["nargs"] != old["nargs"] and found["nargs"] != -1:
        yield f"argument {command} {name}: nargs {old['nargs']}"


def gone_outputs(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name, output in old.items():
        if name not in new:
            yield f"run {name}"
            continue
        found = new[name]
        for part in ("exit_code", "error"):
            if found.get(part) != output.get(part):
                yield f"{name}: {part} {output.get(part)}, now {found.get(part)}"
        for path, kinds in output["keys"].items():
            yield from gone_key(f"{name}: {path}", kinds, found["keys"].get(path))
        for path, ids in output.get("ids", {}).items():
            for id in ids:
                if id not in found.get("ids", {}).get(path, ()):
                    yield f"{name}: {path} {id}"


def gone_key(where: str, old: list[str], new: list[str] | None) -> Iterator[str]:
    if new is None:
        yield where
    elif not set(old) & set(new):
        if old != ["null"]:
            yield f"{where}: {old}, now {new}"
    elif old != ["null"] and set(new) - set(old) - {"null"}:
        yield f"{where}: {old}, now also {new}"


# --- tests ----------------------------------------------------------------------------------------


def test_nothing_that_is_recorded_is_gone(recorded: Documents, current: Documents) -> None:
    assert gone(recorded, current, deprecated() + changed()) == []


def test_every_key_has_a_meaning(current: Documents) -> None:
    missing = script("reference").without_meaning(current["json"])
    assert missing == [], (
        "add them to scripts/reference/json_keys.yaml; python scripts/reference.py"
    )


def test_every_key_has_an_example_and_every_number_a_unit(current: Documents) -> None:
    reference = script("reference")
    assert reference.without_example(current["json"]) == []
    assert reference.without_unit(current["json"]) == [], "the unit may be none"


def test_an_example_has_the_type_of_its_key(current: Documents) -> None:
    assert script("reference").with_other_example(current["json"]) == []


def test_the_page_of_the_keys_is_current(current: Documents) -> None:
    pages = script("reference").json_pages(current["json"])
    shown = {name: (TOP / "docs" / name).read_text(encoding="utf-8") for name in pages}
    assert shown == pages, "run python scripts/reference.py"


def test_what_is_deprecated_works_and_warns(capsys: pytest.CaptureFixture[str]) -> None:
    for line in deprecated():
        words = shlex.split(line)
        assert words[0] == "gaudi-launch"
        code = run(words[1:])
        warning = capsys.readouterr().err
        old = [word for word in words[1:] if word.startswith("-")] or words[1:2]
        assert code != 2, line
        assert any(word in warning for word in old), line


def test_the_changelog_is_read() -> None:
    entry = "- `gaudi-launch ps --old`: use `--new`."
    text = f"# C\n## Unreleased\n### Added\n- `a`\n### Deprecated\n\n{entry}\n## 0.1\n- `b`\n"
    assert entries(text, "deprecated") == ["gaudi-launch ps --old"]


def _drop_option(documents: Documents) -> None:
    del documents["commands"]["gaudi-launch plan"]["options"]["--machine"]


def _drop_spelling(documents: Documents) -> None:
    documents["commands"]["gaudi-launch plan"]["options"]["--cards"]["spellings"].remove("-n")


def _drop_command(documents: Documents) -> None:
    del documents["commands"]["gaudi-launch cache prune"]


def _hide_option(documents: Documents) -> None:
    documents["commands"]["gaudi-launch ps"]["options"]["--json"]["hidden"] = True


def _take_a_value(documents: Documents) -> None:
    documents["commands"]["gaudi-launch ps"]["options"]["--json"]["takes_value"] = True


def _change_default(documents: Documents) -> None:
    documents["commands"]["gaudi-launch bench"]["options"]["--patience"]["default"] = "60"


def _drop_choice(documents: Documents) -> None:
    documents["commands"]["gaudi-launch"]["options"]["--lang"]["choices"].remove("zh")


def _require_argument(documents: Documents) -> None:
    documents["commands"]["gaudi-launch why"]["arguments"]["1"]["required"] = True


def _drop_code(documents: Documents) -> None:
    documents["exit_codes"]["MODEL"] = 6


def _drop_id(documents: Documents) -> None:
    documents["messages"]["ids"].remove("plan.no_model")


def _drop_key(documents: Documents) -> None:
    del documents["json"]["plan"]["keys"]["settings[].reason"]


def _change_type(documents: Documents) -> None:
    documents["json"]["plan"]["keys"]["settings[].reason"] = ["object"]


def _fail(documents: Documents) -> None:
    documents["json"]["no model"]["exit_code"] = 1


def _other_error(documents: Documents) -> None:
    documents["json"]["no model"]["error"] = "plan.other"


def _drop_finding(documents: Documents) -> None:
    documents["json"]["doctor"]["ids"]["findings[].id"].remove("cpu.governor")


@pytest.mark.parametrize(
    ("mutate", "line"),
    [
        (_drop_option, "option gaudi-launch plan --machine"),
        (_drop_spelling, "option gaudi-launch plan -n"),
        (_drop_command, "command gaudi-launch cache prune"),
        (
            _hide_option,
            "option gaudi-launch ps --json is hidden, but CHANGELOG.md does not name it",
        ),
        (_take_a_value, "gaudi-launch ps --json: takes_value"),
        (_change_default, "gaudi-launch bench --patience: default '600'"),
        (_drop_choice, "gaudi-launch --lang: choice zh"),
        (_require_argument, "argument gaudi-launch why 1: required"),
        (_drop_code, "exit code MODEL = 5"),
        (_drop_id, "message id plan.no_model"),
        (_drop_key, "plan: settings[].reason"),
        (_change_type, "plan: settings[].reason: ['string'], now ['object']"),
        (_fail, "no model: exit_code 2, now 1"),
        (_other_error, "no model: error plan.no_model, now plan.other"),
        (_drop_finding, "doctor: findings[].id cpu.governor"),
    ],
)
def test_each_kind_of_loss_is_noticed(
    recorded: Documents, mutate: Callable[[Documents], None], line: str
) -> None:
    changed = copy.deepcopy(recorded)
    mutate(changed)
    assert gone(recorded, changed, []) == [line]
