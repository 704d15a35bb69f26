"""The use case of ``gaudi-launch inspect``: read a model's facts.

They are read from its folder, its name or the hub.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gaudi_launch.models.model import Model


@dataclass(frozen=True)
class InspectedModel:
    """A model, the bytes of KV cache that a token takes, and the name of its profile."""

    model: Model
    kv_bytes_per_token: int | None
    profile: str | None


def inspect(path: str, revision: str | None = None) -> InspectedModel:
    """Read a folder, or of a hub ID only config.json and the headers of the weights.

    Raises LaunchError.
    """
    from gaudi_launch import profiles
    from gaudi_launch.models.config import looks_like_hub_id
    from gaudi_launch.models.hub.remote import read_remote
    from gaudi_launch.models.sizing import kv_bytes_per_token

    if looks_like_hub_id(path):
        found = read_remote(path, revision)
    else:
        found = profiles.known_model(path)
    profile = profiles.match(found)
    return InspectedModel(
        found, kv_bytes_per_token(found), profile.name if profile is not None else None
    )
