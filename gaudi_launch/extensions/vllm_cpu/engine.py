"""vLLM's CPU build: the embedded engine, for trials and tests without cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.reader import shipped_json
from gaudi_launch.core.engines.base import (
    API_SERVER,
    VLLM,
    WITHOUT,
    base_name,
    given,
    sent_variables,
)
from gaudi_launch.core.engines.facts.registry import InstalledLists, installed_lists
from gaudi_launch.core.engines.known_versions import newest
from gaudi_launch.core.engines.launch_conditions import check_request
from gaudi_launch.core.engines.support import support_of
from gaudi_launch.core.engines.upstream_tasks import CHAT, task_of
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import Context, Engine, Limits, OverHosts, Proposal
from gaudi_launch.core.planning.engine_args import NO_ARGS, EngineArgs, engine_args
from gaudi_launch.core.planning.lengths import LengthRules, limits_within
from gaudi_launch.core.planning.option_table import UPSTREAM, option_table
from gaudi_launch.core.planning.passthrough import sent_options
from gaudi_launch.core.planning.plan import Command, EngineIdentity, Setting
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.support_answer import ModelSupport

_LENGTH = 2048
_SEQS = 16
# the module with the quantisation methods
PLATFORM = "vllm/platforms/cpu.py"


@dataclass(frozen=True)
class VllmCpu(Engine):
    """The embedded engine. It uses no cards and has no warm-up."""

    python: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> EngineIdentity:
        version = self.facts.get("vllm", VLLM)
        return EngineIdentity("cpu", version, self.python, self.facts, options=UPSTREAM)

    def support(
        self, model: Model, args: EngineArgs = NO_ARGS, variables: Mapping[str, str] | None = None
    ) -> ModelSupport:
        """Return the answer of the installed engine's own list.

        Without one, of the list of the version that setup installs.
        """
        shipped_lists = InstalledLists(**shipped_json("engines", "cpu.json")["lists"])
        return support_of(
            model,
            self.identity.name,
            self.identity.version,
            installed=installed_lists(self.facts, PLATFORM) or shipped_lists,
            quantization=args.last("--quantization") or "",
            variables=variables,
        )

    def check_features(self, request: Request, model: Model) -> tuple[Message, ...]:
        return check_request(self.identity, request, model)

    @property
    def needs_cards(self) -> bool:
        return False

    @property
    def scheduling(self) -> Literal["v0", "v1"]:
        return "v1"

    @property
    def lacks(self) -> tuple[str, ...]:
        return (*WITHOUT.values(), "--tuning reference")

    @property
    def over_hosts(self) -> OverHosts:
        """Return the abilities over several hosts: separate engines only.

        vLLM's CPU platform does not support Ray ("does not support ray", ray_utils.py).
        """
        return OverHosts(ray=False)

    def cards(self, request: Request) -> int | None:
        return None

    def limits(self, request: Request, host: Host, model: Model) -> Limits:
        """Return small lengths unless others are requested: this engine is for trials."""
        # vllm/config/model.py is_chunked_prefill_supported: not for encoders
        encodes = newest("vllm-gaudi").layers.get(model.architecture or "") == ("encoder",)
        whole = encodes or request.args.has("--no-enable-chunked-prefill")
        rules = LengthRules(
            _LENGTH,
            _SEQS,
            _LENGTH,
            splits=not whole,
            answers=task_of(model, request.args) == CHAT,
            step_of=1,
            block=1,
        )
        return limits_within(rules, request, model)

    def refuse(self, request: Request, host: Host, model: Model) -> None:
        """Raise LaunchError for what only cards can do."""
        for flag in given(request, WITHOUT.items()):
            raise LaunchError("plan.cpu_option", ExitCode.USAGE, flag=flag)
        if request.tuning == "reference":
            raise LaunchError("plan.cpu_option", ExitCode.USAGE, flag="--tuning reference")
        if request.dtype not in (None, "bfloat16", "float16", "float32"):
            raise LaunchError("plan.cpu_option", ExitCode.USAGE, flag=f"-d {request.dtype}")

    def propose(self, context: Context) -> Proposal:
        request, limits = context.request, context.limits
        decisions = Decisions(request.environment)

        tokens, name = limits.max_num_batched_tokens, base_name(request.model)
        for option, flag, asked, usual, reason in (
            ("--host", "-u", request.host or None, "127.0.0.1", "plan.cpu"),
            ("--port", "-p", request.port, 30001, "plan.cpu"),
            ("--model", "-w", request.model, request.model, "plan.cpu"),
            ("--served-model-name", "--served-name", request.served_name or None, name, "plan.cpu"),
            ("--dtype", "-d", request.dtype, "float32", "plan.cpu_dtype"),
            ("--max-model-len", "-l", request.max_model_len, limits.max_model_len, "plan.cpu"),
            ("--max-num-seqs", "-b", request.max_num_seqs, limits.max_num_seqs, "plan.cpu"),
            ("--max-num-batched-tokens", "-t", request.max_num_batched_tokens, tokens, "plan.cpu"),
        ):
            decisions.option_or(option, (flag, asked), (usual, message(reason)))
        decisions.option("--enforce-eager", None, message("plan.cpu_eager"))
        decisions.option("--seed", "0", message("plan.cpu"))
        if request.trust_remote_code and context.model.remote_code:
            decisions.option("--trust-remote-code", None, message("plan.agreed"), source="flag")
        decisions.env("VLLM_CPU_KVCACHE_SPACE", "1", message("plan.cpu_cache"))
        decisions.env("VLLM_NO_USAGE_STATS", "1", message("plan.cpu_quiet"))
        decisions.env("TOKENIZERS_PARALLELISM", "false", message("plan.cpu"))
        if Path(request.model).is_absolute():
            decisions.env("HF_HUB_OFFLINE", "1", message("plan.cpu_offline"))
        if request.cards is not None:
            decisions.warn("plan.cpu_cards", cards=request.cards)
        return Proposal(decisions.settings(), tuple(decisions.warnings))

    @property
    def config_file(self) -> Literal["read"]:
        """Return "read": options of the file come before all others.

        Source: vllm-project/vllm 0.32.0:vllm/utils/argparse_utils.py, _pull_args_from_config.
        """
        return "read"

    def command(self, settings: Sequence[Setting], context: Context) -> Command:
        args = engine_args(
            table=option_table(UPSTREAM),
            head=(self.python or "python3", *API_SERVER),
            ours=sent_options(settings),
            user=context.request.extra,
            file=context.request.file_words,
        )
        return Command(argv=args.to_argv(), env=sent_variables(settings), user=args.user_words)


def create(name: str, python: str | None, facts: Mapping[str, str]) -> Engine:
    """Return the embedded engine."""
    return VllmCpu(python, facts)
