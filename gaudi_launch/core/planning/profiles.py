"""Profiles: facts and defaults of models, as YAML files.

A user's profile replaces the shipped one of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

from gaudi_launch.core.base import codec, paths
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.profiles_check import problems
from gaudi_launch.core.base.yaml_reader import parse_yaml, shipped
from gaudi_launch.core.models.config import looks_like_hub_id, name_of
from gaudi_launch.core.models.fp8.conversion_record import CONVERTED
from gaudi_launch.core.models.model import Model, Published

_MOST_BYTES = 1 << 20
# the facts of `architecture` that are fields of Model
FACTS = (
    "architecture", "model_type", "parameters", "dtype", "quantization", "moe", "experts", "layers",
    "attention_layers", "hidden_size", "intermediate_size", "heads", "kv_heads", "head_dim",
    "mla_rank", "config_sizes", "vocab_size", "max_position_embeddings",
)  # fmt: skip
# those that the number of parameters follows from
_SIZES = (
    "layers", "hidden_size", "intermediate_size", "heads", "kv_heads", "experts", "vocab_size",
)  # fmt: skip


@dataclass(frozen=True)
class ProfileSetting:
    """A variable or option of a model.

    ``engines`` are versions (``1.21``); ``only`` limits it to a data type.
    """

    kind: Literal["env", "option"]
    name: str
    engines: tuple[str, ...]
    source: str
    value: str | None = None
    only: str | None = None


@dataclass(frozen=True)
class Parsers:
    """The names under which vLLM has a model's parsers; None where it needs none.

    ``reasoning_names`` and ``tool_names`` narrow the profile's patterns: some models of a family do
    not reason, or have no token for tool calls.
    """

    reasoning: str | None = None
    tool: str | None = None
    reasoning_names: tuple[str, ...] = ()
    tool_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Profile:
    """One model family.

    ``checkpoints`` are the facts, by ID, in which a listed model differs from ``facts``.
    ``lengths`` are the ranges of a guide; ``assumed`` names what has no source; ``engine`` is the
    one that plans are for where none is installed ("": any).
    """

    name: str
    title: str
    models: tuple[str, ...]
    names: tuple[str, ...]
    config: Mapping[str, Any]
    facts: Mapping[str, Any]
    cards: int
    dtype: str
    tried: tuple[int, ...]
    accelerator: str
    lengths: Mapping[str, Any]
    fp8_kv: str
    expert_parallel: bool
    parsers: Parsers
    settings: tuple[ProfileSetting, ...]
    sources: Mapping[str, str]
    assumed: tuple[str, ...]
    notes: tuple[str, ...] = ()
    disk_gb: int | None = None
    engine: str = ""
    measurements: tuple[Published, ...] = ()
    file: Path = field(default_factory=Path)
    own: bool = False
    checkpoints: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def matches_config(self, config: Mapping[str, Any]) -> bool:
        """Return True if config.json matches this profile.

        Values may be in the text part of a multimodal one.
        """
        if not self.config:
            return False
        parts = [config, *(part for part in config.values() if isinstance(part, dict))]
        return all(
            any(part.get(key) == value for part in parts) for key, value in self.config.items()
        )


@cache
def engine_reads(engine: str) -> Mapping[str, str | list[str]]:
    """Return the values that an engine accepts in its variables.

    The form is ``reads`` of profiles/schema/engine.json; empty for an engine without a file.
    """
    path = paths.profiles_dir() / "engines" / (engine.replace("@", "-") + ".yaml")
    if not path.is_file():
        return {}
    return dict(read_document(path)["versions"][0].get("reads", {}))


def own_dir() -> Path:
    """Return the folder of a user's model profiles."""
    return paths.config_dir() / "profiles"


def shipped_dir() -> Path:
    return paths.profiles_dir() / "models"


def load(path: Path, own: bool = False) -> Profile:
    """Read one profile.

    Raises LaunchError (USAGE): unreadable, invalid YAML, or (``own``) against the schema.
    """
    document = read_document(path)
    if own:
        # a test checks the shipped ones: the schema library costs 0.15 s at each command
        # profiles/schema/model.json
        problem = next(iter(problems(document)), None)
        if problem is not None:
            raise LaunchError("profiles.bad", ExitCode.USAGE, path=str(path), why=problem.render())
    serving = document["serving"]
    return Profile(
        name=document["name"],
        title=document["title"],
        models=tuple(document["models"]),
        names=tuple(document["match"]["names"]),
        config=document["match"].get("config", {}),
        facts=document["architecture"],
        checkpoints=document.get("checkpoints", {}),
        cards=serving["cards"],
        dtype=serving.get("dtype", "bfloat16"),
        tried=tuple(serving.get("tried", ())),
        accelerator=serving.get("accelerator", "gaudi2"),
        lengths=document.get("lengths", {}),
        fp8_kv=serving.get("fp8_kv_cache", "fp8_inc"),
        expert_parallel=serving.get("expert_parallel", bool(document["architecture"].get("moe"))),
        parsers=codec.read(Parsers, document.get("parsers", {})),
        settings=codec.read(tuple[ProfileSetting, ...], document.get("settings", ())),
        sources=document["sources"],
        assumed=tuple(document.get("assumed", ())),
        notes=tuple(document.get("notes", ())),
        disk_gb=serving.get("disk_gb"),
        engine=serving.get("engine", ""),
        measurements=codec.read(tuple[Published, ...], document.get("measurements", ())),
        file=path,
        own=own,
    )


def published_for(
    profile: Profile | None, name: str, generation: str, cards: int
) -> Published | None:
    """Return the published measurements of a model by its last name.

    They are for this generation and number of cards.
    """
    for each in profile.measurements if profile else ():
        fits = (each.generation, each.cards) == (generation, cards)
        if fits and any(fnmatchcase(name.lower(), pattern) for pattern in each.names):
            return each
    return None


def parsers_for(profile: Profile, name: str) -> Parsers:
    """Return the parsers for a model of this name.

    Return none for one that the profile knows by its config.json alone.
    """
    parsers = profile.parsers
    reasoning_names = parsers.reasoning_names or profile.names
    tool_names = parsers.tool_names or profile.names
    return Parsers(
        reasoning=parsers.reasoning if _is_one_of(name, reasoning_names) else None,
        tool=parsers.tool if _is_one_of(name, tool_names) else None,
    )


def _is_one_of(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name.lower(), pattern) for pattern in patterns)


def read_document(path: Path) -> Any:
    """Return the YAML of one file. Raises LaunchError (USAGE)."""
    try:
        if path.is_relative_to(paths.profiles_dir()):
            return shipped(*path.relative_to(paths.profiles_dir()).parts)
        with path.open("rb") as file:
            return parse_yaml(file.read(_MOST_BYTES + 1))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise LaunchError("profiles.bad", ExitCode.USAGE, path=str(path), why=why) from None


@cache
def _shipped() -> tuple[Profile, ...]:
    return tuple(load(path) for path in shipped_dir().glob("*.yaml"))


def _own_files() -> tuple[tuple[Path, int], ...]:
    """Return the user's profiles, each with the time of its last change."""
    try:
        found = [path for path in own_dir().iterdir() if path.suffix in (".yaml", ".yml")]
        return tuple(sorted((path, path.stat().st_mtime_ns) for path in found))
    except OSError:
        return ()


@cache
def _with_own(files: tuple[tuple[Path, int], ...]) -> tuple[Profile, ...]:
    found = {profile.name: profile for profile in _shipped()}
    own = [load(path, own=True) for path, _ in files]
    found |= {profile.name: profile for profile in own}
    return tuple(profile for _, profile in sorted(found.items()))


def profiles() -> tuple[Profile, ...]:
    """Return every profile by name, a user's in place of a shipped one.

    Raises LaunchError (USAGE) for a file of the user that is not a profile.
    """
    return _with_own(_own_files())


def find(name: str) -> Profile:
    """Return a profile by its name or one of its model IDs.

    Raises LaunchError (USAGE).
    """
    known = profiles()
    for profile in known:
        if name == profile.name or name in profile.models:
            return profile
    raise LaunchError(
        "profiles.unknown", ExitCode.USAGE, found=name, known=", ".join(p.name for p in known)
    )


def match(model: Model) -> Profile | None:
    """Return the profile of a model: by its config.json, then by its name.

    The name decides between equals, and alone where there is no config.json or a profile matches
    none.
    """
    known = profiles()
    named = [profile for profile in known if _is_one_of(model.name, profile.names)]
    if model.config:
        fitting = [profile for profile in known if profile.matches_config(model.config)]
        named = [profile for profile in named if profile in fitting or not profile.config]
        return _best(named or fitting, model.name)
    return _best(named, model.name)


def _best(fitting: Iterable[Profile], name: str) -> Profile | None:
    """Return the best match.

    A user's profile first, then the one that matches most of config.json, then the longest pattern,
    then the shortest name: a family's base model has a shorter name than its derivatives.
    """

    def rank(profile: Profile) -> tuple[bool, int, int, int, str]:
        pattern = max((len(p) for p in profile.names if fnmatchcase(name.lower(), p)), default=0)
        return not profile.own, -len(profile.config), -pattern, len(profile.name), profile.name

    return min(fitting, key=rank, default=None)


def listed_id(path: str) -> tuple[Profile, str] | None:
    """Return the profile that lists a model, with its ID there.

    A user's profile comes first. A hub ID is listed as it is, any other name as the last part of an
    ID. A folder that ``convert`` made has the model's own name and a suffix.
    """
    name = name_of(path).removesuffix(CONVERTED)
    is_id = looks_like_hub_id(path)
    found = [
        (profile, each)
        for profile in profiles()
        for each in profile.models
        if each == path or (not is_id and name_of(each) == name)
    ]
    return min(found, key=lambda each: not each[0].own, default=None)


def _facts_of(model: Model) -> Mapping[str, Any]:
    """Return the facts of the profile that lists the model; empty without one."""
    listed = listed_id(model.path)
    if listed is None:
        return {}
    profile, hub_id = listed
    known = {**profile.facts, **profile.checkpoints.get(hub_id, {})}
    return {name: known[name] for name in FACTS if name in known}


def listed_facts(model: Model) -> Model:
    """Return the model with the facts of the profile that lists it, if any."""
    facts = _facts_of(model)
    if not facts:
        return model
    attention = {"attention_layers": facts["layers"], "moe": False}
    return replace(model, source="profile", **{**attention, **facts})


def with_parameters(model: Model) -> Model:
    """Return a model with parameters, also without weights.

    They are those of the profile that lists it. Its config.json must contradict none of the
    profile's sizes.
    """
    facts = _facts_of(model) if model.config and not model.parameters else {}
    differs = [
        name for name in _SIZES if name in facts and getattr(model, name) not in (None, facts[name])
    ]
    return model if differs or not facts else replace(model, parameters=facts["parameters"])


def profile_settings(
    profile: Profile, version: str, dtype: str
) -> list[tuple[Literal["env", "option"], str, str | None, Message, str]]:
    """Return (kind, name, value, reason, origin) of each setting for this model.

    They are those that this engine version needs.
    """
    return [
        (s.kind, s.name, s.value, message("profiles.setting", profile=profile.name), s.source)
        for s in profile.settings
        if version in s.engines and s.only in (None, dtype)
    ]
