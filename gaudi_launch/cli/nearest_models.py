"""The names that a missing model may be meant to be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gaudi_launch.cli.completion import models
from gaudi_launch.core.planning.model_name import near_folders, nearest_names


def nearest_models(asked: str) -> Sequence[str]:
    """Return the folders and hub IDs that a missing model may be meant to be."""
    hub_ids = tuple(each.value for each in models() if "/" in each.value)
    if asked in hub_ids:
        return ()
    return nearest_names(asked, hub_ids, near_folders(Path(asked)))
