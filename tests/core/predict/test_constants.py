"""The data file of constants, and their values in units without a prefix."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.core.predict import constants as store
from gaudi_launch.core.predict.learned import LearnedConstants, values, write_learned


def test_what_this_host_learned_replaces_shipped_values(own_folders: Path) -> None:
    assert values() == store.shipped_values()
    own = {"fixed.gaudi2": 3.0, "read.gaudi2": 0.5, "gone.since": 1.0}
    write_learned(LearnedConstants(1, 0.0, own, 1.1, 1.2, 0, ()))
    unit = store.constants()["fixed.gaudi2"]
    changed = {"fixed.gaudi2": 3.0 * unit.scaled / unit.value, "read.gaudi2": 0.5}
    assert values() == pytest.approx({**store.shipped_values(), **changed})
    assert store.shipped_values()["fixed.gaudi2"] == unit.scaled
