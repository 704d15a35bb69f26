"""The sentence for the end of an engine: its kind, and its status or signal."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base.messages import text
from gaudi_launch.core.services.diagnosis.endings import status_words


@pytest.mark.parametrize(
    ("status", "shown"), [(None, "-"), (0, "0"), (1, "1"), (137, "137"), (-1, None), (-9, None)]
)
def test_a_negative_status_is_shown_as_its_signal(status: int | None, shown: str | None) -> None:
    if shown is None:
        assert status is not None
        shown = text("serve.by_signal", number=abs(status))
    assert status_words(status) == shown
