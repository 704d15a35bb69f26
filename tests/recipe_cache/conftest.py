from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.recipe_cache import store
from gaudi_launch.recipe_cache.key import KeyParts
from gaudi_launch.warmup.buckets import Buckets
from tests.recipe_cache.test_key import PARTS

BUCKETS = Buckets([[1, 128, 0], [1, 256, 0]], [[1, 1, 128], [2, 1, 128]])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "recipes"


def fill(root: Path, parts: KeyParts = PARTS, buckets: Buckets = BUCKETS, num_blocks: int | None = 900) -> Path:
    """One whole fill as a launch does it, with four recipes; the engine's folder."""
    with store.opened(root, parts, buckets, num_blocks) as session:
        for number in range(4):
            (session.folder / f"recipe_{number}.recipe").write_bytes(bytes([number + 1]) * (number + 1) * 100)
        session.finish(12.5, buckets, num_blocks)
        return session.folder
