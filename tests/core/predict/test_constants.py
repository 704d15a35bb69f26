"""The data file of constants, and their values in units without a prefix."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.core.predict import constants as store
from gaudi_launch.core.predict.constants import Constant, read_constants
from gaudi_launch.core.predict.learned import LearnedConstants, values, write_learned

TEXT = """\
name,value,unit,kind,source,prior,spread
peak.gaudi2.bf16,432,TFLOP/s,published,"a, b",,
read.gaudi2,0.8123,share,fitted,c,0.75,0.3
"""
FOUND = {
    "peak.gaudi2.bf16": Constant("peak.gaudi2.bf16", 432.0, "TFLOP/s", "published", "a, b"),
    "read.gaudi2": Constant("read.gaudi2", 0.8123, "share", "fitted", "c", 0.75, 0.3),
}


def test_a_file_of_constants_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(TEXT.encode())
    assert read_constants(file) == FOUND


@pytest.mark.parametrize(("unit", "scaled"), [("TFLOP/s", 2e12), ("us", 2e-6), ("share", 2.0)])
def test_a_value_is_scaled_by_its_unit(unit: str, scaled: float) -> None:
    assert Constant("n", 2.0, unit, "k", "s").scaled == scaled


def test_what_this_host_learned_replaces_shipped_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert values() == store.shipped_values()
    own = {"fixed.gaudi2": 3.0, "read.gaudi2": 0.5, "gone.since": 1.0}
    write_learned(LearnedConstants(1, 0.0, own, 1.1, 1.2, 0, ()))
    unit = store.constants()["fixed.gaudi2"]
    changed = {"fixed.gaudi2": 3.0 * unit.scaled / unit.value, "read.gaudi2": 0.5}
    assert values() == pytest.approx({**store.shipped_values(), **changed})
    assert store.shipped_values()["fixed.gaudi2"] == unit.scaled
