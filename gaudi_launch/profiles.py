"""Profiles: facts and defaults of models, as YAML files.

A user's profile replaces the shipped one of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

from gaudi_launch import paths
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import Message, message
from gaudi_launch.models.config import read_model
from gaudi_launch.models.fp8.measurements import Published
from gaudi_launch.models.model import Model

_MOST_BYTES = 1 << 20
# the facts of `architecture` that are fields of Model
FACTS = (
    "architecture", "model_type", "parameters", "dtype", "quantization", "moe", "experts", "layers",
    "hidden_size", "intermediate_size", "heads", "kv_heads", "head_dim", "mla_rank", "vocab_size",
    "max_position_embeddings",
)  # fmt: skip
# suffixes of hub names for copies of a model in other weights (assumed from the names in use;
# config.json shows it for certain)
_QUANTISED = re.compile(r"[-_.](awq|gptq(?!-int8)|fp8)(?![a-z0-9])", re.IGNORECASE)


@dataclass(frozen=True)
class ProfileSetting:
    """A variable or option of a model.

    ``engines`` are versions (``1.21``); ``only`` limits it to a data type.
    """

    kind: Literal["env", "option"]
    name: str
    value: str | None
    engines: tuple[str, ...]
    source: str
    only: str | None = None


@dataclass(frozen=True)
class PublishedFor:
    """Published measurements: name patterns of their models, and a card generation."""

    names: tuple[str, ...]
    generation: str
    published: Published


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
    measurements: tuple[PublishedFor, ...] = ()
    file: Path = field(default_factory=Path)
    own: bool = False

    def matches_name(self, name: str) -> bool:
        return _is_one_of(name, self.names)

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
    path = _engine_file(engine)
    if not path.is_file():
        return {}
    return dict(read_document(path)["versions"][0].get("reads", {}))


def _engine_file(engine: str) -> Path:
    return paths.profiles_dir() / "engines" / (engine.replace("@", "-") + ".yaml")


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
        _check(path, document)
    serving = document["serving"]
    return Profile(
        name=document["name"],
        title=document["title"],
        models=tuple(document["models"]),
        names=tuple(document["match"]["names"]),
        config=document["match"].get("config", {}),
        facts=document["architecture"],
        cards=serving["cards"],
        dtype=serving.get("dtype", "bfloat16"),
        tried=tuple(serving.get("tried", ())),
        accelerator=serving.get("accelerator", "gaudi2"),
        lengths=document.get("lengths", {}),
        fp8_kv=serving.get("fp8_kv_cache", "fp8_inc"),
        expert_parallel=serving.get("expert_parallel", bool(document["architecture"].get("moe"))),
        parsers=_parsers(document.get("parsers", {})),
        settings=tuple(_setting(entry) for entry in document.get("settings", ())),
        sources=document["sources"],
        assumed=tuple(document.get("assumed", ())),
        notes=tuple(document.get("notes", ())),
        disk_gb=serving.get("disk_gb"),
        engine=serving.get("engine", ""),
        measurements=tuple(_measurements(entry) for entry in document.get("measurements", ())),
        file=path,
        own=own,
    )


def _parsers(entry: Mapping[str, Any]) -> Parsers:
    return Parsers(
        reasoning=entry.get("reasoning"),
        tool=entry.get("tool"),
        reasoning_names=tuple(entry.get("reasoning_names", ())),
        tool_names=tuple(entry.get("tool_names", ())),
    )


def _setting(entry: Mapping[str, Any]) -> ProfileSetting:
    return ProfileSetting(
        kind=entry["kind"],
        name=entry["name"],
        value=entry.get("value"),
        engines=tuple(entry["engines"]),
        source=entry["source"],
        only=entry.get("only"),
    )


def _measurements(entry: Mapping[str, Any]) -> PublishedFor:
    published = Published(entry["repo"], entry["cards"], entry["stem"], entry["quantisation"])
    return PublishedFor(tuple(entry["names"]), entry["generation"], published)


def published_for(
    profile: Profile | None, name: str, generation: str, cards: int
) -> Published | None:
    """Return the published measurements of a model by its last name.

    They are for this generation and number of cards.
    """
    for each in profile.measurements if profile else ():
        fits = (each.generation, each.published.cards) == (generation, cards)
        if fits and any(fnmatchcase(name.lower(), pattern) for pattern in each.names):
            return each.published
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
    import yaml

    try:
        if path.stat().st_size > _MOST_BYTES:
            raise LaunchError("profiles.bad", ExitCode.USAGE, path=str(path), why="> 1 MiB")
        text = path.read_text(encoding="utf-8")
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as error:
        raise LaunchError(
            "profiles.bad", ExitCode.USAGE, path=str(path), why=error.strerror or ""
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise LaunchError("profiles.bad", ExitCode.USAGE, path=str(path), why=why) from None


def _check(path: Path, document: Any) -> None:
    """Raise LaunchError (USAGE) for a document that breaks the model schema.

    The schema is profiles/schema/model.json.
    """
    from gaudi_launch.profiles_check import problems

    problem = next(iter(problems(document)), None)
    if problem is not None:
        raise LaunchError("profiles.bad", ExitCode.USAGE, path=str(path), why=problem.render())


@cache
def _loaded(folder: str, own: bool, stamp: tuple[tuple[str, int], ...]) -> tuple[Profile, ...]:
    return tuple(load(Path(folder) / name, own) for name, _ in stamp)


def _folder(folder: Path, own: bool) -> tuple[Profile, ...]:
    try:
        found = [path for path in folder.iterdir() if path.suffix in (".yaml", ".yml")]
        stamp = tuple(sorted((path.name, path.stat().st_mtime_ns) for path in found))
    except OSError:
        return ()
    return _loaded(str(folder), own, stamp)


def profiles() -> tuple[Profile, ...]:
    """Return every profile by name, a user's in place of a shipped one.

    Raises LaunchError (USAGE) for a file of the user that is not a profile.
    """
    found = {profile.name: profile for profile in _folder(shipped_dir(), False)}
    found |= {profile.name: profile for profile in _folder(own_dir(), True)}
    return tuple(profile for _, profile in sorted(found.items()))


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
    named = [profile for profile in known if profile.matches_name(model.name)]
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


def with_facts(model: Model) -> Model:
    """Return ``model`` with facts of its profile that config.json does not have.

    ``source`` stays.
    """
    from dataclasses import replace

    profile = match(model)
    if profile is None:
        return model
    missing = {
        name: profile.facts[name]
        for name in FACTS
        if name in profile.facts and getattr(model, name) is None
    }
    if model.config:
        # a folder without its weights: their number is known, config.json has the rest
        missing = {name: value for name, value in missing.items() if name == "parameters"}
    elif "layers" in missing:
        if named := _QUANTISED.search(model.name):
            missing["quantization"] = named[1].lower()
        missing.setdefault("moe", False)
        missing["attention_layers"] = profile.facts.get("attention_layers", missing["layers"])
    return replace(model, **missing)


def known_model(path: str, must_exist: bool = True) -> Model:
    """Return a model by its files, with what a profile adds.

    Raises what `read_model` raises.
    """
    return with_facts(read_model(path, must_exist))


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
