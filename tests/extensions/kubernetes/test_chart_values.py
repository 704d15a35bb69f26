"""Knobs and names in objects, and the plain objects that they become."""

from __future__ import annotations

from gaudi_launch.extensions.kubernetes.chart_values import Name


def test_names_are_cut_before_their_suffix() -> None:
    assert Name("chat").plain() == "chat"
    assert Name("chat", "webui").plain() == "chat-webui"
    assert Name("a" * 60).plain() == "a" * 45
    assert Name("a" * 60, "webui").plain() == "a" * 39 + "-webui"
    # a name never ends in a dash, nor has it two
    assert Name("a-b-c", "x", 4).plain() == "a-x"
