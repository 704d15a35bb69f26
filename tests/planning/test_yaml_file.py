"""YAML files of users: what cannot be read, and the lines of their parts."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.planning.yaml_file import line_of, read_text


def refused(path: Path) -> tuple[str, ExitCode, dict[str, object]]:
    with pytest.raises(LaunchError) as caught:
        read_text(path, unreadable="plan.config_unreadable", bad="plan.config_text")
    return caught.value.id, caught.value.exit_code, dict(caught.value.text.values)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"

    def unreadable(why: str) -> tuple[str, ExitCode, dict[str, object]]:
        return "plan.config_unreadable", ExitCode.USAGE, {"path": str(path), "why": why}

    assert refused(path) == unreadable("No such file or directory")
    path.write_bytes(b"x" * ((1 << 20) + 1))
    assert refused(path) == unreadable("> 1 MiB")
    path.write_bytes(b"a: 1\nb: \xff\n")
    assert refused(path) == (
        "plan.config_text",
        ExitCode.USAGE,
        {"path": str(path), "line": 2, "why": "UTF-8"},
    )
    path.write_bytes("a: \u5361\n".encode() + b"#" * ((1 << 20) - 7))
    text = read_text(path, unreadable="x", bad="x")
    assert (text[:5], len(text.encode())) == ("a: \u5361\n", 1 << 20)


TEXT = """# head
models:
  - name: a
    cards: 1
  - name: b
name: first
other: {x: 1,
  y: 2}
name: second
"""


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ((), 2),
        (("models",), 2),
        (("models", 0), 3),
        (("models", 0, "cards"), 4),
        (("models", 1, "cards"), 5),
        (("models", 7, "cards"), 2),
        (("name",), 6),
        (("other", "y"), 8),
        (("other", "y", "deeper"), 8),
        (("none",), 2),
    ],
)
def test_a_part_has_its_line_or_that_of_what_contains_it(
    where: tuple[str | int, ...], line: int
) -> None:
    assert line_of(yaml.compose(TEXT), where) == line


def test_an_empty_file_has_one_line() -> None:
    assert line_of(yaml.compose(""), ("a",)) == 1
