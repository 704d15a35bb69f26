"""Arguments and values as systemd.syntax(7) reads them."""

from __future__ import annotations

import pytest

from gaudi_launch.render.systemd_quoting import command, description, environment, quoted


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("/usr/bin/vllm_1-2+x=y:z,w.@^A9", "/usr/bin/vllm_1-2+x=y:z,w.@^A9"),
        ("", '""'),
        ("a b", '"a b"'),
        ("100%", '"100%%"'),
        ('say "a\\b"', '"say \\"a\\\\b\\""'),
        ("a\nb\tc", '"a\\nb\\tc"'),
        ("\x00\x1f \x7f~", '"\\x00\\x1f \\x7f~"'),
        ("模型", '"模型"'),
        ("$HOME", '"$HOME"'),
    ],
)
def test_one_value(word: str, written: str) -> None:
    assert quoted(word) == written


def test_a_command_has_its_variables_doubled() -> None:
    assert command(("/bin/vllm", "--x", "$HOME %h", "")) == '/bin/vllm --x "$$HOME %%h" ""'


def test_variables_are_sorted_and_quoted_with_their_names() -> None:
    assert environment({"B": "1", "A": "a b"}) == ['Environment="A=a b"', "Environment=B=1"]


@pytest.mark.parametrize(
    ("words", "line"), [("100% of a\nb", "100%% of a?b"), ("ends \\\\", "ends "), ("", "")]
)
def test_a_description_is_one_line_of_text(words: str, line: str) -> None:
    assert description(words) == line
