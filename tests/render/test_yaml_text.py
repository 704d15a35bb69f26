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
