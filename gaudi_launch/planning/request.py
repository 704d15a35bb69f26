"""What the user asked for: options as given (None where not), and the variables they had exported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gaudi_launch.models.fp8.quant_config import QuantFile
from gaudi_launch.planning.engine_args import EngineArgs, engine_args
from gaudi_launch.planning.option_table import GENERIC, OptionTable


@dataclass(frozen=True)
class Request:
    """One deployment as asked. The comment behind a field is its letter in the 1.21 start script.

    Lengths are tokens, ``reduce`` is (hot batch, hot length). ``environment`` holds the user's exported
    variables as they were, so that a plan can say what it respected. ``extra`` is everything behind
    ``--``, untouched.
    """

    model: str  # -w
    cards: int | None = None  # -n
    modules: tuple[int, ...] | None = None  # -m
    host: str | None = None  # -u
    port: int | None = None  # -p
    dtype: str | None = None  # -d  bfloat16, float16, fp8, awq, gptq
    input_range: tuple[int, int] | None = None  # -i
    output_range: tuple[int, int] | None = None  # -o
    open_ranges: tuple[str, ...] = ()  # "input", "output": given by one number; the scripts know another top then
    max_num_batched_tokens: int | None = None  # -t
    max_model_len: int | None = None  # -l
    max_num_seqs: int | None = None  # -b
    scheduler_steps: int | None = None  # -e
    cache_dir: str | None = None  # -c
    reduce: tuple[int, int] | None = None  # -r
    skip_warmup: bool = False  # -s
    profile: bool = False  # -f
    no_zero_padding: bool = False  # -z
    no_fused_sdpa: bool = False  # -a
    inc_fp8: bool = False  # -q, deepseek_r1
    quant_config: str | None = None  # --quant-config, 1.22 -q
    max_prefill_seqs: int | None = None  # --max-prefill-seqs, 1.22 -p
    padding_limit: str | None = None  # --padding-limit, 1.22 -l; the words given: "0.0" is not "0"
    memory_utilization: str | None = None  # --memory-utilization, 1.22 -u; the words given
    max_capture_len: int | None = None  # --max-capture-len, 1.22 -g
    engine: str = "auto"  # auto, vllm-fork@1.21, vllm-fork@1.22, deepseek_r1, cpu, ...
    python: str | None = None  # the engine's interpreter
    tuning: str = "auto"  # auto, reference
    trust_remote_code: bool | None = None
    served_name: str | None = None
    replicas: tuple[int, int] | None = None  # --replicas: least and most
    target_ongoing: int | None = None  # --ongoing
    force: bool = False
    scripts_dir: str | None = None  # the folder of the start scripts: QUANT_CONFIG lies beside them
    quant_file: QuantFile | None = None  # what fp8 found on this machine; no option
    stamp: str = ""  # the time that the scripts put into file names, as `date +%F-%H-%M-%S`
    files_dir: str = ""  # where files for the engine go (its bucket file); "": no file can go with it
    bucket_file: str | None = None  # the text behind VLLM_BUCKETING_FROM_FILE
    libfabric_root: str = ""  # where `setup --scale-out` put libfabric on this machine; "": it is not there
    environment: Mapping[str, str] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    overruled: tuple[str, ...] = ()  # our flags whose value a word of ``extra`` replaced (planning.own_words)
    options: OptionTable = GENERIC  # the engine's, by which ``extra`` is read

    @property
    def args(self) -> EngineArgs:
        """The user's own part of the engine's argument list."""
        return engine_args(table=self.options, user=self.extra)
