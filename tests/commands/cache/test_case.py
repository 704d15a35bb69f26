"""cache: keys that were cut off, the copy to another machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.commands.cache import case as cache
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.recipes import maintenance
from gaudi_launch.core.recipes.ledger import ledger_path
from tests.support.recipes import PARTS, fill
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")


def test_a_key_without_an_index_is_an_error(tmp_path: Path) -> None:
    fill(tmp_path)
    entry, ledger = cache.indexed(tmp_path, PARTS.key)
    assert (entry.key, ledger.parts) == (PARTS.key, PARTS)
    ledger_path(tmp_path, PARTS.key).write_text("{")
    why = maintenance.find(tmp_path, PARTS.key).trouble
    assert why
    with refused("cache.no_ledger", ExitCode.FAILED, key=PARTS.key, why=why):
        cache.indexed(tmp_path, PARTS.key)


def test_a_copy_that_fails_is_an_error() -> None:
    cache.sync(["true"])
    with refused("cache.sync_failed", ExitCode.FAILED, why="rsync: 12"):
        cache.sync(["sh", "-c", "exit 12"])
    why = "[Errno 2] No such file or directory: '/gone/rsync'"
    with refused("cache.sync_failed", ExitCode.FAILED, why=why):
        cache.sync(["/gone/rsync"])
