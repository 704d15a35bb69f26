"""Find the known names that a misspelt one may mean.

It is used for commands, options, and every error that lists known names.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import text

_MOST = 2
# difflib's ratio below which a name is another one, not a misspelling; and how far from the best (assumed)
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
    return [by_key[key] for key, ratio in zip(keys, ratios, strict=True) if ratio >= ratios[0] - _MARGIN]


def suggestion(error: LaunchError) -> str:
    """Return "Did you mean ...?" for a wrong name whose error lists the known ones.

    Return "" where none is near.
    """
    found, known = error.text.values.get("found"), error.text.values.get("known")
    if error.exit_code is not ExitCode.USAGE or not isinstance(found, str) or not isinstance(known, str):
        return ""
    near = nearest(found, [name.strip() for name in known.split(",")])
    return text("usage.did_you_mean", near=", ".join(near)) if near else ""
