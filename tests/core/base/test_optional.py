"""Values that may be missing."""

from __future__ import annotations

from gaudi_launch.core.base.messages import message, rendered, text
from gaudi_launch.core.base.optional import mapped


def test_a_missing_value_stays_missing_and_a_false_one_is_a_value() -> None:
    assert mapped(str, None) is None
    assert mapped(str, 0) == "0"
    assert mapped(len, "") == 0


def test_a_missing_message_has_no_text() -> None:
    assert rendered(None) is None
    assert rendered(message("stack.ready")) == text("stack.ready")
