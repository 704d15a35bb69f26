"""The use case of ``gaudi-launch engines diff``: compare two engine versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.engines.conditions import Condition, conditions
from gaudi_launch.core.engines.known_versions import (
    matching,
    newest_or_none,
    unknown_version,
    versions,
)
from gaudi_launch.core.engines.support import support_of
from gaudi_launch.core.engines.version_facts import (
    NameFacts,
    Renamed,
    for_gaudi,
    names_of,
    plain_option,
    renames,
)

if TYPE_CHECKING:
    from gaudi_launch.core.base.messages import Message
    from gaudi_launch.core.engines.engine_version import Version
    from gaudi_launch.core.models.cached_layers import CacheKind
    from gaudi_launch.core.models.model import Model
    from gaudi_launch.core.planning.launch_options import LaunchOptions
    from gaudi_launch.core.planning.plan import Plan, Setting
    from gaudi_launch.core.planning.support_answer import LayerCache, ModelSupport


@dataclass(frozen=True)
class SettingChange:
    """A setting of the plans with its values, or an option with its defaults.

    None: it is not sent. Defaults are as in the engines' source.
    """

    name: str
    left: str | None
    right: str | None
    reason: Message | None = None


@dataclass(frozen=True)
class NamesDiff:
    """The options or the variables that differ.

    ``removed`` are those that the second version lacks. Those of ``used`` the plan or the user
    gives.
    """

    removed: tuple[Renamed, ...]
    added: tuple[str, ...]
    changed: tuple[SettingChange, ...]
    used: frozenset[str] = frozenset()


@dataclass(frozen=True)
class PlannedSide:
    """One version's plan and support.

    ``refused`` is its reason not to plan the options.
    """

    support: ModelSupport | None = None
    plan: Plan | None = None
    refused: Message | None = None


@dataclass(frozen=True)
class CacheChange:
    """The cache of one kind of layer; None: the version makes no such layer."""

    kind: CacheKind
    left: LayerCache | None
    right: LayerCache | None


@dataclass(frozen=True)
class PlansDiff:
    """The two plans of the same options.

    ``caches`` are the kinds of layers for which the versions allocate another cache; empty where
    the rules of one version are not known.
    """

    left: PlannedSide
    right: PlannedSide
    settings: tuple[SettingChange, ...]
    caches: tuple[CacheChange, ...] = ()


@dataclass(frozen=True)
class KnownProblem:
    """A known problem that matters for the plan, and the versions that have it."""

    problem: Condition
    in_left: bool
    in_right: bool


@dataclass(frozen=True)
class EnginesDiff:
    """The difference of two versions.

    ``variables`` is None where the variables of one version are not known, ``plans`` without plan
    options.
    """

    left: Version
    right: Version
    options: NamesDiff
    variables: NamesDiff | None
    plans: PlansDiff | None
    problems: tuple[KnownProblem, ...]


def engines_diff(left: str, right: str, options: LaunchOptions) -> EnginesDiff:
    """Return the difference of two versions, for a plan where options name a model.

    Raises LaunchError (USAGE) for a version without facts, with the nearest names.
    """
    old, new = _version(left, options.python), _version(right, options.python)
    plans, model = None, None
    words: frozenset[str] = frozenset()
    if options.model:
        plans, model = _plans(old, new, options)
        words = _used(plans, options)
    names, later = names_of(old), names_of(new)
    both_complete = old.complete and new.complete
    ours = {name: facts for name, facts in names.variables.items() if for_gaudi(facts)}
    theirs = {name: facts for name, facts in later.variables.items() if for_gaudi(facts)}
    variables = None
    if names.variables and later.variables:
        variables = _names(ours, theirs, later.variables, words)
    return EnginesDiff(
        left=old,
        right=new,
        options=_names(names.options, later.options, later.options, words)
        if both_complete
        else _NO_NAMES,
        variables=variables,
        plans=plans,
        problems=_problems(old, new, model, plans, options),
    )


_NO_NAMES = NamesDiff((), (), ())


def _version(name: str, python: str | None) -> Version:
    from gaudi_launch.core.engines.entries import ALIASES, detect_engine, has
    from gaudi_launch.core.engines.needed_release import image_versions
    from gaudi_launch.core.engines.registry import find

    engine, _, version = ALIASES.get(name, name).partition("@")
    installed = detect_engine(python, name)
    if has(installed, name):
        # the facts of its files are in force from here on
        version = find(name, installed).identity.version
    if version:
        found = matching(engine, version, (*versions(), *image_versions()))
    else:
        found = newest_or_none(engine) or matching(engine, engine)
    if found is None:
        raise unknown_version(name)
    return found


def _names(
    ours: Mapping[str, NameFacts],
    theirs: Mapping[str, NameFacts],
    all_theirs: Mapping[str, NameFacts],
    used: frozenset[str],
) -> NamesDiff:
    """Return the differences.

    ``all_theirs`` also has what the second version reads elsewhere.
    """
    known = renames()
    gone = sorted(set(ours) - set(all_theirs))
    removed = tuple(known.get(name, Renamed(name, "", "")) for name in gone)
    changed = []
    for name in sorted(set(ours) & set(theirs)):
        before, after = ours[name], theirs[name]
        # an expression says nothing that could be compared
        if ... in (before.literal, after.literal) or before.literal == after.literal:
            continue
        changed.append(SettingChange(name, before.default, after.default))
    added = tuple(sorted(set(theirs) - set(ours)))
    different = {*gone, *(each.name for each in changed)}
    return NamesDiff(removed, added, tuple(changed), used & different)


def _plans(old: Version, new: Version, options: LaunchOptions) -> tuple[PlansDiff, Model | None]:
    left, model = _side(old, options)
    right, later_model = _side(new, options)
    settings = _settings(left.plan, right.plan)
    return PlansDiff(
        left, right, settings, _caches(left.support, right.support)
    ), model or later_model


def _caches(old: ModelSupport | None, new: ModelSupport | None) -> tuple[CacheChange, ...]:
    """Return the kinds of layers with another cache.

    Empty where those of a version are not known.
    """
    if old is None or new is None or not old.caches or not new.caches:
        return ()
    before = {each.kind: each for each in old.caches}
    after = {each.kind: each for each in new.caches}
    found = []
    for kind in dict.fromkeys((*before, *after)):
        change = CacheChange(kind, before.get(kind), after.get(kind))
        if _allocated(change.left) != _allocated(change.right):
            found.append(change)
    return tuple(found)


def _allocated(cache: LayerCache | None) -> str | None:
    return None if cache is None else cache.allocates


def _side(version: Version, options: LaunchOptions) -> tuple[PlannedSide, Model | None]:
    """Return one version's plan and its model; a refusal is an answer."""
    from gaudi_launch.core.launch.prepared import prepare
    from gaudi_launch.core.planning.known_model import known_model

    model = known_model(options.model or "", must_exist=False)
    try:
        prepared = prepare(replace(options, engine=version.label))
        support = prepared.engine.support(
            prepared.model, prepared.request.args, prepared.request.environment
        )
        return PlannedSide(support, prepared.plan()), prepared.model
    except LaunchError as error:
        if error.exit_code == ExitCode.USAGE and error.id == "plan.no_model":
            raise
        support = support_of(model, version.engine, version.version)
        return PlannedSide(support, None, error.text), model


def _settings(left: Plan | None, right: Plan | None) -> tuple[SettingChange, ...]:
    """Return the settings that are sent otherwise; empty unless both plans exist."""
    if left is None or right is None:
        return ()
    before, after = _sent(left), _sent(right)
    found = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        values = (_value(old), _value(new))
        if values[0] != values[1]:
            known = new or old
            found.append(SettingChange(name, *values, None if known is None else known.reason))
    return tuple(found)


def _sent(plan: Plan) -> dict[str, Setting]:
    found = {}
    for setting in plan.settings:
        if setting.sent:
            name = plain_option(setting.name) if setting.kind == "option" else setting.name
            found[name] = setting
    return found


def _value(setting: Setting | None) -> str | None:
    if setting is None:
        return None
    return "" if setting.value is None else setting.value


def _used(plans: PlansDiff, options: LaunchOptions) -> frozenset[str]:
    """Return the names that the first plan sends or the user gives or exports."""
    import os

    words = {
        plain_option(word.partition("=")[0]) for word in options.extra if word.startswith("--")
    }
    sent = set(_sent(plans.left.plan)) if plans.left.plan is not None else set()
    return frozenset(words | sent | set(os.environ))


def _problems(
    old: Version, new: Version, model: Model | None, plans: PlansDiff | None, options: LaunchOptions
) -> tuple[KnownProblem, ...]:
    from gaudi_launch.core.engines.launch_conditions import values_of
    from gaudi_launch.core.engines.launched import Launched, concerning

    found = []
    for problem in conditions():
        in_left, in_right = problem.has(old.label), problem.has(new.label)
        if not problem.feature and (in_left or in_right):
            found.append(KnownProblem(problem, in_left, in_right))
    if model is None or plans is None:
        return tuple(found)
    concerned = set()
    for version, side in ((old, plans.left), (new, plans.right)):
        sent = values_of(side.plan.settings) if side.plan is not None else {}
        from gaudi_launch.core.host.accelerators import product_of
        from gaudi_launch.core.host.machine import load
        from gaudi_launch.core.launch.machine import own_accelerator

        launched = Launched(model, product_of(load(options.machine)) or own_accelerator(), sent)
        concerned |= {each.id for each in concerning(version.label, launched)}
    return tuple(each for each in found if each.problem.id in concerned)
