"""A plan of all remedies of a machine in a folder."""

from __future__ import annotations

from pathlib import Path

from gaudi_launch.doctor import Wants, quick, remedies
from gaudi_launch.doctor.remedies import Change
from gaudi_launch.host.host_config import read_live
from gaudi_launch.host.read import read_host


def plan(root: Path) -> list[Change]:
    config = read_live(root)
    return remedies.planned(quick(read_host(root), config), config, Wants())
