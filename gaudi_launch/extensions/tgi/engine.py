"""Text Generation Inference's Gaudi backend: an engine in a docker container.

Images 3.2.3-gaudi (of the public guide) and 3.3.3-gaudi to 3.3.7-gaudi; the first pads rows, the
others have a paged cache and vLLM's buckets. Source unless another is given:
huggingface/text-generation-inference, tag of the image; the values to start from:
@v3.3.5:backends/gaudi/examples/docker_commands.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.buckets.engine_booleans import boolean
from gaudi_launch.core.engines.base import given
from gaudi_launch.core.engines.upstream_tasks import CHAT, sees_by_name, task_of
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import MemoryRules
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import Context, Engine, Limits, Proposal
from gaudi_launch.core.planning.engine_args import NO_ARGS, EngineArgs
from gaudi_launch.core.planning.exported import check_exported
from gaudi_launch.core.planning.lengths import ceil_div
from gaudi_launch.core.planning.option_table import OptionTable
from gaudi_launch.core.planning.parse_ranges import share
from gaudi_launch.core.planning.plan import Command, EngineIdentity, Setting, variables_of
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.requested_cards import refuse_heads
from gaudi_launch.core.planning.support_answer import ModelSupport, SupportStatus
from gaudi_launch.core.predict.limits import CoverageQuestion, as_limits
from gaudi_launch.extensions.tgi import container as tgi_container
from gaudi_launch.extensions.tgi import options as words_of
from gaudi_launch.extensions.tgi import tokens as tgi_tokens
from gaudi_launch.extensions.tgi.tgi_buckets import BLOCK, PAGED, POWERS, Images, tgi_shapes

# fields of Request that no version of TGI supports
_WITHOUT = {
    "reduce": "-r",
    "scheduler_steps": "-e",
    "no_zero_padding": "-z",
    "padding_limit": "--padding-limit",
    "max_capture_len": "--max-capture-len",
    "python": "--python",
}
# by `paged`
_ALSO_WITHOUT = {
    False: {"skip_warmup": "-s", "memory_utilization": "--memory-utilization"},
    True: {
        "profile": "-f",
        "no_fused_sdpa": "-a",
        "inc_fp8": "-q",
        "quant_config": "--quant-config",
    },
}
_ALGORITHMS = {False: POWERS, True: PAGED}
_DTYPES = ("bfloat16", "fp8", "awq", "gptq")
# docs/source/backends/gaudi.mdx of v3.2.3: how to profile performance
_PROFILING = {
    "PROF_WAITSTEP": "10",
    "PROF_WARMUPSTEP": "10",
    "PROF_STEP": "1",
    "PROF_PATH": tgi_container.PROFILE,
    "PROF_RANKS": "0",
    "PROF_RECORD_SHAPES": "True",
}
_Option = Callable[..., None]
_EXAMPLES = "huggingface/text-generation-inference@v3.3.5:backends/gaudi/examples/docker_commands"
# the images that TGI's documents and the public guide name
_NAMED = ("3.2.3", "3.3.5")
_LAUNCHER = "huggingface/text-generation-inference@v3.3.5:launcher/src/main.rs"


@dataclass(frozen=True)
class Tgi(Engine):
    """One version of the image.

    ``room``: the tokens of the card's cache, where the examples' numbers exceed it.
    """

    version: str = words_of.LATEST
    facts: Mapping[str, str] = field(default_factory=dict)
    room: int | None = None

    @property
    def identity(self) -> EngineIdentity:
        return EngineIdentity("tgi", self.version, None, self.facts, api="generate")

    @property
    def option_table(self) -> OptionTable:
        return words_of.TABLE

    @property
    def image(self) -> str:
        return words_of.IMAGE.format(version=self.version)

    @property
    def paged(self) -> bool:
        return words_of.paged(self.version)

    @property
    def can(self) -> tuple[str, ...]:
        return ("chat", "vision", "fp8", "awq")

    @property
    def takes_first_gaudi(self) -> bool:
        # docs/source/backends/gaudi.mdx, "Supported Hardware"
        return True

    @property
    def lacks(self) -> tuple[str, ...]:
        return (*self._without.values(), "--served-name")

    @property
    def _without(self) -> Mapping[str, str]:
        return {**_WITHOUT, **_ALSO_WITHOUT[self.paged]}

    def limits(self, request: Request, host: Host, model: Model) -> Limits:
        """Return the lengths in TGI's terms: input, total, batch and prefill budget."""
        tokens = self._tokens(request, model)
        return Limits(
            input_min=1,
            input_max=tokens.input,
            output_min=1,
            output_max=tokens.total - tokens.input,
            max_model_len=tokens.total,
            max_num_batched_tokens=tokens.prefill,
            max_num_seqs=tokens.batch,
            max_num_prefill_seqs=min(ceil_div(tokens.prefill, tokens.input), tokens.batch),
            block_size=BLOCK,
        )

    def _tokens(self, request: Request, model: Model) -> tgi_tokens.Tokens:
        # by the request: limits are needed before the cards are placed
        cards = len(request.modules or ()) or self.cards(request) or 1
        room = {"most_prefill" if self.paged else "most_rows": self.room}
        return tgi_tokens.decide(request, model, cards, self._words(request), **room)

    def fitting(self, limits: Limits, num_blocks: int | None) -> Engine:
        if num_blocks is None or self.room is not None:
            return self
        needed = limits.max_num_batched_tokens
        if not self.paged:
            needed = limits.max_num_seqs * limits.max_model_len
        return replace(self, room=num_blocks * BLOCK) if needed > num_blocks * BLOCK else self

    def _words(self, request: Request) -> dict[str, str | None]:
        return words_of.read_words(request.extra, self.version, request.force)

    def support(
        self, model: Model, args: EngineArgs = NO_ARGS, variables: Mapping[str, str] | None = None
    ) -> ModelSupport:
        """Return what this image's list of model types says.

        Chat models only, see `refuse`.
        """
        label, evidence = self.identity.exact, words_of.TYPES_SOURCE[self.paged]
        kind = model.model_type
        if kind is None:
            return ModelSupport(label)
        if self._unknown_type(model) is not None:
            reason = message("support.no_type", engine=label, type=kind)
            return ModelSupport(label, SupportStatus.NO, (reason,), evidence, refused=True)
        if kind not in self._types:
            # the padded image also takes text models that it does not list
            return ModelSupport(label)
        return ModelSupport(label, SupportStatus.RUNS, evidence=evidence, own_class=True)

    @property
    def _types(self) -> frozenset[str]:
        return words_of.types_of(self.version)

    def _unknown_type(self, model: Model) -> str | None:
        """Return the model's type where this image cannot load it."""
        asked = self.paged or tgi_tokens.is_vision(model)
        if model.model_type is None or not asked or model.model_type in self._types:
            return None
        return model.model_type

    def refuse(self, request: Request, host: Host, model: Model) -> None:
        """Raise LaunchError for options that this version does not support."""
        for flag in given(request, self._without.items()):
            raise LaunchError("tgi.option", ExitCode.USAGE, flag=flag, version=self.version)
        self._words(request)
        self._refuse_dtype(request, model)
        unknown_type = self._unknown_type(model)
        if unknown_type is not None and not request.force:
            raise LaunchError(
                "tgi.model_type",
                ExitCode.MODEL,
                model=model.name,
                type=unknown_type,
                version=self.version,
            )
        # router/src/lib.rs: /generate and chat, no path for embeddings or scores
        if (task := task_of(model)) != CHAT and not request.force:
            raise LaunchError("tgi.task", ExitCode.MODEL, model=model.name, task=task)
        tgi_container.published(request.host)
        tgi_container.own_image(request, self.image)
        if "--revision" in self._words(request) and not tgi_container.from_hub(request.model):
            raise LaunchError("tgi.revision", ExitCode.USAGE, path=request.model)

    def _refuse_dtype(self, request: Request, model: Model) -> None:
        dtype = request.dtype
        if dtype == "float16" or self._words(request).get("--dtype") == "float16":
            raise LaunchError("tgi.float16", ExitCode.USAGE)
        if dtype not in (None, *_DTYPES):
            raise LaunchError("plan.dtype", ExitCode.USAGE, found=dtype, known=", ".join(_DTYPES))
        if self.paged:
            return
        # v3.2.3 cli.py sets dtype to bfloat16 and then refuses it with any of these; the launcher
        # also reads the method from config.json
        quantize = self._words(request).get("--quantize") or model.quantization
        if dtype in ("awq", "gptq"):
            quantize = dtype
        if quantize and not request.force:
            raise LaunchError(
                "tgi.quantize_old", ExitCode.USAGE, found=quantize, version=self.version
            )
        if "--kv-cache-dtype" in self._words(request):
            raise LaunchError(
                "tgi.no_option", ExitCode.USAGE, option="--kv-cache-dtype", version=self.version
            )
        measured = request.quant_config or request.environment.get("QUANT_CONFIG")
        if (dtype == "fp8" or request.inc_fp8) and not measured:
            raise LaunchError("tgi.fp8_measure", ExitCode.USAGE, version=self.version)

    def measured_files(self, request: Request) -> tuple[str, ...]:
        """Return the configuration and its measurements, which the old images read."""
        files = tgi_container.quant_config(request)
        if files is None or self.paged:
            return ()
        return (posixpath.join(files.folder, posixpath.basename(files.variable)), files.measured)

    def propose(self, context: Context) -> Proposal:
        request, model = context.request, context.model
        words = self._words(request)
        cards = len(context.placement.modules)
        tokens = self._tokens(request, model)
        refuse_heads(request, model, cards)
        kv = model.kv_heads
        if self.paged and kv and kv % cards and model.model_type in words_of.DIVIDED_KV_TYPES:
            raise LaunchError(
                "tgi.kv_heads", ExitCode.MODEL, heads=kv, cards=cards, version=self.version
            )
        decisions = Decisions(request.environment)
        decisions.warn("tgi.maintenance")
        if self.version not in _NAMED:
            decisions.warn("tgi.assumed", version=self.version, latest=words_of.LATEST)
        image = tgi_container.own_image(request, self.image)
        if image is not None:
            decisions.warn("tgi.image", image=image, version=self.version)
        if sees_by_name(model):
            decisions.warn("engines.vision_by_name", model=model.name)
        self._variables(context, decisions)
        self._options(context, decisions, tokens, words)
        env = variables_of(decisions.settings())
        decisions.warnings += tgi_tokens.check_version(
            tokens, self.version, model, env, request.force
        )
        if "--max-batch-total-tokens" in words:
            decisions.warn("tgi.batch_total")
        self._lost(context, decisions, tokens)
        return Proposal(decisions.settings(), tuple(decisions.warnings))

    def _variables(self, context: Context, decisions: Decisions) -> None:
        request = context.request
        exported = {name: value for name, value in request.environment.items() if value}
        if self.paged:
            decisions.warnings += check_exported(exported, self.identity.name)
        read = words_of.read_by(self.version) & exported.keys()
        for name in sorted(read):
            words_of.check_variable(name, exported[name])
        passed = sorted(read - {"QUANT_CONFIG"})
        unread = self._unread(exported, decisions)
        if request.tuning == "reference":
            # the guide's command passes them on nevertheless
            passed += unread
        for name in passed:
            decisions.env(name, exported[name], message("plan.exported"), source="environment")
        if self.paged and not _is_exponential(exported):
            decisions.warn("tgi.linear")
        fraction = request.memory_utilization
        recipes = f"{tgi_container.RECIPES},false,16384"
        for asked, flag, variable, value in (
            (request.skip_warmup, "-s", "VLLM_SKIP_WARMUP", "true"),
            *((request.profile, "-f", *each) for each in _PROFILING.items()),
            (request.no_fused_sdpa, "-a", "USE_FLASH_ATTENTION", "false"),
            (fraction, "--memory-utilization", "HPU_MEMORY_FRACTION", fraction or ""),
            (request.cache_dir, "-c", "PT_HPU_RECIPE_CACHE_CONFIG", recipes),
        ):
            decisions.switch_of(flag, variable, value, given=asked)
        quant_config = tgi_container.quant_config(request)
        if quant_config is not None and not self.paged:
            flag = "QUANT_CONFIG"
            if request.quant_config:
                flag = "--quant-config"
            decisions.switch_of(flag, "QUANT_CONFIG", quant_config.variable, given=True)

    def _unread(self, exported: Mapping[str, str], decisions: Decisions) -> list[str]:
        """Return the exported variables that this version does not read; warn of them."""
        unread = [name for name in words_of.unread_by(self.version) if name in exported]
        if self.paged and words_of.BREAKS_PAGED in unread:
            unread.remove(words_of.BREAKS_PAGED)
            decisions.warn("tgi.breaks", name=words_of.BREAKS_PAGED, version=self.version)
        if unread:
            decisions.warn("tgi.unread", names=", ".join(unread), version=self.version)
        return unread

    def _options(
        self,
        context: Context,
        decisions: Decisions,
        tokens: tgi_tokens.Tokens,
        words: Mapping[str, str | None],
    ) -> None:
        request, model, cards = context.request, context.model, len(context.placement.modules)
        auto = request.tuning == "auto"

        def option(
            name: str, value: str | None, reason: str, flag: str | None = None, origin: str = ""
        ) -> None:
            if flag is not None:
                decisions.option(name, value, message("plan.flag", flag=flag), source="flag")
            else:
                decisions.option(name, value, message(reason), origin=origin)

        option("--model-id", tgi_container.model_id(request.model), "", "-w")
        if cards > 1:
            flag = _cards_flag(request)
            option("--sharded", "true", "tgi.sharded", flag, _LAUNCHER)
            option("--num-shard", str(cards), "tgi.sharded", flag, _LAUNCHER)
            entry = "PT_HPU_ENABLE_LAZY_COLLECTIVES"
            if not request.environment.get(entry):
                decisions.env(
                    entry,
                    "1",
                    message("tgi.entry_point"),
                    source="engine",
                    origin=self._at("backends/gaudi/tgi-entrypoint.sh"),
                )
        self._quantize(request, model, option)
        if request.dtype == "bfloat16":
            option("--dtype", "bfloat16", "", "-d")
        if request.trust_remote_code and model.remote_code:
            decisions.option("--trust-remote-code", None, message("plan.agreed"), source="flag")
        for name, number in (
            ("--max-input-tokens", tokens.input),
            ("--max-total-tokens", tokens.total),
            ("--max-batch-prefill-tokens", tokens.prefill),
        ):
            # the guide's shortest command names none of them
            if auto or name in tokens.given:
                option(name, str(number), "tgi.example", tokens.given.get(name), _EXAMPLES)
        # without a batch size no warm-up ends
        name = "--max-batch-size"
        reason = "tgi.batch_size" if self.room is None else "tgi.batch_fits"
        option(name, str(tokens.batch), reason, tokens.given.get(name), _EXAMPLES)
        if auto:
            option("--max-waiting-tokens", "7", "tgi.example", origin=_EXAMPLES)
            option("--waiting-served-ratio", "1.2", "tgi.example", origin=_EXAMPLES)
            option(
                "--max-concurrent-requests",
                str(2 * tokens.batch),
                "tgi.concurrent",
                origin=_EXAMPLES,
            )
            option("--hostname", "0.0.0.0", "tgi.hostname", origin=_LAUNCHER)
            option(
                "--port", str(tgi_container.PORT), "tgi.port", origin=self._at("Dockerfile_gaudi")
            )
            option("--usage-stats", "off", "tgi.usage", origin=_LAUNCHER)
        for name, value in words.items():
            decisions.option(name, value, message("plan.flag", flag="--"), source="flag")

    def _quantize(self, request: Request, model: Model, option: _Option) -> None:
        dtype = request.dtype
        if not self.paged or dtype in (None, "bfloat16"):
            return
        # a checkpoint with a quantisation in its config.json needs no option (launcher: quantize
        # from config.json)
        if dtype == "fp8" and model.quantization in ("fp8", "compressed-tensors"):
            return
        option("--quantize", dtype, "", "-d")

    def _at(self, path: str) -> str:
        return f"huggingface/text-generation-inference@v{self.version}:{path}"

    def _lost(self, context: Context, decisions: Decisions, tokens: tgi_tokens.Tokens) -> None:
        """Return warnings for parts of the request that TGI has no option for."""
        request = context.request
        for flag, asked in (("-i", request.input_range), ("-o", request.output_range)):
            if asked and asked[0] > 1 and asked[0] != asked[1]:
                decisions.warn("tgi.lost_least", flag=flag, least=asked[0])
        if request.output_range and tokens.input + request.output_range[1] > tokens.total:
            decisions.warn(
                "tgi.lost_output",
                input=tokens.input,
                output=request.output_range[1],
                total=tokens.total,
                left=tokens.total - tokens.input,
            )
        if request.served_name:
            name = tgi_container.model_id(request.model)
            decisions.warn("tgi.lost_name", name=request.served_name, model=name)
        if context.placement.modules and request.environment.get("VLLM_API_KEY"):
            decisions.warn("tgi.lost_key")

    def buckets(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> tuple[str, Buckets] | None:
        """Return the shapes of the warm-up.

        In 3.2.3 a decode bucket has the blocks of a complete row, because it pads to one.

        Return None where they are unknown: left to the launcher (reference tuning), linear buckets,
        no warm-up. Raises LaunchError for a prefill budget or rows that exceed the card's memory.
        """
        limits, request, model = context.limits, context.request, context.model
        self._check_memory(limits, num_blocks, request.force)
        env = variables_of(settings)
        names = {s.name for s in settings if s.kind == "option"}
        linear = self.paged and not _is_exponential(env)
        skipped = env.get("VLLM_SKIP_WARMUP", "false").lower() == "true"
        all_given = {
            "--max-input-tokens",
            "--max-total-tokens",
            "--max-batch-prefill-tokens",
        } <= names
        if linear or skipped or not all_given:
            return None
        tokens = tgi_tokens.Tokens(
            input=limits.input_max,
            total=limits.max_model_len,
            batch=limits.max_num_seqs,
            prefill=limits.max_num_batched_tokens,
        )
        images: Images = "prompt" if tgi_tokens.is_vision(model) else ""
        if model.model_type == "mllama":
            images = "mllama"
        shapes = tgi_shapes(
            _ALGORITHMS[self.paged],
            tokens,
            env,
            kv_blocks=num_blocks,
            longest=model.max_position_embeddings,
            images=images,
        )
        prompt = [[batch, length, 0] for batch, length in shapes.prefill]
        if self.paged:
            return "exponential", Buckets(
                prompt, [[batch, 1, blocks] for batch, blocks in shapes.decode]
            )
        row = ceil_div(limits.max_model_len, BLOCK)
        return "powers", Buckets(prompt, [[batch, 1, batch * row] for (batch,) in shapes.decode])

    @property
    def bucket_family(self) -> str:
        return ""

    def question(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> CoverageQuestion | None:
        """Return the coverage of the warm-up; nothing can be planned for TGI.

        It ends at the cache, or at the rows of a full batch. The paged router fills its budget with
        waiting prompts (backends/v3/src/queue.rs), the padded one with as many as it warms up.
        """
        found = self.buckets(settings, context, num_blocks)
        if found is None:
            return None
        limits = context.limits
        prompts = limits.max_num_prefill_seqs
        if self.paged:
            prompts = limits.max_num_seqs
        last = max(bucket[2] for bucket in found[1].decode)
        contiguous = boolean(variables_of(settings).get("VLLM_CONTIGUOUS_PA", "true"))
        changed = {"num_blocks": last, "max_num_prefill_seqs": prompts, "contiguous_pa": contiguous}
        return CoverageQuestion("", as_limits({**asdict(limits), **changed}))

    def _check_memory(self, limits: Limits, num_blocks: int | None, force: bool) -> None:
        if num_blocks is None or force:
            return
        room = num_blocks * BLOCK
        if self.paged and limits.max_num_batched_tokens > room:
            # backends/v3/src/main.rs: max_batch_prefill_tokens <= max_batch_total_tokens
            raise LaunchError(
                "tgi.prefill_over_cache",
                ExitCode.MACHINE,
                prefill=limits.max_num_batched_tokens,
                room=room,
            )
        rows = limits.max_num_seqs * limits.max_model_len
        if not self.paged and rows > room:
            raise LaunchError(
                "tgi.rows_over_memory",
                ExitCode.MACHINE,
                batch=limits.max_num_seqs,
                total=limits.max_model_len,
                room=room,
                most=max(1, room // limits.max_model_len),
            )

    def memory_rules(self, variables: Mapping[str, str]) -> MemoryRules:
        """Return the fixed share of memory that becomes the cache.

        The paged images: HPU_MEMORY_FRACTION of what is free, and of that TGI_GRAPH_RESERVED_MEM
        for the graphs of lazy mode (flash_causal_lm.py warmup, utils/dist.py). 3.2.3 keeps rows of
        the longest length and nothing in reserve (causal_lm.py).
        """
        if not self.paged:
            return MemoryRules(fixed_share=1.0)
        graphs = 0.0
        if variables.get("PT_HPU_LAZY_MODE") != "0":
            graphs = share(variables.get("TGI_GRAPH_RESERVED_MEM"), 0.1)
        return MemoryRules(
            fixed_share=share(variables.get("HPU_MEMORY_FRACTION"), 0.8) * (1 - graphs)
        )

    def command(self, settings: Sequence[Setting], context: Context) -> Command:
        """Return ``docker run`` with the container's arguments after the image."""
        image = tgi_container.own_image(context.request, self.image) or self.image
        return tgi_container.command(image, settings, context)


def _is_exponential(variables: Mapping[str, str]) -> bool:
    return variables.get("VLLM_EXPONENTIAL_BUCKETING", "true").lower() == "true"


def create(name: str, python: str | None, facts: Mapping[str, str]) -> Engine:
    """Return the image of this name (``tgi@3.3.5``).

    Raises LaunchError (USAGE) for an unknown version.
    """
    from gaudi_launch.core.engines.entries import unknown

    version = name.partition("@")[2].removesuffix("-gaudi")
    if version not in words_of.VERSIONS:
        raise unknown(name)
    return Tgi(version, facts)


def _cards_flag(request: Request) -> str | None:
    """Return the option by which the user chose the cards."""
    if request.cards:
        return "-n"
    if request.modules:
        return "-m"
    return None
