"""Values for shell completion: services, engines, machines, models, profiles.

It also completes accelerators. They are read from files and tables of this program; no card, no
other program and no network is used. Other values are left to the shell, which completes file
names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gaudi_launch.cli.doc_pages import pages
from gaudi_launch.cli.table import COMPLETES, listed
from gaudi_launch.core.base.messages import LANGUAGES
from gaudi_launch.core.base.paths import config_dir, data_dir, profiles_dir
from gaudi_launch.core.base.reader import read_json

_KEPT = "_GAUDI_LAUNCH_KEPT"
_CHOICES = re.compile(r"[a-z0-9_-]+(\|[a-z0-9_-]+)+")
_HUB_ID = re.compile(r"(?m)^  - ([\w.-]+/[\w.-]+)$")
_ACCELERATOR = re.compile(r"(?m)^  ([a-z0-9-]+):$")


@dataclass(frozen=True)
class Completion:
    """A value for the shell, as click's CompletionItem."""

    value: str
    help: str = ""
    type: str = "plain"


Values = Callable[[], Iterable[Completion]]


def attach(param: Any, module: str) -> None:
    """Give an option or argument its values, where there are some.

    ``module``: of the command.
    """
    values = values_of([*param.opts, *param.secondary_opts], str(param.metavar or ""), module)
    if values is not None:
        param.shell_complete = partial(_completed, values)


def values_of(spellings: Sequence[str], metavar: str, module: str) -> Values | None:
    """Return the function that lists a parameter's values, None for any value."""
    named = [_BY_OPTION[each] for each in spellings if each in _BY_OPTION]
    if named:
        return lambda: [value for values in named for value in values()]
    if any(spelling.startswith("-") for spelling in spellings):
        if not _CHOICES.fullmatch(metavar):
            return None
        values = [Completion(value) for value in metavar.split("|")]
        return lambda: values
    if metavar == "NAME" and module.endswith(".profiles.command"):
        return profiles
    if metavar in ("NAME", "[NAME]") and module.endswith(".kube.command"):
        return None
    return _BY_ARGUMENT.get(metavar)


def _completed(values: Values, ctx: Any, incomplete: str) -> list[Completion]:
    """Return the values with the typed beginning, without what bash keeps of it."""
    cut = int(os.environ.get(_KEPT, "0"))
    return [
        Completion(each.value[cut:], each.help)
        for each in values()
        if each.value.lower().startswith(incomplete.lower())
    ]


# --- values ---------------------------------------------------------------------------------------


def services() -> Iterable[Completion]:
    """Return the services of this user with their phase as it was written last."""
    from gaudi_launch.core.services.state.store import services_dir

    found: list[Completion] = []
    for state in sorted(services_dir().glob("*/state.json")):
        try:
            phase = str(read_json(state).get("phase") or "")
        except (OSError, ValueError, AttributeError):
            phase = ""
        found.append(Completion(state.parent.name, phase))
    return found


def engines() -> Iterable[Completion]:
    """Return the names for --engine."""
    return [Completion(name) for name in listed("engines")()]


def engines_to_set_up() -> Iterable[Completion]:
    """Return the names for ``setup``: engines, and Ray with Ray Serve."""
    return [Completion("ray"), *(each for each in engines() if each.value != "auto")]


def machines() -> Iterable[Completion]:
    """Return the simulated machines."""
    return [Completion(f"simulated:{name}") for name in listed("machines")]


def accelerators() -> Iterable[Completion]:
    """Return the accelerators with a profile."""
    return [Completion(name) for name in _found(profiles_dir() / "accelerators.yaml", _ACCELERATOR)]


def profiles() -> Iterable[Completion]:
    """Return the profiles: the shipped ones and the user's own."""
    return [Completion(name) for name in sorted({path.stem for path in _profile_files()})]


def models() -> Iterable[Completion]:
    """Return the demo, downloaded models, and the hub IDs that profiles list."""
    known = {hub_id for path in _profile_files() for hub_id in _found(path, _HUB_ID)}
    downloads = data_dir() / "models"
    here = {
        str(config.parent.relative_to(downloads)) for config in downloads.glob("*/*/config.json")
    }
    return [Completion("demo"), *(Completion(name) for name in sorted(known | here))]


def languages() -> Iterable[Completion]:
    """Return the languages of messages."""
    return [Completion(language) for language in LANGUAGES]


def topics() -> Iterable[Completion]:
    """Return the pages of the documentation."""
    return [Completion(page.name, page.title) for page in pages()]


def check_areas() -> Iterable[Completion]:
    """Return the areas of the doctor's checks."""
    return [Completion(area) for area in dict.fromkeys(check.area for check in listed("checks"))]


def dtypes() -> Iterable[Completion]:
    """Return the data types of weights."""
    return [Completion(name) for name in ("bfloat16", "float16", "fp8", "awq", "gptq")]


def _profile_files() -> list[Path]:
    return [
        *(profiles_dir() / "models").glob("*.yaml"),
        *(config_dir() / "profiles").glob("*.yaml"),
    ]


def _found(path: Path, pattern: re.Pattern[str]) -> list[str]:
    """Return what a pattern finds in a profile.

    Reading it as YAML would take too long for a key press.
    """
    try:
        return pattern.findall(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []


_BY_OPTION: Mapping[str, Values] = {
    "--engine": engines,
    "--machine": machines,
    "--accelerator": accelerators,
    "--weights": models,
    "--lang": languages,
    "--only": check_areas,
    "--skip": check_areas,
    "--dtype": dtypes,
}
_BY_ARGUMENT: Mapping[str, Values] = {
    "NAME": services,
    "[NAME]": services,
    "[NAME]...": services,
    "[NAME|LOGFILE]": services,
    "[COMMAND|TOPIC|WORD]...": topics,
    "[URL|NAME]": services,
    "[URL|NAME] [QUESTION]...": services,
    "[URL|NAME] | compare A B | FILE...": services,
    "MODEL": models,
    "MODEL...": models,
    "[MODEL]": models,
    "[MODEL] [-- ENGINE OPTIONS]": models,
    "OWNER/NAME": models,
    "ENGINE": engines_to_set_up,
}


# --- bash -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TypedWords:
    """A command line as typed: its parts, the one to complete, and what bash keeps.

    Bash keeps a number of characters of it.
    """

    words: tuple[str, ...]
    current: int
    kept: int = 0


def join_bash_words(environment: MutableMapping[str, str]) -> None:
    """Join what bash split at ``:``, ``@`` and ``=``, in COMP_WORDS and COMP_CWORD."""
    position = environment.get("COMP_CWORD", "")
    if environment.get(COMPLETES) != "complete_bash" or not position.isdigit():
        return
    line = environment.get("COMP_WORDS", "")
    typed = joined_words(line.split("\n") if "\n" in line else line.split(), int(position))
    environment["COMP_WORDS"] = "\n".join(typed.words)
    environment["COMP_CWORD"] = str(typed.current)
    environment[_KEPT] = str(typed.kept)


def joined_words(words: Sequence[str], position: int) -> TypedWords:
    """Return the parts of the line as typed.

    ``words`` and ``position``: COMP_WORDS and COMP_CWORD.

    bash splits at each character of COMP_WORDBREAKS and makes a separate part of it. It replaces
    what follows the last ``:``, and what begins with the last ``@`` (tried with bash 5.2).

    >>> joined_words(["gaudi-launch", "plan", "--machine", "simulated", ":", "h"], 5)
    TypedWords(words=('gaudi-launch', 'plan', '--machine', 'simulated:h'), current=3, kept=10)
    >>> joined_words(["gaudi-launch", "plan", "--engine", "=", "tgi", "@"], 5)
    TypedWords(words=('gaudi-launch', 'plan', '--engine', 'tgi@'), current=3, kept=3)
    """
    found: list[str] = []
    kept = 0
    joining = False
    for word in words[: position + 1]:
        if word == "=" and found and found[-1].startswith("--"):
            kept, joining = 0, False
        elif found and word in (":", "@"):
            kept = len(found[-1]) + (word == ":")
            found[-1] += word
            joining = True
        elif joining:
            found[-1] += word
            joining = False
        else:
            found.append(word)
            kept = 0
    if words[position : position + 1] in ([], ["="]):
        found.append("")
        kept = 0
    return TypedWords(tuple(found), len(found) - 1, kept)
