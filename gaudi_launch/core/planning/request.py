"""The request of a launch: its options, completed by facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gaudi_launch.core.base.fields import OneNumber
from gaudi_launch.core.base.messages import Message
from gaudi_launch.core.models.fp8.quant_config import QuantFile
from gaudi_launch.core.planning.engine_args import EngineArgs, engine_args
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.option_table import GENERIC, OptionTable

# where `setup --scale-out` installs libfabric
LIBFABRIC = "/opt/libfabric"


@dataclass(frozen=True)
class Request(LaunchOptions):
    """One requested deployment: the options of a launch, completed by facts.

    ``environment`` is a copy of the user's exported variables, so that a plan can show what it
    respected. ``extra`` is everything after ``--``, unchanged.
    """

    model: str
    engine: str = "auto"
    tuning: str = "auto"
    # the number that was chosen without -n and -m, and its reason
    chosen: tuple[int, Message | None] | None = None
    scripts_dir: str | None = None  # the folder of the start scripts, which contains QUANT_CONFIG
    # the result of the search for fp8 files on this machine
    quant_file: QuantFile | None = None
    stamp: str = ""  # the time that the scripts put into file names, as `date +%F-%H-%M-%S`
    files_dir: str = ""  # the folder for the engine's files; "": no file is possible
    bucket_file: str | None = None  # the text of the file of VLLM_BUCKETING_FROM_FILE
    # the folder into which `setup --scale-out` installed libfabric on this machine; "": none
    libfabric_root: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    # the options that the engine reads from the user's --config FILE
    file_words: tuple[str, ...] = ()
    unread_file: str = ""  # the --config FILE whose options are not known here
    secret_options: str = ""  # text of the file that serve writes for secrets of ``extra``
    # our options whose value an argument in ``extra`` replaced (`core.planning.passthrough`)
    overruled: tuple[str, ...] = ()
    options: OptionTable = GENERIC  # the engine's table, by which ``extra`` is read
    # exported variables that change memory and buckets of the release in a way without rules here
    unmodelled: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Keep each value: it was read, or chosen by a search."""

    @property
    def open_ranges(self) -> tuple[str, ...]:
        """Return the lengths given by one number: the scripts use another maximum then."""
        ranges = {"input": self.input_range, "output": self.output_range}
        return tuple(name for name, given in ranges.items() if isinstance(given, OneNumber))

    @property
    def chosen_cards(self) -> int | None:
        """Return the number of cards that was chosen without -n and -m."""
        return None if self.chosen is None else self.chosen[0]

    @property
    def args(self) -> EngineArgs:
        """Return the user's part of the engine's argument list, with the user's file."""
        return engine_args(table=self.options, user=self.extra, file=self.file_words)
