"""The base class of engines: every question of the program, with its default.

planning knows this class, never an engine. `core.engines.entries` registers engines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import MemoryRules
from gaudi_launch.core.planning.calibration_rules import Calibration
from gaudi_launch.core.planning.engine_args import NO_ARGS, EngineArgs
from gaudi_launch.core.planning.option_table import OptionTable, option_table
from gaudi_launch.core.planning.passthrough import parallel_sizes
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Command, EngineIdentity, Plan, Setting
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.requested_cards import choose_for
from gaudi_launch.core.planning.support_answer import ModelSupport
from gaudi_launch.core.predict.limits import CoverageQuestion


@dataclass(frozen=True)
class Limits:
    """The effective lengths, in tokens, after flags, defaults and rounding.

    ``least_length``: the engine makes no bucket for a shorter ``max_model_len`` or step.
    """

    input_min: int
    input_max: int
    output_min: int
    output_max: int
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    max_num_prefill_seqs: int
    block_size: int = 128
    least_length: int = 0


@dataclass(frozen=True)
class Context:
    """The inputs of an engine's proposal.

    ``memory_only``: nothing is needed that the division of memory does not depend on.
    """

    request: Request
    host: Host
    model: Model
    placement: Placement
    limits: Limits
    memory_only: bool = False


@dataclass(frozen=True)
class Proposal:
    """An engine's answer: settings of any source, in the order of argv.

    They are resolved later by strength.
    """

    settings: Sequence[Setting]
    warnings: Sequence[Message] = field(default_factory=tuple)


@dataclass(frozen=True)
class BucketQuestion:
    """The inputs of an engine's bucket grid.

    ``package``: the Python package of the installed engine that makes its buckets, which
    `core.engines.introspect` queries. ``ours`` makes the list by our arithmetic; it raises
    BucketError.
    """

    family: str
    package: str
    algorithm: str
    environment: Mapping[str, str]
    arguments: Mapping[str, Any]
    ours: Callable[[], Buckets] = field(compare=False, repr=False)


InstalledAnswer = Callable[[BucketQuestion], tuple[str, Buckets] | None]
"""An installed engine's own strategy and list; None where it does not answer."""


@dataclass(frozen=True)
class OverHosts:
    """An engine's abilities over several hosts.

    ``ray``: Ray assigns its cards, so that one engine can span hosts. ``validated``: its makers
    have tested it. ``tensor_guide`` is the source of a guide that divides every model over all
    cards by tensor parallelism; pipeline stages are untested there. ``old_ray``: its Ray executor
    is an old one, which matters when tensors span hosts.
    """

    ray: bool = True
    validated: bool = True
    tensor_guide: str = ""
    old_ray: bool = False


@dataclass(frozen=True)
class Spread:
    """One engine over several hosts, for `Engine.spread`.

    ``tensor`` is the tensor parallel size and ``ray`` True where the engine spans hosts. ``own``
    are names that the user decided, ``source`` the engine's checkout on the hosts (None: unknown),
    ``measured`` True where the plan has read the QUANT_CONFIG.
    """

    settings: Sequence[Setting]
    tensor: int
    ray: bool
    own: frozenset[str]
    source: str | None = None
    measured: bool = False


@dataclass(frozen=True)
class Scaling:
    """Replicas and requests of a deployment in Ray Serve.

    ``target``, ``up`` and ``down`` only count where the number of replicas may vary. ``hpus`` are
    cards per replica, 0 for an engine without cards.
    """

    least: int
    most: int
    hpus: int
    ongoing: int
    target: int = 0
    up: int = 0
    down: int = 0


@dataclass(frozen=True)
class ServeConfig:
    """A Serve config, and the files of its application by name."""

    document: Mapping[str, Any]
    files: Mapping[str, str]


class Engine(ABC):
    """One engine at one version.

    An engine defines `identity`, `limits`, `propose` and `command`; everything else has a default:
    an engine that runs as a process of this machine, uses cards, has no warm-up and reads no file
    of measurements.
    """

    # Properties

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
        """Return True if PT_HPU_RECIPE_CACHE_CONFIG keeps its compiled graphs on disk."""
        return self.needs_cards

    @property
    def in_container(self) -> bool:
        """Return True for an engine that runs as an image, without an interpreter."""
        return self.image is not None

    @property
    def needs_interpreter(self) -> bool:
        """Return False for an engine that needs no Python of this machine."""
        return not self.in_container

    @property
    def image(self) -> str | None:
        """Return the image of an engine that runs as one."""
        return None

    @property
    def can(self) -> tuple[str, ...]:
        """Return what it supports, in the terms of the engines page (``engines.can_*``)."""
        return ("chat",)

    @property
    def lacks(self) -> tuple[str, ...]:
        """Return the options that this engine does not support, in any tuning."""
        return ()

    @property
    def bucket_file(self) -> str | None:
        """Return the variable that names a bucket file.

        Return None for an engine that reads none.
        """
        return None

    @property
    def config_file(self) -> Literal["", "read", "breaks"]:
        """Return what ``--config FILE`` does: is read, or stops the engine.

        Return "" for an engine without it.
        """
        return ""

    @property
    def ended(self) -> str | None:
        """Return the date on which its makers announced its end.

        Return None for one that they continue.
        """
        return None

    @property
    def scheduling(self) -> Literal["v0", "v1"]:
        """Return its scheduling: "v0" or "v1".

        "v0" runs prompts before decoding, "v1" both in one step.
        """
        return "v0"

    @property
    def option_table(self) -> OptionTable:
        """Return the options that its server reads."""
        return option_table(self.identity.options)

    @property
    def environment(self) -> str:
        """Return the label of the engine whose environment it runs in: its own, for most."""
        return self.identity.label

    @property
    def packages(self) -> tuple[str, ...]:
        """Return what pip installs of it in the interpreter of another engine."""
        return ()

    def caches_prefixes(self, request: Request, model: Model) -> bool:
        """Return True if this request runs with prefix caching of this model."""
        return False

    def cache_arguments(self, model: Model) -> tuple[str, ...]:
        """Return the arguments that keep the KV cache in fp8 by the weights' own scales.

        Empty where this engine or these weights lack it. Calibrated weights are another matter:
        their file decides (`core.planning.precision.fp8_cache`).
        """
        return ()

    def prefix_arguments(self, *, on: bool) -> tuple[str, ...] | None:
        """Return the engine's arguments that turn prefix caching on or off.

        Return None where it cannot be turned.
        """
        return None

    # Engines that contain another engine

    @property
    def inner(self) -> Engine | None:
        """Return the engine that this one runs as its replicas, None for most."""
        return None

    @property
    def innermost(self) -> Engine:
        """Return the engine that runs the model: this one, or the inner one."""
        if self.inner is None:
            return self
        return self.inner.innermost

    def first(
        self, request: Request, placement: Placement, host: Host
    ) -> tuple[Request, Placement]:
        """Return the request and the cards of one replica, for which `inner` is planned."""
        return request, placement

    def wrap(
        self, plan: Plan, request: Request, placement: Placement, host: Host, model: Model
    ) -> Plan:
        """Return the deployment's plan, made from the plan of one replica of `inner`."""
        return plan

    def serve_config(self, args: EngineArgs, scaling: Scaling) -> ServeConfig | None:
        """Return what a Ray cluster needs to run replicas of the command ``args``.

        Ray gives each all cards of its node. Return None for an engine that is not Ray's.
        """
        return None

    def suited(self, model: Model) -> Engine:
        """Return the engine for this model: some select their inner engine by the model."""
        return self

    def fitting(self, limits: Limits, num_blocks: int | None) -> Engine:
        """Return the engine with defaults that a cache of this size has room for."""
        return self

    # From a request to a command

    def cards(self, request: Request) -> int | None:
        """Return the number of cards; None leaves it to -m, or to the default of one."""
        return request.cards or request.chosen_cards

    def place(self, request: Request, host: Host) -> Placement:
        """Choose the cards of this request, for each stage of each copy of the model.

        Raises LaunchError (MACHINE) where there are too few.
        """
        stages, copies = parallel_sizes(request.args)
        parts, cards = stages * copies, self.cards(request)
        if parts == 1:
            return choose_for(request, host, cards)
        each = cards or len(request.modules or ()) // parts or 1
        placement = choose_for(request, host, parts * each)
        note = message("placement.parts", stages=stages, copies=copies, cards=each)
        return replace(placement, parts=parts, reasons=(*placement.reasons, note))

    @abstractmethod
    def limits(self, request: Request, host: Host, model: Model) -> Limits:
        """Return the lengths of the request with this version's defaults.

        Raises LaunchError (USAGE).
        """

    def refuse(self, request: Request, host: Host, model: Model) -> None:  # noqa: B027 (accepts all by default)
        """Raise LaunchError for options that this engine cannot apply."""

    def unmodelled(self, request: Request) -> tuple[str, ...]:
        """Return the exported variables whose effect on a plan has no rule here."""
        return ()

    def support(
        self, model: Model, args: EngineArgs = NO_ARGS, variables: Mapping[str, str] | None = None
    ) -> ModelSupport:
        """Return this version's support of a model; unknown by default.

        ``args`` are the user's engine options, ``variables`` the engine's environment.
        """
        return ModelSupport(self.identity.exact)

    def check_features(self, request: Request, model: Model) -> tuple[Message, ...]:
        """Return warnings about requested features with limits in this version.

        Raises LaunchError (USAGE) for an option whose feature it lacks, unless forced.
        """
        return ()

    def settled(self, context: Context, proposed: Sequence[Setting]) -> Proposal:
        """Return the settings as the known conditions of this version change them.

        Also a warning for each that only warns.
        """
        return Proposal(proposed)

    @property
    def needs_gaudi2_range(self) -> bool:
        """Return True if fp8 weights must be in Gaudi2's range on disk.

        That is the case where the engine does not rescale them when it loads them.
        """
        return False

    @property
    def takes_first_gaudi(self) -> bool:
        """Return True if the release's documents list the first Gaudi."""
        return False

    @property
    def calibration(self) -> Calibration | None:
        """Return the calibration of this engine for fp8.

        Return None where it cannot be calibrated here.
        """
        return None

    @property
    def profile_key(self) -> str:
        """Return the name of this engine in the settings of a model's profile."""
        return self.identity.name

    def needs_quant_file(self, request: Request, model: Model) -> bool:
        """Return True for a deployment that reads a QUANT_CONFIG."""
        return False

    def measured_files(self, request: Request) -> tuple[str, ...]:
        """Return what fp8 needs on the host, where the engine in a container mounts it."""
        return ()

    @abstractmethod
    def propose(self, context: Context) -> Proposal:
        """Return every variable and option of this deployment."""

    @abstractmethod
    def command(self, settings: Sequence[Setting], context: Context) -> Command:
        """Return the final command of resolved settings."""

    # Several hosts

    @property
    def over_hosts(self) -> OverHosts | None:
        """Return its abilities over several hosts; None for an engine of one host."""
        return None

    def runs_stages(self, model: Model) -> bool:
        """Return True if it runs this model in pipeline stages, as its makers describe."""
        return False

    def script_differences(
        self, request: Request, host: Host, placement: Placement, command: Command
    ) -> tuple[Message, ...]:
        """Return the deliberate differences of reference tuning from the start script."""
        return ()

    def spread(self, spread: Spread) -> tuple[Setting, ...]:
        """Return the settings that several hosts change.

        Parallel sizes and Ray's settings are not among them.
        """
        return ()

    # A card's memory

    def memory_rules(self, variables: Mapping[str, str]) -> MemoryRules:
        """Return the rules by which this engine divides a card with these variables."""
        return MemoryRules()

    def silent_kv_dtype(self, model: Model, variables: Mapping[str, str]) -> str:
        """Return the type of the KV cache when no option names it."""
        return "auto"

    # Warm-up

    @property
    def bucket_family(self) -> str | None:
        """Return the family of bucket algorithms (`core.buckets.families.FAMILIES`).

        Return "" for an engine that builds its list itself and reads none; None for one without a
        warm-up.
        """
        return None

    def bucket_question(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> BucketQuestion | None:
        """Return the inputs of the bucket grid; None where the grid is unknown."""
        return None

    def asking(self, answer: InstalledAnswer) -> Engine:
        """Return the engine, its lists being those of the installed one where it answers."""
        return self

    def buckets(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> tuple[str, Buckets] | None:
        """Return the strategy's name and the buckets of these settings.

        Return None without a warm-up.
        """
        return None

    def chooses_prompts(self, context: Context) -> bool:
        """Return True if a plan chooses the prompts of one step.

        `core.buckets.prompts_per_step` does it. False where the user gave them, or where the engine
        runs one at a time in any case.
        """
        return False

    def pools(self, model: Model, args: EngineArgs) -> bool:
        """Return True for a model that this engine runs without a KV cache.

        A service of that kind has prompts only.
        """
        return False

    def generates(self, model: Model, args: EngineArgs) -> bool:
        """Return True for a model that writes text here: it has a speed in tokens/s."""
        return not self.pools(model, args)

    def warmed(self, buckets: Buckets, settings: Sequence[Setting], context: Context) -> Buckets:
        """Return the part of the engine's list that its warm-up compiles."""
        return buckets

    def question(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> CoverageQuestion | None:
        """Return what the warm-up planner must cover; None where no warm-up is known."""
        return None
