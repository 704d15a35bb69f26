"""The script that lists what the table of conditions lacks, on a checkout of two notes."""

from __future__ import annotations

import runpy
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.places import TESTS, TOP

SCRIPT = runpy.run_path(str(TOP / "scripts/release_sentences.py"))
NOTES = """# Notes
- Fixed a crash of A. ([#7](https://x/7))
- Fixed a hang of B. (#8)
- Added C. (#9)
- D must be set.
## Full Changelog
- Fixed E. (#10)
"""
TABLE = {"conditions": [{"thread": "o/r#7"}], "read": [11], "documents": []}


@pytest.mark.parametrize(
    ("every", "known", "expected"),
    [
        (False, {}, ["Fixed a hang of B. (#8)", "D must be set."]),
        (False, {"read": [8, 11]}, ["D must be set."]),
        (False, {"read": [8, 11], "documents": ["docs/release_notes_v2.md"]}, []),
        (True, {"read": [8, 11]}, ["F is not supported.", "Prevented G. (#12)", "D must be set."]),
    ],
)
def test_it_lists_what_is_in_no_row(
    tmp_path: Path, every: bool, known: dict[str, object], expected: list[str]
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "release_notes_v2.md").write_text(NOTES)
    (docs / "release_notes_v1.md").write_text("- Prevented G. (#12)\n- Fixed H. (#11)\n")
    (docs / "faq.md").write_text("Text.\nF is not supported. More.\n")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "x"), ("tag", "v2")):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True)
    found = [
        line.partition(": ")[2]
        for line in SCRIPT["unknown"](SCRIPT["listed"](tmp_path, "v2", every), {**TABLE, **known})
    ]
    assert found == expected


def test_a_cell_of_a_table_is_a_sentence() -> None:
    assert list(SCRIPT["sentences"]("docs/a.md", "| X | Must be false. | no |")) == [
        "Must be false."
    ]


def test_every_sentence_of_the_releases_is_in_the_table_or_marked() -> None:
    """The file has the lines of vllm-project/vllm-gaudi@091bbadd, by `listed` with ``every``."""
    text = (TESTS / "data" / "release_sentences.txt").read_text(encoding="utf-8")
    found = [line.partition("\t")[::2] for line in text.splitlines()]
    table = yaml.safe_load(SCRIPT["TABLE"].read_text(encoding="utf-8"))
    assert len(found) > 200
    assert list(SCRIPT["unknown"](found, table)) == []
    without = {**table, "read": []}
    assert len(list(SCRIPT["unknown"](found, without))) > 50
