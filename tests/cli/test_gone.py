"""A name that went is refused with what is used instead."""

from __future__ import annotations

import pytest

from gaudi_launch.cli import gone
from gaudi_launch.cli.main import run
from gaudi_launch.cli.table import COMMANDS
from tests.support.scripts import script

pytestmark = pytest.mark.usefixtures("plain_english")


def _known() -> dict[str, set[str]]:
    """Return the options of each command that exists, by its path without the program's name."""
    found = {}
    for path, entry in script("interface").commands().items():
        options = {each for option in entry["options"].values() for each in option["spellings"]}
        found[path.removeprefix("gaudi-launch").strip()] = options
    return found


def test_a_name_that_went_is_refused_with_what_is_used_now(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for found, now in gone.gone_names().items():
        assert run([*found.split(), "--json"]) == 2, found
        shown = capsys.readouterr()
        assert f"`{found}` is now: gaudi-launch {now}" in shown.out, found


def test_what_is_used_now_exists() -> None:
    known = _known()
    for found, now in gone.gone_names().items():
        words = now.split()
        path = max(
            (p for p in known if p and words[: len(p.split())] == p.split()), key=len, default=None
        )
        assert path is not None, f"{found}: no command {now}"
        assert {w for w in words if w.startswith("-")} <= known[path], found


def test_no_row_has_a_name_that_exists() -> None:
    known = _known()
    for found in gone.gone_names():
        path, _, last = found.rpartition(" ")
        if last.startswith("-"):
            assert last not in known.get(path, set()), found
        else:
            assert found not in known and found not in COMMANDS
