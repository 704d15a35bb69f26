"""``profiles`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.core.planning.profiles import shipped_dir
from tests.support.cli import output

pytestmark = pytest.mark.usefixtures("plain_english")


def own(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config" / "gaudi-launch" / "profiles" / "mine.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_show_is_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    path = shipped_dir() / "mixtral-8x7b.yaml"
    code, out, _ = output(capsys, "profiles", "show", "mistralai/Mixtral-8x7B-Instruct-v0.1")
    assert (code, out) == (0, f"# {path}\n" + path.read_text(encoding="utf-8"))
    code, out, _ = output(capsys, "profiles", "show", "mixtral-8x7b", "--json")
    assert json.loads(out)["profile"]["architecture"]["experts"] == 8


def test_show_of_an_unknown_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = output(capsys, "profiles", "show", "gpt-5")
    assert code == 2
    assert err.startswith("gaudi-launch: There is no profile gpt-5. Known: bielik-1.5b-v3.0, ")


def test_check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    count = len(list(shipped_dir().glob("*.yaml")))
    assert output(capsys, "profiles", "check")[:2] == (0, f"{count} profiles checked, all valid.\n")
    path = tmp_path / "mine.yaml"
    text = (shipped_dir() / "qwq-32b.yaml").read_text(encoding="utf-8")
    path.write_text(text.replace("cards: 8", "cards: eight"), encoding="utf-8")
    code, _, err = output(capsys, "profiles", "check", str(path))
    why = "/serving/cards must be integer; found 'eight'."
    assert (code, err) == (2, f"gaudi-launch: The profile {path} cannot be used: {why}\n")
    code, out, _ = output(capsys, "profiles", "check", str(path), "--json")
    assert json.loads(out)["error"]["id"] == "profiles.bad"


@pytest.mark.parametrize("text", ["schema: 1", "]", "\ttab", "x: " + "[" * 2000])
def test_a_broken_own_profile_is_named_by_every_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    path = own(tmp_path, text)
    for arguments in (("profiles", "check"), ("inspect",)):
        code, _, err = output(capsys, *arguments)
        assert code == 2
        assert str(path) in err
