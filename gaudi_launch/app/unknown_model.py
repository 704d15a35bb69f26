"""The warning for a model that is not on this machine.

Existing folders and profiles are searched for similar names.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gaudi_launch.messages import Message
    from gaudi_launch.models.model import Model


def unknown_model(asked: str, model: Model) -> Message | None:
    """Return the warning for a model that is not a folder or a known hub ID, or None.

    Reads only.
    """
    from gaudi_launch.planning.model_name import KnownNames, name_warning
    from gaudi_launch.profiles import match, profiles

    if model.source != "name":
        return None
    hub_ids = tuple(name for profile in profiles() for name in profile.models)
    profile = match(model)
    known = KnownNames(
        hub_ids, near_folders(Path(asked)), profile.name if profile is not None else ""
    )
    return name_warning(asked, model, known)


def near_folders(path: Path) -> tuple[str, ...]:
    """Return the existing folders that differ from a missing path in one part.

    That part may be misspelled.
    """
    from gaudi_launch.planning.model_name import close_to

    path = path.expanduser()
    parts = path.parts
    parent = Path()
    for at, part in enumerate(parts):
        if (parent / part).is_dir():
            parent /= part
            continue
        rest = parts[at + 1 :]
        candidates = [parent.joinpath(name, *rest) for name in close_to(part, _folders(parent))]
        return tuple(str(each) for each in candidates if each.is_dir())
    return ()


def _folders(parent: Path) -> list[str]:
    """Return the names of the folders in ``parent``, none where it cannot be read."""
    try:
        return sorted(each.name for each in parent.iterdir() if each.is_dir())
    except OSError:
        return []
