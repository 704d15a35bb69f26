"""A model of which only the name is known: its assumed sizes, and similar names.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from gaudi_launch.messages import Message, message
from gaudi_launch.models.model import Model

_MOST = 2  # number of names in a warning
# a misspelled long name is above, another size of the same family mostly below (assumed)
_NEAR = 0.8


@dataclass(frozen=True)
class KnownNames:
    """The names that a model's name is compared with.

    ``hub_ids`` are those that profiles list, ``folders`` the existing ones whose path is near the
    missing one, ``profile`` is the profile that the sizes are taken from ("": none).
    """

    hub_ids: tuple[str, ...]
    folders: tuple[str, ...] = ()
    profile: str = ""


def name_warning(asked: str, model: Model, known: KnownNames) -> Message | None:
    """Return the warning for a model that is not a folder or a known hub ID, or None.

    Known hub IDs are those of profiles. ``asked``: the user's value, ``model``: the known facts.
    """
    if model.source != "name" or asked == "demo" or asked in known.hub_ids:
        return None
    nearest = ", ".join(nearest_names(asked, known))
    if model.layers is None:
        if nearest:
            return message("plan.name_sizeless_near", model=asked, nearest=nearest)
        return message("plan.name_sizeless", model=asked)
    if nearest:
        return message(
            "plan.name_assumed_near", model=asked, profile=known.profile, nearest=nearest
        )
    return message("plan.name_assumed", model=asked, profile=known.profile)


def nearest_names(asked: str, known: KnownNames) -> tuple[str, ...]:
    """Return folders, then hub IDs that are similar to ``asked``, the nearest first.

    A path is compared with hub IDs by its last part.
    """
    is_path = asked.count("/") != 1 or asked.startswith(("/", ".", "~"))

    def key(name: str) -> str:
        if is_path:
            name = name.rstrip("/").rsplit("/", 1)[-1]
        return name.lower()

    by_key: dict[str, list[str]] = {}
    for each in known.hub_ids:
        by_key.setdefault(key(each), []).append(each)
    wanted = key(asked)
    found = list(known.folders)
    near = [wanted]
    if wanted not in by_key:
        near = close_to(wanted, list(by_key))
    for each in near:
        found += by_key[each]
    return tuple(found[:_MOST])


def close_to(word: str, possibilities: Sequence[str]) -> list[str]:
    """Return the possibilities that are similar to ``word``, the nearest first."""
    return get_close_matches(word, possibilities, n=_MOST, cutoff=_NEAR)
