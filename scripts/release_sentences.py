"""List the sentences of release notes that the table of conditions lacks.

Run it when a release is added, with a checkout of vllm-project/vllm-gaudi, and give each entry a
row in profiles/engines/changes/conditions.yaml, or add its number to the list there. Git only
reads.

    python scripts/release_sentences.py CHECKOUT v0.26.0     the notes of this tag's own release
    python scripts/release_sentences.py CHECKOUT main --all  those of every release, and documents
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).resolve().parents[1] / "profiles/engines/changes/conditions.yaml"
NUMBER = re.compile(r"#(\d+)")
# what a launch may depend on: a fault that ended, a thing that went, a thing that is required
TELLING = re.compile(
    r"(?i)\b(?:fix\w*|prevent\w*|resolv\w*|restor\w*|deprecat\w*|remov\w*|requir\w*|must|no longer"
    r"|regress\w*|correct\w*|disabl\w*|pinned|unpinned|breaking)\b"
)
DEMANDS = re.compile(r"(?i)\b(?:must|not (?:fully )?supported|does not support|is required)\b")
# the list of all commits, and of people, repeats or does not state what changed
ENDS = re.compile(r"^## (?:Full Changelog|New Contributors)", re.M)


def git(checkout: Path, *words: str) -> str:
    """Return what git prints."""
    done = subprocess.run(
        ["git", "-C", str(checkout), *words], check=True, capture_output=True, text=True
    )
    return done.stdout


def files(checkout: Path, ref: str, every: bool) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of the release notes, and of all documents if ``every``."""
    for path in git(checkout, "ls-tree", "-r", "--name-only", ref, "docs").split():
        notes = path.startswith("docs/release_notes_")
        of_release = ref in path or f"v{ref}." in path
        if path.endswith(".md") and ((notes and (every or of_release)) or (every and not notes)):
            yield path, git(checkout, "show", f"{ref}:{path}")


def sentences(path: str, text: str) -> Iterator[str]:
    """Yield the sentences of a file that a launch may depend on.

    >>> list(sentences("docs/release_notes_v1.md", "- Fixed a crash. (#7)\\n- Added X. (#8)\\n"))
    ['Fixed a crash. (#7)']
    >>> list(sentences("docs/a.md", "Intro.\\nIt must be false for X. More."))
    ['It must be false for X.']
    """
    if path.startswith("docs/release_notes"):
        for line in ENDS.split(text)[0].splitlines():
            if line.startswith("- ") and TELLING.search(line):
                yield re.sub(r"\[(#\d+)\]\([^)]*\)", r"\1", line[2:])
        return
    for sentence in re.split(r"(?<=[.!])\s+|\n|\|", text):
        if DEMANDS.search(sentence):
            yield sentence.strip()


def listed(checkout: Path, ref: str, every: bool) -> Iterator[tuple[str, str]]:
    """Yield (path, sentence) of a checkout."""
    for path, text in files(checkout, ref, every):
        for sentence in sentences(path, text):
            yield path, sentence


def unknown(found: Iterable[tuple[str, str]], table: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each sentence without a row."""
    rows = [str(row["thread"]) for row in table["conditions"]]
    known = {number for row in rows for number in NUMBER.findall(row)}
    known |= {str(each) for each in table["read"]}
    for path, sentence in found:
        numbers = set(NUMBER.findall(sentence))
        in_row = path in table["documents"] or any(row.endswith(path) for row in rows)
        if (numbers and numbers <= known) or (not numbers and in_row):
            continue
        yield f"{path}: {sentence}"


def main() -> int:
    """Print the sentences; exit 1 when there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("ref")
    parser.add_argument("--all", action="store_true")
    chosen = parser.parse_args()
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    found = list(unknown(listed(chosen.checkout, chosen.ref, chosen.all), table))
    print("\n".join(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
