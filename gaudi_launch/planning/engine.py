"""The base class of engines: every question that the program asks an engine, with its default.

planning knows this class, never an engine. How an engine is registered: `engines.registry`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gaudi_launch.buckets.bucket_list import Buckets
from gaudi_launch.host.records import Host
from gaudi_launch.messages import Message
from gaudi_launch.models.calibration.rules import Calibration
from gaudi_launch.models.records import Model
from gaudi_launch.models.sizing import MemoryRules
from gaudi_launch.performance.limits import CoverageQuestion
from gaudi_launch.planning.engine_args import NO_ARGS, EngineArgs
from gaudi_launch.planning.placement import choose_for
from gaudi_launch.planning.plan import Command, EngineIdentity, Placement, Plan, Setting
from gaudi_launch.planning.request import Request
from gaudi_launch.planning.support import ModelSupport


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


@dataclass(frozen=True)
class BucketQuestion:
    """What decides an engine's bucket grid, as `buckets.engine_buckets` and `engines.introspect` take it.

    ``package``: the Python package of the installed engine that makes its buckets.
    """

    family: str
    package: str
    algorithm: str
    environment: Mapping[str, str]
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class OverHosts:
    """What an engine can do over several hosts.

    ``ray``: it asks Ray for its cards, so that one engine can span hosts. ``validated``: its makers have tried it.
    ``tensor_guide`` is the source of a guide that cuts every model over all cards by tensor parallelism; pipeline
    stages are not tried there. ``old_ray``: its Ray executor is an old one, which matters when tensors span hosts.
    """

    ray: bool = True
    validated: bool = True
    tensor_guide: str = ""
    old_ray: bool = False


@dataclass(frozen=True)
class Spread:
    """One engine over several hosts, for `Engine.spread`.

    ``tensor`` is the tensor parallel size and ``ray`` True where the engine spans hosts. ``own`` are names that the
    user decided, ``source`` the engine's checkout on the hosts (None: not known), ``measured`` True where the plan
    has read the QUANT_CONFIG.
    """

    settings: Sequence[Setting]
    tensor: int
    ray: bool
    own: frozenset[str]
    source: str | None = None
    measured: bool = False


class Engine(ABC):
    """One engine at one version.

    An engine answers `identity`, `limits`, `propose` and `command`; everything else has a default: an engine that
    runs as a process of this machine, takes cards, warms nothing up and reads no file of measurements.
    """

    # What it is

    @property
    @abstractmethod
    def identity(self) -> EngineIdentity:
        """Return its name, version, interpreter and facts."""

    @property
    def needs_cards(self) -> bool:
        """Return False for an engine that runs on the CPU."""
        return True

    @property
    def keeps_recipes(self) -> bool:
        """Return True for an engine whose compiled graphs PT_HPU_RECIPE_CACHE_CONFIG keeps on disk."""
        return self.needs_cards

    @property
    def in_container(self) -> bool:
        """Return True for an engine that runs as an image, so that no interpreter has it."""
        return self.image is not None

    @property
    def needs_interpreter(self) -> bool:
        """Return False for an engine that no Python of this machine has to have installed."""
        return not self.in_container

    @property
    def image(self) -> str | None:
        """Return the image of an engine that runs as one."""
        return None

    @property
    def can(self) -> tuple[str, ...]:
        """Return what it serves, in the terms of the engines page (``engines.can_*``)."""
        return ("chat",)

    @property
    def lacks(self) -> tuple[str, ...]:
        """Return our options that have no meaning for this engine, in any tuning."""
        return ()

    @property
    def bucket_file(self) -> str | None:
        """Return the variable that names a bucket file; None for an engine that reads none."""
        return None

    @property
    def scheduling(self) -> Literal["v0", "v1"]:
        """Return how it schedules: prompts before decoding ("v0"), or both in one step ("v1")."""
        return "v0"

    # Engines around engines

    @property
    def inner(self) -> Engine | None:
        """Return the engine that this one runs as its replicas; None for most."""
        return None

    @property
    def innermost(self) -> Engine:
        """Return the engine that decides about the model: this one, or the one inside."""
        return self if self.inner is None else self.inner.innermost

    def first(self, request: Request, placement: Placement, host: Host) -> tuple[Request, Placement]:
        """Return the request and the cards of one replica, for which `inner` is planned."""
        return request, placement

    def wrap(self, plan: Plan, request: Request, placement: Placement, host: Host, model: Model) -> Plan:
        """Return the plan of the deployment around ``plan``, which is `inner`'s for one replica."""
        return plan

    def suited(self, model: Model) -> Engine:
        """Return the engine for this model: some run another one inside for some models."""
        return self

    # From a request to a command

    def cards(self, request: Request) -> int | None:
        """Return how many cards; None leaves it to -m, or one."""
        return request.cards

    def place(self, request: Request, host: Host) -> Placement:
        """Choose the cards of this request. Raises LaunchError (MACHINE) where there are too few."""
        return choose_for(request, host, self.cards(request))

    @abstractmethod
    def limits(self, request: Request, host: Host, model: Model) -> Limits:
        """Return the lengths by the request and this version's defaults. Raises LaunchError (USAGE)."""

    def refuse(self, request: Request, host: Host, model: Model) -> None:  # noqa: B027 (accepts all by default)
        """Raise LaunchError for options that this engine does not have or cannot honour."""

    def support(
        self, model: Model, args: EngineArgs = NO_ARGS, variables: Mapping[str, str] | None = None
    ) -> ModelSupport:
        """Return what this version says of a model; by default nothing is known.

        ``args`` are the user's own engine options, ``variables`` the engine's environment.
        """
        return ModelSupport(self.identity.exact)

    @property
    def needs_gaudi2_range(self) -> bool:
        """Return True if fp8 weights have to be in Gaudi2's range on disk: nothing rescales them at load."""
        return False

    @property
    def calibration(self) -> Calibration | None:
        """Return how this engine is calibrated for fp8; None where it is not calibrated here."""
        return None

    @property
    def profile_key(self) -> str:
        """Return the name of this engine in the settings of a model's profile."""
        return self.identity.name

    def needs_quant_file(self, request: Request, model: Model) -> bool:
        """Return True for a deployment that reads a QUANT_CONFIG."""
        return False

    @abstractmethod
    def propose(self, context: Context) -> Proposal:
        """Return every variable and option of this deployment."""

    @abstractmethod
    def command(self, settings: Sequence[Setting], context: Context) -> Command:
        """Return the final command of resolved settings."""

    # Several hosts

    @property
    def over_hosts(self) -> OverHosts | None:
        """Return what it can do over several hosts; None for an engine of one host."""
        return None

    def script_differences(
        self, request: Request, host: Host, placement: Placement, command: Command
    ) -> tuple[Message, ...]:
        """Return what a plan of reference tuning does otherwise than the start script, on purpose."""
        return ()

    def spread(self, spread: Spread) -> tuple[Setting, ...]:
        """Return the settings that several hosts change, beside parallel sizes and Ray's own."""
        return ()

    # A card's memory

    def memory_rules(self, variables: Mapping[str, str]) -> MemoryRules:
        """Return how this engine divides a card, started with these variables."""
        return MemoryRules()

    def silent_kv_dtype(self, model: Model, variables: Mapping[str, str]) -> str:
        """Return the type of the KV cache where no option names it."""
        return "auto"

    # Warm-up

    @property
    def bucket_family(self) -> str | None:
        """Return the family of bucket algorithms (`buckets.families.FAMILIES`).

        "" for an engine that makes its list itself and takes none; None for one that warms nothing up.
        """
        return None

    def bucket_question(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> BucketQuestion | None:
        """Return what decides the grid; None where the grid is not known."""
        return None

    def buckets(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> tuple[str, Buckets] | None:
        """Return the strategy's name and the buckets of these settings; None without a warm-up."""
        return None

    def pools(self, model: Model, args: EngineArgs) -> bool:
        """Return True for a model that this engine runs without a KV cache: prompts only."""
        return False

    def warmed(self, buckets: Buckets, settings: Sequence[Setting], context: Context) -> Buckets:
        """Return those of the engine's own list that its warm-up really compiles with these settings."""
        return buckets

    def question(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> CoverageQuestion | None:
        """Return what the warm-up planner has to cover; None where no warm-up is known."""
        return None
