"""Features that an option or a variable requests, by engine version."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from gaudi_launch import paths
from gaudi_launch.engines.support import version_numbers
from gaudi_launch.engines.user_options import json_keys, option_faults, unread_variables
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import Message, message
from gaudi_launch.planning.engine_args import EngineArgs
from gaudi_launch.planning.plan import EngineIdentity
from gaudi_launch.planning.request import Request
from gaudi_launch.profiles import read_document


@dataclass(frozen=True)
class FeatureRow:
    """A feature's status from one engine version on; "no" is not supported."""

    engine: str
    since: str
    status: str
    source: str


@dataclass(frozen=True)
class EngineFeature:
    """A feature with the options and variables that request it.

    ``values`` (patterns): only an option with such a value requests it; with ``key`` the value is
    that of the option's JSON object.
    """

    id: str
    options: tuple[str, ...]
    variables: tuple[str, ...]
    rows: tuple[FeatureRow, ...]
    key: str = ""
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class FeatureAnswer:
    """One version's answer about one feature, in a sentence.

    ``status`` is "unknown" without facts.
    """

    id: str
    status: str
    sentence: Message
    source: str


@cache
def features() -> tuple[EngineFeature, ...]:
    """Return the features of profiles/engines/changes/features.yaml."""
    rows = read_document(paths.profiles_dir() / "engines" / "changes" / "features.yaml")["features"]
    return tuple(
        EngineFeature(
            id=str(row["id"]),
            options=tuple(row.get("options", ())),
            variables=tuple(row.get("variables", ())),
            rows=tuple(
                FeatureRow(**{name: str(value) for name, value in each.items()})
                for each in row["rows"]
            ),
            key=str(row.get("key", "")),
            values=tuple(row.get("values", ())),
        )
        for row in rows
    )


def features_of(engine: str) -> tuple[EngineFeature, ...]:
    """Return the features of an engine that has rows; none for another one."""
    if not any(row.engine == engine for feature in features() for row in feature.rows):
        return ()
    return features()


def answers(engine: str, version: str, label: str) -> tuple[FeatureAnswer, ...]:
    """Return one engine version's answers, one for each feature."""
    return tuple(_answer(feature, engine, version, label) for feature in features())


def _answer(feature: EngineFeature, engine: str, version: str, label: str) -> FeatureAnswer:
    family = version if version == "deepseek_r1" else engine
    found = None
    for row in feature.rows:
        if row.engine == family and _numbers(row.since) <= _numbers(version):
            found = row
    if found is None:
        return FeatureAnswer(feature.id, "unknown", message("features.unknown", engine=label), "")
    sentence = message(f"features.{feature.id}_{found.status}", engine=label)
    return FeatureAnswer(feature.id, found.status, sentence, found.source)


def _numbers(version: str) -> tuple[int, ...]:
    if version == "main":
        return (1 << 30,)
    return version_numbers(version)


def check_features(
    identity: EngineIdentity, request: Request, release: EngineIdentity | None = None
) -> tuple[Message, ...]:
    """Return the warnings about the user's options, variables and features.

    ``release`` has the features, where it is not the engine that reads the options. Raises
    LaunchError (USAGE) for an option that this version ends with, unless forced. A start script's
    options are the script's: reference tuning warns.
    """
    args, forced = request.args, request.force or request.tuning != "auto"
    warnings: list[Message] = []
    for fault in option_faults(args, identity):
        if fault.certain and not forced:
            why = fault.sentence.render()
            raise LaunchError("options.refused", ExitCode.USAGE, option=fault.option, why=why)
        warnings.append(fault.sentence)
    release = release or identity
    by_id = {each.id: each for each in answers(release.name, release.version, release.exact)}
    named: set[str] = set()
    for feature in features_of(release.name):
        answer = by_id[feature.id]
        option = next((name for name in feature.options if _requests(feature, name, args)), None)
        exported = any(request.environment.get(name) for name in feature.variables)
        if option is None and not exported:
            continue
        named.update(feature.variables)
        if option is not None and answer.status == "no" and not forced:
            why = answer.sentence.render()
            raise LaunchError("features.refused", ExitCode.USAGE, option=option, why=why)
        if answer.status != "supported":
            warnings.append(answer.sentence)
    others = {name: each for name, each in request.environment.items() if name not in named}
    return (*warnings, *unread_variables(others, identity))


def _requests(feature: EngineFeature, option: str, args: EngineArgs) -> bool:
    """Return True if an option requests a feature by its name or value."""
    if not feature.values:
        return args.has(option)
    if not args.given(option):
        return False
    value = args.last(option) or ""
    if feature.key:
        value = json_keys(value).get(feature.key, "")
    return any(fnmatchcase(value, pattern) for pattern in feature.values)
