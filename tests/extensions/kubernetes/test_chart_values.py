"""Knobs and names in objects, and the plain objects that they become."""

from __future__ import annotations

import hashlib

from gaudi_launch.extensions.kubernetes.chart_values import (
    Checksum,
    Knob,
    Name,
    TemplateText,
    knobs_of,
    plain,
)


def test_names_are_cut_before_their_suffix() -> None:
    assert Name("chat").plain() == "chat"
    assert Name("chat", "webui").plain() == "chat-webui"
    assert Name("a" * 60).plain() == "a" * 45
    assert Name("a" * 60, "webui").plain() == "a" * 39 + "-webui"
    # a name never ends in a dash, nor has it two
    assert Name("a-b-c", "x", 4).plain() == "a-x"


def test_every_knob_is_at_its_default() -> None:
    objects = {
        "image": Knob(("image",), "i:1"),
        "selector": Knob(("selector",), {"B": "2"}, "block"),
        "nested": [Knob(("n",), 3, "number"), (Name("r", "s"),)],
        "url": TemplateText(("http://", Name("r"), ":80")),
        "sum": Checksum("scripts", {"b": "2", "a": "1"}),
        "none": None,
    }
    assert plain(objects) == {
        "image": "i:1",
        "selector": {"B": "2"},
        "nested": [3, ["r-s"]],
        "url": "http://r:80",
        "sum": hashlib.sha256(b'{"a": "1", "b": "2"}').hexdigest(),
        "none": None,
    }


def test_knobs_are_found_in_their_order() -> None:
    one, two, three = (Knob((name,), name) for name in ("one", "two", "three"))
    assert knobs_of({"a": one, "b": ["text", {"c": two}, (three,)], "d": 5}) == [one, two, three]
