"""What commands refuse by themselves: the recorded sentences, in both languages.

A line of a recorded file after "$" is a command. UPDATE_GOLDEN=1 writes what each one prints.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.support.cli import golden, output
from tests.support.machines import use
from tests.support.places import DATA

pytestmark = pytest.mark.usefixtures("plain_english")

FOLDER = DATA / "golden" / "refusals"


def refusal(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return a command, its exit code where it is not 2, and its sentence in each language."""
    words = shlex.split(line)
    code, out, err = output(capsys, "--lang", "en", *words)
    again, chinese, error = output(capsys, "--lang", "zh", *words)
    assert code == again != 0 and (out == "" or "--json" in line), line
    kind = "" if code == 2 else f"exit code {code}\n"
    sentences = [each.removeprefix("gaudi-launch: ") for each in (out + err, chinese + error)]
    return f"$ {line}\n{kind}" + "".join(sentences)


def test_a_refusal_is_a_sentence_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, tmp_path / "machine")
    here = tmp_path / "here"
    (here / "models" / "Qwen3-8B").mkdir(parents=True)
    monkeypatch.chdir(here)
    before = sorted(here.rglob("*"))
    for path in FOLDER.iterdir():
        lines = path.read_text(encoding="utf-8").splitlines()
        commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        shown = "".join(refusal(each, capsys) for each in commands)
        golden(path.name, shown, FOLDER)
    assert sorted(here.rglob("*")) == before
