"""Conditions and features of releases.

The rows are those of profiles/engines/changes/conditions.yaml, which explains its keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.yaml_reader import shipped
from gaudi_launch.core.engines.engine_version import version_numbers

_NEWEST = (1 << 30,)


@dataclass(frozen=True)
class Condition:
    """One row of the table: releases, what it is true of, and what follows.

    ``setting`` are the values that it sets, None leaves one off; without any it warns. ``cause`` is
    a pattern of the cause of `why`, and its evidence, that it explains. ``feature``: the row is a
    release's answer about it. ``note``: the sentence of the release notes.
    """

    id: str
    thread: str
    when: tuple[str, ...]
    state: str = "code"
    date: str = ""
    feature: str = ""
    note: str = ""
    engine: str = "vllm-gaudi"
    versions: tuple[str, ...] = ()
    since: str = "0"
    fixed: str = ""
    setting: Mapping[str, str | None] = field(default_factory=dict)
    cause: str = ""

    @property
    def url(self) -> str:
        """Return the address of the thread or of the document."""
        repository, at, place = self.thread.partition("@")
        if at:
            return f"https://github.com/{repository}/blob/{place.replace(':', '/', 1)}"
        return f"https://github.com/{self.thread.replace('#', '/issues/')}"

    @property
    def sentence(self) -> Message:
        """Return what is known, and where it is stated."""
        if self.feature:
            return self.answer(self.engine)
        return message("engines.known_problem", why=self.problem.render(), url=self.url)

    @property
    def status(self) -> str:
        """Return "supported", "limited", "no" or "unknown" of a feature."""
        return self.id.removeprefix(f"{self.feature}_")

    def answer(self, label: str) -> Message:
        """Return the sentence about a feature of this engine version."""
        return message(f"features.{self.id}", engine=label)

    def left_off(self, name: str) -> Message:
        """Return the sentence about a setting that is left off for it."""
        return message("engines.left_off", name=name, why=self.problem.render(), url=self.url)

    @property
    def problem(self) -> Message:
        """Return what is known of the problem, without its thread."""
        if self.note:
            return message("engines.problem_noted", fixed=self.fixed, note=self.note)
        return message(f"engines.problem_{self.id}")

    def has(self, label: str) -> bool:
        """Return True for an engine version that has it."""
        engine, at, version = label.partition("@")
        if not at:
            # a branch of the fork without a version
            return label in self.versions
        if self.versions or engine != self.engine:
            return version in self.versions and engine == self.engine
        numbers = _NEWEST if version == "main" else version_numbers(version)
        fixed = version_numbers(self.fixed) if self.fixed else (*_NEWEST, 0)
        return version_numbers(self.since) <= numbers < fixed


@cache
def conditions() -> tuple[Condition, ...]:
    """Return every row of the table, as its source had it on the date stated."""
    found = []
    for row in shipped("engines", "changes", "conditions.yaml")["conditions"]:
        lists: dict[str, Any] = {name: tuple(row.get(name, ())) for name in ("when", "versions")}
        found.append(Condition(**{**row, **lists}))
    return tuple(found)


def unsupported(label: str) -> tuple[Condition, ...]:
    """Return the conditions of an engine version that state a problem or a limit."""
    return tuple(each for each in conditions() if each.has(label) and each.status != "supported")


def of_packages(label: str, packages: Mapping[str, str]) -> tuple[Condition, ...]:
    """Return the conditions of an engine version that concern any model."""

    def is_met(words: str) -> bool:
        return any(is_installed(word, packages) for word in words.split("|"))

    return tuple(each for each in unsupported(label) if all(map(is_met, each.when)))


def is_installed(word: str, packages: Mapping[str, str]) -> bool | None:
    """Return if ``PACKAGE>=VERSION`` is true of an environment; None for other text.

    A package that is not known is the newest.
    """
    package, ranged, least = word.partition(">=")
    if not ranged:
        return None
    found = packages.get(package)
    return not found or version_numbers(found) >= version_numbers(least)


def features_of(label: str) -> tuple[Condition, ...]:
    """Return an engine version's answers, one for each feature."""
    rows = [each for each in conditions() if each.feature]
    names = dict.fromkeys(each.feature for each in rows)
    answers = {name: Condition("unknown", "", (), feature=name) for name in names}
    answers.update((each.feature, each) for each in rows if each.has(label))
    return tuple(answers.values())
