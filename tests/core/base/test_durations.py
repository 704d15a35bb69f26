"""Durations in the notation of each language."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base.durations import span


@pytest.mark.parametrize(
    ("low", "high", "english", "chinese"),
    [
        (31.0, 97.0, "31 to 97 s", "31 至 97 秒"),
        (74.0, 240.0, "74 s to 4 min", "74 秒至 4 分钟"),
        (420.0, 7200.0, "7 min to 2.0 h", "7 分钟至 2.0 小时"),
    ],
)
def test_a_range_names_a_common_unit_once(
    plain_english: None,
    monkeypatch: pytest.MonkeyPatch,
    low: float,
    high: float,
    english: str,
    chinese: str,
) -> None:
    assert span(low, high) == english
    monkeypatch.setenv("GAUDI_LAUNCH_LANG", "zh")
    assert span(low, high) == chinese
