"""Plain Hugging Face generation as an engine, for models that vLLM lacks.

Ray Serve runs it. One request at a time and one card per replica. On a card optimum-habana adapts
the model, where it is installed, and HPU graphs are on, as in Ray's example
(ray-project/ray@0e1bad6b:doc/source/serve/doc_code/ intel_gaudi_inference_serve.py); that one
computes in float32, which doubles the memory: bfloat16 here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.doctor.findings import dotted, release_of
from gaudi_launch.core.doctor.releases import releases
from gaudi_launch.core.engines.base import WITHOUT, base_name, given, options_of, sent_variables
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import Context, Engine, Limits, Proposal
from gaudi_launch.core.planning.lengths import LengthRules, length_for
from gaudi_launch.core.planning.plan import Command, EngineIdentity, Setting
from gaudi_launch.core.planning.request import Request

NAME = "transformers"
_LENGTH = 2048
# HabanaAI/vllm-fork@aice/v1.21.0 and optimum-habana both need lazy mode for HPU graphs
_LAZY_ORIGIN = (
    "ray-project/ray@1d0de90a:doc/source/serve/doc_code/intel_gaudi_inference_serve_deepspeed.py"
)
_ALSO_WITHOUT = {
    "max_num_seqs": "-b",
    "max_num_batched_tokens": "-t",
    "input_range": "-i",
    "output_range": "-o",
}


@dataclass(frozen=True)
class HuggingFace(Engine):
    """Generation by transformers; ``on_cards`` False for the CPU."""

    python: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    optimum: str | None = None  # version of optimum-habana, "" without it; None: unknown
    release: str = ""  # version of the interpreter's Gaudi software
    on_cards: bool = True

    @property
    def identity(self) -> EngineIdentity:
        return EngineIdentity(NAME, self.facts.get(NAME, "-"), self.python, self.facts)

    @property
    def packages(self) -> tuple[str, ...]:
        return (NAME,)

    @property
    def needs_cards(self) -> bool:
        return self.on_cards

    @property
    def lacks(self) -> tuple[str, ...]:
        return (
            *(flag for name, flag in WITHOUT.items() if name != "modules"),
            *_ALSO_WITHOUT.values(),
        )

    def limits(self, request: Request, host: Host, model: Model) -> Limits:
        """Return limits of one request at a time, up to the model's length."""
        usual = model.max_position_embeddings or _LENGTH
        length = length_for(LengthRules(usual, 1, block=1), request, model)
        return Limits(
            input_min=1,
            input_max=length,
            output_min=1,
            output_max=length,
            max_model_len=length,
            max_num_batched_tokens=length,
            max_num_seqs=1,
            max_num_prefill_seqs=1,
        )

    def refuse(self, request: Request, host: Host, model: Model) -> None:
        """Raise LaunchError for what plain generation cannot do."""
        without = {**WITHOUT, **_ALSO_WITHOUT}
        if self.on_cards:
            without.pop("modules")
        for flag in given(request, without.items()):
            raise LaunchError("ray.plain_option", ExitCode.USAGE, flag=flag)
        if request.extra:
            raise LaunchError("ray.plain_option", ExitCode.USAGE, flag=f"-- {request.extra[0]}")
        if request.dtype not in (None, "bfloat16", "float16", "float32"):
            raise LaunchError("ray.plain_option", ExitCode.USAGE, flag=f"-d {request.dtype}")
        if self.on_cards and (request.cards or 1) > 1:
            raise LaunchError("ray.plain_cards", ExitCode.USAGE, found=request.cards)

    def propose(self, context: Context) -> Proposal:
        """Return the replica's settings, under the names of vLLM's options."""
        request = context.request
        decisions = Decisions(request.environment)

        dtype, why = "bfloat16", "ray.plain_bfloat16"
        if not self.on_cards:
            dtype, why = "float32", "ray.plain_float32"
        length = context.limits.max_model_len
        served, name = request.served_name or None, base_name(request.model)
        for option, flag, asked, usual, reason in (
            ("--host", "-u", request.host or None, "127.0.0.1", "ray.plain"),
            ("--port", "-p", request.port, 30001, "ray.plain"),
            ("--model", "-w", request.model, request.model, "ray.plain"),
            ("--served-model-name", "--served-name", served, name, "ray.plain"),
            ("--dtype", "-d", request.dtype, dtype, why),
            ("--max-model-len", "-l", request.max_model_len, length, "ray.plain_length"),
        ):
            origin = "assumed" if option == "--dtype" and asked is None else ""
            decisions.option_or(option, (flag, asked), (usual, message(reason)), origin=origin)
        if request.trust_remote_code and context.model.remote_code:
            decisions.option("--trust-remote-code", None, message("plan.agreed"), source="flag")
        if self.on_cards:
            modules = ",".join(map(str, context.placement.modules))
            decisions.force_env("HABANA_VISIBLE_MODULES", modules, message("plan.placement"))
            decisions.env("PT_HPU_LAZY_MODE", "1", message("ray.plain_lazy"), origin=_LAZY_ORIGIN)
        decisions.env(
            "TOKENIZERS_PARALLELISM", "false", message("ray.plain_threads"), origin="assumed"
        )
        if self.on_cards:
            self._check_optimum(decisions)
        if request.model.startswith("/"):
            decisions.env("HF_HUB_OFFLINE", "1", message("plan.cpu_offline"))
        return Proposal(decisions.settings(), tuple(decisions.warnings))

    def _check_optimum(self, decisions: Decisions) -> None:
        """Warn of a missing optimum-habana, and of one for another Gaudi release."""
        python = self.python or "python3"
        if self.optimum == "":
            decisions.warn("ray.no_optimum", python=python)
        table, software = releases(), release_of(self.release)
        optimum = release_of(self.optimum)
        tested = table.optimum.get(optimum) if optimum else None
        if software is None or not tested or software in tested:
            return
        decisions.warn(
            "ray.other_optimum",
            python=python,
            found=self.optimum,
            tested=", ".join(map(dotted, tested)),
            release=dotted(software),
            wanted=dotted(table.optimum_for(software)),
        )

    def command(self, settings: Sequence[Setting], context: Context) -> Command:
        """Return arguments that a replica reads; they start no program."""
        placement = context.placement
        return Command(
            argv=(self.python or "python3", *options_of(settings)),
            env=sent_variables(settings),
            cpus=placement.cpus,
            memory_node=placement.memory_node,
        )
