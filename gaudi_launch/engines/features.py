"""Features that an option or a variable requests, by engine version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from gaudi_launch import paths
from gaudi_launch.engines.support import version_numbers
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import Message, message
from gaudi_launch.planning.engine_args import EngineArgs
from gaudi_launch.profiles import read_document

_SPECULATIVE = "--speculative-config"
# vllm-project/vllm-gaudi@b059f9c9:vllm_gaudi/v1/worker/hpu_model_runner.py:1453 raises
# NotImplementedError
_NO_METHOD = "medusa"


@dataclass(frozen=True)
class FeatureRow:
    """A feature's status from one engine version on; "no" is not supported."""

    engine: str
    since: str
    status: str
    source: str


@dataclass(frozen=True)
class EngineFeature:
    """A feature with the options and variables that request it."""

    id: str
    options: tuple[str, ...]
    variables: tuple[str, ...]
    rows: tuple[FeatureRow, ...]


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
        )
        for row in rows
    )


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
    given: tuple[FeatureAnswer, ...],
    args: EngineArgs,
    environment: Mapping[str, str],
    *,
    force: bool,
) -> tuple[Message, ...]:
    """Return the warnings about requested features.

    Raises LaunchError (USAGE) for an option whose feature this version lacks, unless ``force``.
    """
    by_id = {each.id: each for each in given}
    warnings: list[Message] = []
    for feature in features():
        answer = by_id.get(feature.id)
        option = next((name for name in feature.options if args.has(name)), None)
        exported = any(environment.get(name) for name in feature.variables)
        if answer is None or (option is None and not exported):
            continue
        if option is not None and answer.status == "no" and not force:
            why = answer.sentence.render()
            raise LaunchError("features.refused", ExitCode.USAGE, option=option, why=why)
        if answer.status != "supported":
            warnings.append(answer.sentence)
    if by_id and _method(args) == _NO_METHOD and not force:
        why = message("features.no_method", method=_NO_METHOD).render()
        raise LaunchError("features.refused", ExitCode.USAGE, option=_SPECULATIVE, why=why)
    return tuple(warnings)


def _method(args: EngineArgs) -> str:
    """Return the requested speculative method; "" where none can be read."""
    try:
        found = json.loads(args.last(_SPECULATIVE) or "{}")
    except ValueError:
        return ""
    if not isinstance(found, dict):
        return ""
    return str(found.get("method", ""))
