"""Plan: every setting with its value, source and reason.

Engines and renderers read nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from gaudi_launch.core.base.messages import Message
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.buckets.warmup_time import Estimate
from gaudi_launch.core.host.cpus import format_cpus
from gaudi_launch.core.planning.container import Container
from gaudi_launch.core.planning.engine_args import EngineArgs, split_argv
from gaudi_launch.core.planning.option_table import GENERIC, OptionTable, option_table
from gaudi_launch.core.planning.placement import Placement

Kind = Literal["env", "option"]
Api = Literal["openai", "generate"]
"""The API of a server: OpenAI's paths, or TGI's (``/info``, ``/generate``)."""
Source = Literal["flag", "environment", "profile", "computed", "engine"]

# strongest first; a stronger source always wins
STRENGTH: tuple[Source, ...] = ("flag", "environment", "profile", "computed", "engine")


@dataclass(frozen=True)
class Overridden:
    """A weaker proposal that lost: its value and its source."""

    value: str
    source: Source


@dataclass(frozen=True)
class Setting:
    """One environment variable or engine option.

    ``name`` is the variable's name, or the option with its dashes (``--max-num-seqs``). ``value``
    is the exact text the engine gets; None is a bare option (a flag without a value). A setting of
    source ``engine`` is only stated, never sent. ``origin`` names the proof of a rule
    (``repo@commit:path``, a profile file) or ``assumed``.
    """

    name: str
    value: str | None
    kind: Kind
    source: Source
    reason: Message
    origin: str = ""
    beaten: tuple[Overridden, ...] = ()

    @property
    def sent(self) -> bool:
        return self.source != "engine"

    def to_json(self) -> dict[str, Any]:
        """Return the setting for programs."""
        return {
            "name": self.name,
            "value": self.value,
            "kind": self.kind,
            "source": self.source,
            "reason": self.reason.render(),
            "origin": self.origin,
            "beaten": [{"value": each.value, "source": each.source} for each in self.beaten],
        }


def variables_of(settings: Sequence[Setting]) -> dict[str, str]:
    """Return every variable with its value, sent or not."""
    return {setting.name: setting.value or "" for setting in settings if setting.kind == "env"}


@dataclass(frozen=True)
class EngineIdentity:
    """The engine of a plan: ``name`` is ``vllm-fork``, ``version`` ``1.21``.

    ``word`` is the value for --engine where that is not the name alone. ``options`` names its
    option table, ``variables`` the table of the variables that it reads. ``simulated``: its cards
    are simulated, and it runs on the CPU of any machine. ``facts_date``: the day of the code that
    its facts were read from, "" without any.
    """

    name: str
    version: str
    python: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    word: str = ""
    api: Api = "openai"
    options: str = ""
    variables: str = ""
    simulated: bool = False
    facts_date: str = ""

    @property
    def label(self) -> str:
        """Return the engine's name for users and profiles: ``vllm-fork@1.21``, ``tgi``."""
        return self.word or self.name

    @property
    def exact(self) -> str:
        """Return name and version, the key of services and measured times: ``tgi@3.3.5``."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True)
class Command:
    """The command of an engine: arguments and variables, without a shell.

    ``argv`` is from the interpreter on, ``env`` only what we set. ``files`` are texts by path that
    must exist before it starts. ``container`` is the engine's container where ``argv`` starts one:
    its variables are in there, not in ``env``. ``user`` are the last arguments of ``argv``, which
    the user wrote.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    unset: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    memory_node: int | None = None
    working_dir: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    container: Container | None = None
    user: tuple[str, ...] = ()

    def args(self, table: OptionTable = GENERIC) -> EngineArgs:
        """Return ``argv`` as its parts."""
        return split_argv(self.argv, table=table, user=self.user)


@dataclass(frozen=True)
class Plan:
    """The complete decision for one deployment.

    The same Request, Host and Model give the same Plan on any machine.
    """

    engine: EngineIdentity
    model: Mapping[str, Any]
    placement: Placement
    settings: tuple[Setting, ...]
    command: Command
    url: str
    buckets: Buckets | None = None
    bucket_strategy: str = ""
    memory: Mapping[str, float] = field(default_factory=dict)
    estimate: Estimate | None = None
    warnings: tuple[Message, ...] = ()
    cache: Mapping[str, Any] = field(default_factory=dict)
    num_blocks: int | None = None
    kv_tokens: int | None = None  # of all blocks
    kv_cache: Message | None = None
    dtype: str = "bfloat16"
    reference_differences: tuple[
        Message, ...
    ] = ()  # reference tuning only: differences from the scripts
    skips_warmup: bool = False  # by -s, or by the exported variable

    @property
    def args(self) -> EngineArgs:
        """Return the engine's argument list, read by its option table."""
        return self.command.args(option_table(self.engine.options))

    @property
    def container(self) -> Container | None:
        """Return the container that the engine runs in, for docker, compose, Kubernetes."""
        return self.command.container

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``gaudi-launch plan --json`` (schema 1)."""
        document: dict[str, Any] = {
            "schema": 1,
            "engine": {
                "name": self.engine.name,
                "version": self.engine.version,
                "python": self.engine.python,
                **({"simulated": True} if self.engine.simulated else {}),
                **({"facts_date": self.engine.facts_date} if self.engine.facts_date else {}),
                **dict(self.engine.facts),
            },
            "model": dict(self.model),
            "dtype": self.dtype,
            "modules": list(self.placement.modules),
            "cpus": format_cpus(self.placement.cpus),
            "numa_nodes": list(self.placement.numa_nodes),
            "env": dict(sorted(self.command.env.items())),
            "argv": list(self.command.argv),
            "url": self.url,
            "buckets": None,
            "memory": dict(self.memory),
            "num_blocks": self.num_blocks,
            "estimate": None,
            "cache": dict(self.cache) or None,
            "settings": [setting.to_json() for setting in self.settings],
            "warnings": [w.to_json() for w in self.warnings],
        }
        if self.reference_differences:
            document["reference_differences"] = [
                each.to_json() for each in self.reference_differences
            ]
        if self.command.files:
            document["files"] = dict(self.command.files)
        if self.container is not None:
            document["container"] = asdict(self.container)
        if self.buckets is not None:
            document["buckets"] = {
                "strategy": self.bucket_strategy,
                "prompt": self.buckets.prompt,
                "decode": self.buckets.decode,
                "graphs": self.buckets.graphs,
            }
        if self.estimate is not None:
            document["estimate"] = {
                "warmup_seconds": {
                    "low": self.estimate.low_seconds,
                    "high": self.estimate.high_seconds,
                },
                "basis": self.estimate.reason.render(),
            }
        return document
