"""Print the length of the English pages that people write, in docs/ and above.

    python scripts/words.py             those of today
    python scripts/words.py b20e9d10    those of a commit

Two counts: without blocks of code, and with their commands and programs. Not counted are generated
pages and parts, the page of questions, which is made from the catalogue, and blocks of output
(`text`), which tests compare.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
_GENERATED = re.compile(r"<!-- generated[^>]*begin -->.*?<!-- generated[^>]*end -->", re.DOTALL)
_OUTPUT = re.compile(r"```text\n.*?```", re.DOTALL)
_CODE = re.compile(r"```.*?```", re.DOTALL)


def main() -> None:
    """Print both counts of each page, and the sums."""
    commit = sys.argv[1] if len(sys.argv) > 1 else ""
    sums = [0, 0]
    for name in _git("ls-tree", "-r", "--name-only", commit or "HEAD").splitlines():
        if not _is_counted(name):
            continue
        page = _git("show", f"{commit}:{name}") if commit else (TOP / name).read_text("utf-8")
        page = _OUTPUT.sub("", _GENERATED.sub("", page))
        counts = (len(_CODE.sub("", page).split()), len(page.split()))
        print(f"{name:32} {counts[0]:6,} {counts[1]:6,}")
        sums = [total + count for total, count in zip(sums, counts, strict=True)]
    print(f"{'total':32} {sums[0]:6,} {sums[1]:6,}")


def _is_counted(name: str) -> bool:
    """Report whether a file is an English page that people write."""
    placed = name.startswith("docs/") or "/" not in name
    return placed and name.endswith(".md") and not name.endswith(("_zh.md", "questions.md"))


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=TOP, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    main()
