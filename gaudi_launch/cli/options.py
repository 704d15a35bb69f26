"""Options that serve, plan and warmup share, as a parameter of a command."""

from __future__ import annotations

from gaudi_launch.cli.record_options import (
    BriefCommand,
    RecordCommand,
    ReplicasCommand,
    record,
)
from gaudi_launch.core.planning.launch_options import LaunchOptions

__all__ = [
    "BriefCommand",
    "Launch",
    "LaunchOptions",
    "RecordCommand",
    "ReplicasCommand",
    "record",
]

# the default of a command's ``options: LaunchOptions``: its fields become options
Launch = record(LaunchOptions())
