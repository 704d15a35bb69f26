"""The use case of ``gaudi-launch inspect``: read a model's facts.

They are read from its folder, its name or the hub.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gaudi_launch.core.planning.known_model import known_model

if TYPE_CHECKING:
    from gaudi_launch.core.models.model import Model


@dataclass(frozen=True)
class InspectedModel:
    """A model, the bytes of KV cache that a token takes, and the name of its profile."""

    model: Model
    kv_bytes_per_token: int | None
    profile: str | None


def inspect(path: str, revision: str | None = None) -> InspectedModel:
    """Read a model's folder, or what is known of a hub ID or a listed name.

    Raises LaunchError.
    """
    from gaudi_launch.core.models.sizing import kv_bytes_per_token
    from gaudi_launch.core.planning import profiles

    must_exist = bool(revision) or profiles.listed_id(path) is None
    found = known_model(path, must_exist, revision or "")
    profile = profiles.match(found)
    return InspectedModel(
        found, kv_bytes_per_token(found), profile.name if profile is not None else None
    )
