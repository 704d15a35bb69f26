"""vLLM's server with simulated cards.

It is planned as vllm-gaudi, and run by the CPU engine's vLLM.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.buckets.warmup_time import per_graph
from gaudi_launch.core.engines.base import API_SERVER, VLLM
from gaudi_launch.core.engines.known_versions import newest
from gaudi_launch.core.engines.launch_conditions import check_request
from gaudi_launch.core.engines.upstream_tasks import CHAT, task_of
from gaudi_launch.core.engines.vllm_gaudi.buckets import arguments
from gaudi_launch.core.engines.vllm_gaudi.engine import NAME as PLANNED_AS
from gaudi_launch.core.engines.vllm_gaudi.engine import VllmGaudi
from gaudi_launch.core.engines.vllm_gaudi.rules import is_contiguous
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import KV_BYTES
from gaudi_launch.core.planning.calibration_rules import Calibration
from gaudi_launch.core.planning.effects import unmodelled
from gaudi_launch.core.planning.engine import Context, OverHosts, Proposal
from gaudi_launch.core.planning.engine_args import engine_args
from gaudi_launch.core.planning.exported import skips_warmup
from gaudi_launch.core.planning.memory import memory_in
from gaudi_launch.core.planning.option_table import UPSTREAM, option_table
from gaudi_launch.core.planning.parse import read_time
from gaudi_launch.core.planning.passthrough import sent_options, with_user_args
from gaudi_launch.core.planning.plan import Command, EngineIdentity, Setting
from gaudi_launch.core.planning.precision import weight_type
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.speed import step_time_in
from gaudi_launch.extensions.simulated.stand_in import (
    KEY,
    SEED,
    TOKEN_STEP,
    Tokenizer,
    cache_kinds,
    config_text,
    stand_in_config,
    tokenizer_of,
)

# the time after the warm-up where none is given, in seconds
_DEFAULT_SECONDS = {
    "card-lost": 60.0,
    "slow-card": 0.0,
    "hang": 60.0,
    "crash": 60.0,
    "compile": 0.0,
    "oom": 60.0,
}
KINDS = tuple(_DEFAULT_SECONDS)
_WITH_CARD = ("card-lost", "slow-card")
_MOST_SECONDS = 86_400.0
_FAULT = re.compile(r"(?P<kind>[a-z-]+)(=(?P<module>[0-9]{1,3}))?(@(?P<time>[0-9a-z.]+))?")


@dataclass(frozen=True)
class CardFault:
    """One fault: its kind, seconds after the warm-up, and its card's module ID."""

    kind: str
    after: float
    module: int | None = None


def read_fault(text: str) -> CardFault:
    """Return the fault of ``KIND[=MODULE][@TIME]``, as ``card-lost@120s``.

    Raises LaunchError (USAGE).
    """
    found = _FAULT.fullmatch(text.strip())
    kind = found["kind"] if found else ""
    if found is None or kind not in KINDS:
        raise LaunchError("simulated.fault", ExitCode.USAGE, found=text, kinds=", ".join(KINDS))
    module = None if found["module"] is None else int(found["module"])
    if module is not None and kind not in _WITH_CARD:
        raise LaunchError(
            "simulated.fault_no_card", ExitCode.USAGE, found=text, kinds=", ".join(_WITH_CARD)
        )
    if module is None and kind == "slow-card":
        raise LaunchError("simulated.fault_needs_card", ExitCode.USAGE, found=text)
    after: float | None = _DEFAULT_SECONDS[kind]
    if found["time"] is not None:
        after = read_time(found["time"])
    if after is None or not 0 <= after <= _MOST_SECONDS:
        raise LaunchError(
            "simulated.fault_time", ExitCode.USAGE, found=text, most=f"{_MOST_SECONDS:.0f}"
        )
    return CardFault(kind, after, module)


def fault_document(
    faults: Sequence[CardFault], modules: Sequence[int], cards: int
) -> list[dict[str, Any]]:
    """Return the executor's list: each fault with its copy of the model.

    ``modules`` are those of all copies, ``cards`` of them for each copy. A fault without a card
    concerns the first copy. Raises LaunchError (USAGE) for a card that the service does not have.
    """
    found = []
    for fault in faults:
        rank, module = 0, fault.module
        if module is not None and module not in modules:
            listed = ",".join(map(str, modules))
            raise LaunchError("simulated.fault_card", ExitCode.USAGE, module=module, modules=listed)
        if module is not None:
            rank = list(modules).index(module) // cards
        found.append({"kind": fault.kind, "after": fault.after, "module": module, "rank": rank})
    return found


NAME = "simulated"
RUNTIME = Path(__file__).parent / "runtime"
EXECUTOR = "gaudi_simulated_executor.SimulatedExecutor"
MIDDLEWARE = "gaudi_simulated_marks.SimulatedHeader"
_BACKEND, _SETTINGS = "--distributed-executor-backend", "--additional-config"
# what vLLM would do with these concerns weights or cards, of which it has none
_KEPT_FROM_VLLM = (
    "--quantization",
    "--kv-cache-dtype",
    "--enable-expert-parallel",
    "--trust-remote-code",
    "--limit-mm-per-prompt",
    _BACKEND,
)
# these look for tokens that another model's tokenizer does not have
_PARSERS = ("--reasoning-parser", "--tool-call-parser", "--enable-auto-tool-choice")
# features whose steps have no times here, and what this engine sets itself
_WITHOUT = (
    "--speculative-config",
    "--spec-method",
    "--spec-model",
    "--spec-tokens",
    "--enable-lora",
    "--kv-transfer-config",
    "--quantization",
    "--worker-cls",
    _BACKEND,
    _SETTINGS,
)


@dataclass(frozen=True)
class Simulated(VllmGaudi):
    """Simulated Gaudi cards under vLLM's own server.

    Everything that is planned is vllm-gaudi's; ``tokenizer`` is that of `suited`.
    """

    facts: Mapping[str, str] = field(default_factory=dict)
    tokenizer: Tokenizer | None = None

    @property
    def identity(self) -> EngineIdentity:
        return EngineIdentity(
            NAME,
            VLLM,
            self.python,
            self.facts,
            options=UPSTREAM,
            variables=PLANNED_AS,
            simulated=True,
        )

    @property
    def profile_key(self) -> str:
        return PLANNED_AS

    @property
    def environment(self) -> str:
        """Return the CPU engine's label: it has the vLLM that runs here."""
        return "cpu"

    @property
    def keeps_recipes(self) -> bool:
        return False

    @property
    def can(self) -> tuple[str, ...]:
        return ("chat", "experts", "fp8", "awq", "prefix")

    @property
    def calibration(self) -> Calibration | None:
        return None

    @property
    def over_hosts(self) -> OverHosts | None:
        return None

    def needs_quant_file(self, request: Request, model: Model) -> bool:
        return False

    def suited(self, model: Model) -> Simulated:
        """Return the engine with the tokenizer of this model."""
        return replace(self, tokenizer=tokenizer_of(model))

    def refuse(self, request: Request, host: Host, model: Model) -> None:
        """Raise LaunchError for another vLLM, and for what has no simulated times."""
        found = self.facts.get("vllm", VLLM).partition("+")[0]
        if found != VLLM:
            raise LaunchError("simulated.version", ExitCode.MACHINE, found=found, version=VLLM)
        super().refuse(request, host, model)
        for text in request.faults:
            read_fault(text)
        if task_of(model, request.args) != CHAT:
            raise LaunchError("simulated.no_task", ExitCode.USAGE, model=model.name)
        if not (model.layers and model.hidden_size):
            raise _no_sizes(model)

    def check_features(self, request: Request, model: Model) -> tuple[Message, ...]:
        """Return the warnings; a feature that the planned release lacks is not simulated."""
        warnings = check_request(self.identity, request, model, super().identity)
        without = [*filter(request.args.has, _WITHOUT), *unmodelled(request, model)]
        if without:
            raise LaunchError("simulated.no_option", ExitCode.USAGE, option=without[0])
        return warnings

    def propose(self, context: Context) -> Proposal:
        """Return the settings of vllm-gaudi, and what is simulated."""
        # no code of the model runs
        model = replace(context.model, remote_code=False)
        proposal = super().propose(replace(context, model=model))
        notes = [message("simulated.cards", version=VLLM)]
        tokenizer = self._tokenizer(context.model)
        if not tokenizer.own:
            notes.append(message("simulated.tokenizer", model=model.name))
        return Proposal(proposal.settings, (*notes, *proposal.warnings))

    def command(self, settings: Sequence[Setting], context: Context) -> Command:
        """Return the CPU engine's server with the executor of simulated cards."""
        request = context.request
        tokenizer = self._tokenizer(context.model)
        cards = context.placement.tensor or 1
        config = config_text(
            stand_in_config(context.model, tokenizer, context.limits.max_model_len, cards)
        )
        document = self._cards(settings, context)
        digest = hashlib.sha256(f"{config}{document}".encode()).hexdigest()[:12]
        folder = PurePath(request.files_dir) / f"simulated-{digest}"
        # the options of the plan that vLLM gets
        kept = _KEPT_FROM_VLLM if tokenizer.own else (*_KEPT_FROM_VLLM, *_PARSERS)
        args = engine_args(
            table=option_table(UPSTREAM),
            head=(self.python or "python3", *API_SERVER),
            ours=[
                ("--model", str(folder)),
                ("--tokenizer", tokenizer.path),
                *_named(settings, request),
                *(option for option in sent_options(settings) if option[0] not in kept),
                (_BACKEND, EXECUTOR),
                ("--middleware", MIDDLEWARE),
                # a model follows the schema of a tool; here only a grammar does
                ("--tool-strict-level", "parameter"),
                (_SETTINGS, json.dumps({KEY: str(folder / "cards.json")}, separators=(",", ":"))),
            ],
            user=request.extra,
            file=request.file_words,
        )
        return Command(
            argv=args.to_argv(),
            env={
                "PYTHONPATH": str(RUNTIME),
                "HF_HUB_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1",
                "TOKENIZERS_PARALLELISM": "false",
                # nothing is computed: threads would only take the processor from the server
                "OMP_NUM_THREADS": "1",
            },
            files={str(folder / "config.json"): config, str(folder / "cards.json"): document},
            user=args.user_words,
        )

    def _tokenizer(self, model: Model) -> Tokenizer:
        return self.tokenizer or tokenizer_of(replace(model, path=""))

    def _cards(self, settings: Sequence[Setting], context: Context) -> str:
        """Return the text of the executor's settings. Raises LaunchError (MODEL)."""
        request, model = context.request, context.model
        memory = memory_in(context, settings, self)
        if memory.num_blocks is None:
            raise _no_sizes(model)
        every = with_user_args(settings, request.args)
        # the first counts
        shown = {setting.name: setting.value for setting in reversed(every)}
        kv_dtype = shown.get("--kv-cache-dtype") or "auto"
        cards = context.placement.tensor or 1
        product = context.host.cards[0].product if context.host.cards else ""
        document = {
            "cards": f"{cards} x {product or 'Gaudi'}",
            "seed": SEED,
            # of each copy of the model
            "blocks": memory.num_blocks,
            # asynchronous scheduling
            "ahead": "--async-scheduling" in shown
            and not request.args.has("--no-async-scheduling"),
            # answers have a reasoning part, which vLLM's parser separates
            "thinks": self._tokenizer(model).own and "--reasoning-parser" in shown,
            "faults": self._faults(context),
            "kv": [asdict(kind) for kind in cache_kinds(model, cards, KV_BYTES.get(kv_dtype, 2))],
            "card": self._card(settings, context, memory.num_blocks),
        }
        return json.dumps(document, separators=(",", ":")) + "\n"

    def _card(
        self, settings: Sequence[Setting], context: Context, num_blocks: int
    ) -> dict[str, Any]:
        """Return the plan of one card: buckets, limits and the constants of its steps."""
        request, limits = context.request, context.limits
        found = self.buckets(settings, context, num_blocks)
        buckets = found[1] if found is not None else Buckets([], [])
        # the time to compile one graph
        graph = per_graph(weight_type(request, context.model), False, model=context.model)
        contiguous = is_contiguous(settings)
        # that of a model with states, in tokens
        chunk = arguments(context, contiguous, num_blocks, None)["mamba_chunk_size"]
        return {
            "cost": step_time_in(context, self).constants(),
            "prompt": buckets.prompt,
            "decode": buckets.decode,
            "graph_seconds": round((graph.low_seconds + graph.high_seconds) / 2, 3),
            "block_size": limits.block_size,
            "max_num_seqs": limits.max_num_seqs,
            "max_num_batched_tokens": limits.max_num_batched_tokens,
            "max_model_len": limits.max_model_len,
            "prefill_batch": limits.max_num_prefill_seqs,
            # vllm-project/vllm-gaudi@091bbadd:vllm_gaudi/extension/bucketing/common.py, initialize
            "token_step": max(TOKEN_STEP, chunk),
            "contiguous": contiguous,
            "warmed": not (request.skip_warmup or skips_warmup(settings, PLANNED_AS)),
            "time_scale": request.time_scale or 1.0,
        }

    def _faults(self, context: Context) -> list[dict[str, Any]]:
        """Return the executor's faults. Raises LaunchError (USAGE)."""
        request = context.request
        if not request.faults:
            return []
        placement = context.placement
        faults = [read_fault(text) for text in request.faults]
        return fault_document(faults, placement.modules, placement.tensor or 1)


def _named(settings: Sequence[Setting], request: Request) -> list[tuple[str, str | None]]:
    """Return the served name where the settings have none: the model's as typed."""
    if any(setting.name == "--served-model-name" for setting in settings):
        return []
    return [("--served-model-name", request.model)]


def create(name: str, python: str | None, facts: Mapping[str, str]) -> Simulated:
    """Return the simulated cards of the newest release of the plugin with facts."""
    return Simulated(python, facts, newest(PLANNED_AS).version)


def _no_sizes(model: Model) -> LaunchError:
    why = mapped(Message.render, model.unread)
    return LaunchError("simulated.no_sizes", ExitCode.MODEL, detail=why, model=model.name)
