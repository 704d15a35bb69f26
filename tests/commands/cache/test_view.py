"""Caches of compiled graphs: keys, verdicts and what was removed."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from gaudi_launch.commands.cache import view as cache
from gaudi_launch.commands.cache.case import CachedKey
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.recipes.cache_root import CacheEntry
from gaudi_launch.core.recipes.key import KeyDifference
from gaudi_launch.core.recipes.ledger import Ledger
from gaudi_launch.core.recipes.manifest import Findings
from gaudi_launch.core.recipes.size_limits import Doomed
from tests.support.recipes import BUCKETS, PARTS
from tests.support.views import for_programs, views

pytestmark = pytest.mark.usefixtures("plain_english")

ROOT = Path("/cache")
NOW = 1_800_000_000.0
KEY = PARTS.key


@pytest.fixture(autouse=True)
def at_noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)


def ledger(age: float = 7200.0, *, complete: bool = True) -> Ledger:
    return Ledger(
        PARTS,
        KEY,
        complete=complete,
        buckets=BUCKETS,
        num_blocks=900,
        created=NOW - 9e5,
        last_used=NOW - age,
        filled_seconds=(12.5,),
        used_seconds=(1.5, 2.5),
        files=4,
        bytes=3 << 20,
    )


def entry(
    found: Ledger | None, *, folder: Path = ROOT / KEY, trouble: str = "", in_use: bool = False
) -> CacheEntry:
    return CacheEntry(KEY, folder, found, 4, 3 << 20, trouble, in_use)


DRIVER = (KeyDifference("driver", "1.21", "1.22"), KeyDifference("dtype", "bf16", "fp8"))
KEYS = (
    CachedKey(entry(ledger()), ()),
    CachedKey(entry(ledger(59.6, complete=False), in_use=True), ()),
    CachedKey(entry(ledger(60.0)), DRIVER),
    CachedKey(entry(ledger(86400.0 * 3)), ()),
    CachedKey(entry(ledger(-5.0)), ()),
    CachedKey(entry(None, trouble="it is not JSON"), ()),
)


def test_keys(capsys: pytest.CaptureFixture[str]) -> None:
    flat = CachedKey(entry(ledger(), folder=ROOT), ())
    listings = (
        partial(cache.show_listing, ROOT, KEYS, False, flat=False),
        partial(cache.show_listing, ROOT, (KEYS[0],), False, flat=True),
        partial(cache.show_listing, ROOT, (KEYS[0], flat), False, flat=True),
        partial(cache.show_listing, ROOT, (), False, flat=True),
    )
    found = (KEYS[2], KEYS[5])
    views(
        capsys,
        "cache",
        listings,
        [for_programs(capsys, lambda: cache.show_listing(ROOT, found, True, flat=True))],
    )
    assert [key.state for key in KEYS[:2]] == ["hit", "partial"]


MANY = tuple(f"{number}.recipe" for number in range(7))
VERDICTS = (
    (entry(ledger()), Findings(unlisted=("new",))),
    (entry(ledger()), Findings(empty=("a",), missing=MANY)),
    (entry(ledger(complete=False)), Findings(foreign=MANY[:5])),
    (entry(None, trouble="it is not JSON"), Findings()),
)


def test_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    views(
        capsys,
        "cache-verify",
        [
            lambda: cache.show_verdicts(ROOT, VERDICTS, False),
            lambda: cache.show_verdicts(ROOT, (), False),
        ],
        [
            for_programs(capsys, lambda: cache.show_verdicts(ROOT, VERDICTS[1:], True)),
            for_programs(capsys, lambda: cache.show_verdicts(ROOT, VERDICTS[:1], True)),
        ],
    )


DOOMED = (
    Doomed(entry(ledger()), message("profiles.missing", where="a", name="b")),
    Doomed(entry(ledger()), message("common.interrupted")),
)


def test_what_goes_and_what_was_copied(capsys: pytest.CaptureFixture[str]) -> None:
    views(
        capsys,
        "cache-changes",
        [
            lambda: cache.show_pruned(ROOT, DOOMED, (), False, False),
            lambda: cache.show_pruned(ROOT, DOOMED, (), True, False),
            lambda: cache.show_pruned(ROOT, (), (), False, False),
            lambda: cache.show_pruned(ROOT, (), (), True, False),
            lambda: cache.show_exported(KEY, Path("/f.tar.zst"), 4, 3 << 30, False),
            lambda: cache.show_imported(ROOT, ledger(), False),
            lambda: cache.show_adopted(ROOT, ledger(), False),
            lambda: cache.show_command(("rsync", "-a", "a b", "c"), False),
        ],
        [
            for_programs(capsys, show)
            for show in (
                lambda: cache.show_pruned(ROOT, DOOMED[1:], (KEY,), True, True),
                lambda: cache.show_exported(KEY, Path("/f.tar.zst"), 4, 5, True),
                lambda: cache.show_imported(ROOT, ledger(), True),
                lambda: cache.show_adopted(ROOT, ledger(), True),
                lambda: cache.show_command(("rsync", "a b"), True),
            )
        ],
    )
