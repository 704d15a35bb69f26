"""What a plan asks of an engine. planning knows this protocol, never an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gaudi_launch.host.records import Host
from gaudi_launch.messages import Message
from gaudi_launch.models.records import Model
from gaudi_launch.planning.plan import Command, EngineIdentity, Placement, Setting
from gaudi_launch.planning.request import Request
from gaudi_launch.warmup.buckets import Buckets
from gaudi_launch.warmup.limits import Question


@dataclass(frozen=True)
class Limits:
    """The lengths in force, in tokens, after flags, defaults and rounding."""

    input_min: int
    input_max: int
    output_min: int
    output_max: int
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    max_num_prefill_seqs: int
    block_size: int = 128


@dataclass(frozen=True)
class Context:
    """All an engine may look at when it proposes settings."""

    request: Request
    host: Host
    model: Model
    placement: Placement
    limits: Limits


@dataclass(frozen=True)
class Proposal:
    """An engine's answer: settings of any source (resolved later by strength), in the order of argv."""

    settings: Sequence[Setting]
    warnings: Sequence[Message] = field(default_factory=tuple)


class Engine(Protocol):
    """One engine at one version."""

    @property
    def identity(self) -> EngineIdentity: ...

    @property
    def needs_cards(self) -> bool:
        """False for an engine that runs on the CPU."""

    @property
    def lacks(self) -> tuple[str, ...]:
        """Our options that mean nothing to this engine, in any tuning."""

    def cards(self, request: Request) -> int | None:
        """How many cards; None leaves it to -m or one."""

    def limits(self, request: Request, host: Host, model: Model) -> Limits:
        """Lengths from the request and this version's defaults. Raises LaunchError on nonsense."""

    def refuse(self, request: Request, host: Host, model: Model) -> None:
        """Raise LaunchError for options that this engine does not have or cannot honour."""

    def propose(self, context: Context) -> Proposal:
        """Every variable and option for this deployment."""

    def buckets(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> tuple[str, Buckets] | None:
        """The strategy's name and the buckets that these settings warm up; None if the engine has none."""

    def question(self, settings: Sequence[Setting], context: Context, num_blocks: int | None) -> Question | None:
        """What the warm-up planner is to cover with these settings; None where no warm-up is known."""

    def command(self, settings: Sequence[Setting], context: Context) -> Command:
        """The final command of resolved settings."""
