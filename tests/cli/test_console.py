"""What all views share: sentences one after the other, values, sizes, and one JSON object."""

from __future__ import annotations

import json
import re

import pytest

from gaudi_launch.cli import console
from gaudi_launch.core.base.messages import set_language
from tests.support.cli import output
from tests.support.places import PACKAGE

pytestmark = pytest.mark.usefixtures("plain_english")


@pytest.mark.parametrize(
    "words", [("inspect", "Qwen/Qwen3-235B-A22B", "--all"), ("plan", "nobody/m")]
)
def test_no_screen_has_a_blank_after_a_chinese_full_stop(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    set_language("zh")
    _, out, err = output(capsys, *words, "--lang", "zh")
    shown = [line.strip() for line in (out + err).splitlines()]
    assert any("。" in line for line in shown)
    assert [line for line in shown if "。 " in line] == []


def test_a_document_is_printed_with_its_characters(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"schema": 1, "text": "名 é"}
    console.emit_json(document)
    out = capsys.readouterr().out
    assert out == '{\n  "schema": 1,\n  "text": "名 é"\n}\n'
    console.emit_json_line(document)
    line = capsys.readouterr().out
    assert (line, json.loads(line)) == ('{"schema": 1, "text": "名 é"}\n', document)


def test_every_sentence_on_stderr_is_folded() -> None:
    # main's error has a coloured name, and a pod has no package
    apart = ("cli/console.py", "cli/main.py", "keep_recipes.py")
    printed = [
        path.name
        for folder in ("cli", "commands", "extensions")
        for path in (PACKAGE / folder).rglob("*.py")
        if not path.as_posix().endswith(apart)
        and re.search(r"\bprint\([^\n]*file=sys\.stderr", path.read_text(encoding="utf-8"))
    ]
    assert printed == []
