"""Find the known names that a misspelt one may mean.

It is used for commands, options, and every error that lists known names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches

from gaudi_launch.cli.table import listed
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text

_MOST = 2
# difflib's ratio below which a name is another one, not a misspelling; and how far from the best
# (assumed)
_NEAR = 0.6
_MARGIN = 0.1


def nearest(found: str, known: Iterable[str]) -> list[str]:
    """Return the known names that are similar to ``found``, the nearest first.

    Capitals do not count.

    >>> nearest("sevre", ["serve", "plan"])
    ['serve']
    >>> nearest("--tensor", ["--cards"])
    []
    """
    by_key: dict[str, str] = {}
    for name in known:
        by_key.setdefault(name.lower(), name)
    wanted = found.lower()
    keys = get_close_matches(wanted, list(by_key), n=_MOST, cutoff=_NEAR)
    ratios = [SequenceMatcher(None, key, wanted).ratio() for key in keys]
    return [
        by_key[key] for key, ratio in zip(keys, ratios, strict=True) if ratio >= ratios[0] - _MARGIN
    ]


# errors about a model that was not found -> the value that names it
_MODEL_OF = {
    "models.no_folder": "path",
    "models.not_on_hub": "model",
    "models.offline": "model",
    "models.sizes_unknown": "model",
    "fp8.no_folder": "path",
    "pull.no_repo": "repo",
    "support.unknown_model": "found",
}


def suggestion(error: LaunchError) -> str:
    """Return "Did you mean ...?" for a wrong name, "" where none is similar.

    The names are those that its error lists, or the known models.
    """
    values = error.text.values
    near: Sequence[str] = ()
    if error.id in _MODEL_OF:
        near = listed("nearest models")(str(values.get(_MODEL_OF[error.id], "")))
    elif error.exit_code is ExitCode.USAGE and "near" not in values:
        found, known = values.get("found"), values.get("known")
        if isinstance(found, str) and isinstance(known, str):
            near = nearest(found, [name.strip() for name in known.split(",")])
    if not near:
        return ""
    return text("usage.did_you_mean", near=", ".join(near))
