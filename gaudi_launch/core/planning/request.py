"""The user's request: options as given, and the exported variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gaudi_launch.core.base.messages import Message
from gaudi_launch.core.models.fp8.quant_config import QuantFile
from gaudi_launch.core.planning.engine_args import EngineArgs, engine_args
from gaudi_launch.core.planning.option_table import GENERIC, OptionTable

# where `setup --scale-out` installs libfabric
LIBFABRIC = "/opt/libfabric"


@dataclass(frozen=True)
class Request:
    """One requested deployment.

    The comment of a field is its option in the 1.21 start script. Lengths are tokens, ``reduce`` is
    (hot batch, hot length). ``environment`` is a copy of the user's exported variables, so that a
    plan can show what it respected. ``extra`` is everything after ``--``, unchanged.
    """

    model: str  # -w
    cards: int | None = None  # -n
    # the number that was chosen without -n and -m, and its reason; not an option
    chosen: tuple[int, Message | None] | None = None
    modules: tuple[int, ...] | None = None  # -m
    host: str | None = None  # -u
    port: int | None = None  # -p
    dtype: str | None = None  # -d  bfloat16, float16, fp8, awq, gptq
    input_range: tuple[int, int] | None = None  # -i
    output_range: tuple[int, int] | None = None  # -o
    # "input", "output": given by one number; the scripts use another maximum then
    open_ranges: tuple[str, ...] = ()
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
    padding_limit: str | None = None  # --padding-limit, 1.22 -l; as written: "0.0" is not "0"
    memory_utilization: str | None = None  # --memory-utilization, 1.22 -u; as written
    max_capture_len: int | None = None  # --max-capture-len, 1.22 -g
    engine: str = "auto"  # auto, vllm-fork@1.21, vllm-fork@1.22, deepseek_r1, cpu, ...
    python: str | None = None  # the engine's interpreter
    tuning: str = "auto"  # auto, reference
    trust_remote_code: bool | None = None
    served_name: str | None = None
    replicas: tuple[int, int] | None = None  # --replicas: least and most
    target_ongoing: int | None = None  # --ongoing
    time_scale: float | None = None  # --time-scale: divides the times of simulated cards
    faults: tuple[str, ...] = ()  # --fault: of simulated cards, as typed
    force: bool = False
    scripts_dir: str | None = None  # the folder of the start scripts, which contains QUANT_CONFIG
    quant_file: QuantFile | None = (
        None  # the result of the search for fp8 files on this machine; not an option
    )
    stamp: str = ""  # the time that the scripts put into file names, as `date +%F-%H-%M-%S`
    files_dir: str = (
        ""  # the folder for the engine's files (its bucket file); "": no file is possible
    )
    bucket_file: str | None = None  # the text of the file of VLLM_BUCKETING_FROM_FILE
    # the folder into which `setup --scale-out` installed libfabric on this machine; "": none
    libfabric_root: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    # the options that the engine reads from the user's --config FILE
    file_words: tuple[str, ...] = ()
    unread_file: str = ""  # the --config FILE whose options are not known here
    secret_options: str = ""  # text of the file that serve writes for secrets of ``extra``
    # our options whose value an argument in ``extra`` replaced (`core.planning.passthrough`)
    overruled: tuple[str, ...] = ()
    options: OptionTable = GENERIC  # the engine's table, by which ``extra`` is read
    # exported variables that change memory and buckets of the release in a way without rules here
    unmodelled: tuple[str, ...] = ()

    @property
    def chosen_cards(self) -> int | None:
        """Return the number of cards that was chosen without -n and -m."""
        return None if self.chosen is None else self.chosen[0]

    @property
    def args(self) -> EngineArgs:
        """Return the user's part of the engine's argument list, with the user's file."""
        return engine_args(table=self.options, user=self.extra, file=self.file_words)
