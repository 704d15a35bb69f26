"""Keys as a terminal sends them."""

from __future__ import annotations

import pytest

from gaudi_launch.extensions.watch.top.live_screen import split_keys


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("q", ["q"]),
        ("\x1b[A\x1b[B", ["up", "down"]),
        ("\x1bOA", ["up"]),
        ("\x1b", ["esc"]),
        ("\x1b[5~x\x1b[6~", ["pageup", "x", "pagedown"]),
        ("\t\r\n\x7f", ["tab", "enter", "enter", "backspace"]),
        ("中/", ["中", "/"]),
        ("", []),
    ],
)
def test_what_is_typed_becomes_names(typed: str, keys: list[str]) -> None:
    assert split_keys(typed) == keys
