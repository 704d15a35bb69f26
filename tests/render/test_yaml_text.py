"""YAML that any reader takes, whatever a path or a name contains."""

from __future__ import annotations

import pytest
import yaml

from gaudi_launch.render import text, yaml_text


@pytest.mark.parametrize(
    "mark", ["\x07", "\x1b", "\x7f", "\x80", "\x9b", "\ufffe", "\x0b", "\x0c"], ids=ascii
)
def test_control_characters_stay_in_values_and_leave_comments(mark: str) -> None:
    word = f"/models/a{mark}b"
    content = yaml_text.documents([yaml_text.dump({"model": word})], [f"serving {word}"])
    assert yaml.safe_load(content) == {"model": word}
    assert mark not in content.replace(yaml_text.dump({"model": word}), "")


def test_comments_have_no_control_characters() -> None:
    assert text.comments(["a\x1b[2Jb\nc"]) == ["# a?[2Jb?c"]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("/models/A_1.0", "/models/A_1.0"),
        ("host:path@2", "host:path@2"),
        ("y", '"y"'),
        ("Off", '"Off"'),
        ("NULL", '"NULL"'),
        ("yess", "yess"),
        ("1e3", '"1e3"'),
        ("", '""'),
        ("a: b", '"a: b"'),
        ("a:", '"a:"'),
        ("模型", '"模型"'),
        ("a\nb\n", "|\n  a\n  b"),
    ],
)
def test_only_texts_that_no_reader_could_misread_have_no_quotes(value: str, written: str) -> None:
    assert yaml_text.dump({"k": value}) == f"k: {written}\n"


def test_keys_keep_their_order_and_a_value_is_repeated_in_full() -> None:
    same = ["x"]
    assert yaml_text.dump({"b": same, "a": same, "count": 1, "t": True}) == (
        "b:\n- x\na:\n- x\ncount: 1\nt: true\n"
    )
    assert yaml_text.dump("x " * 100) == f'"{"x " * 100}"\n'


def test_documents_are_below_their_header() -> None:
    assert yaml_text.documents(["a: 1\n\n", "b: 2\n"], ["one\n two ", ""]) == (
        "# one\n#  two\n---\na: 1\n---\nb: 2\n"
    )
