"""Run the checks of structure and wording for changed files.

    python scripts/touched.py FILE...

The commit hook's part of tests/program: all of them read the complete tree, in more than a minute
on a busy machine. Wording is checked in the folders that were touched, structure where a module
was, Chinese where a text or page was.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = "tests/program/test_"


def main() -> int:
    """Return the exit status of pytest; 0 where nothing is to be checked."""
    changed = [Path(each) for each in sys.argv[1:]]
    done = [_run(*each) for each in checks(changed)]
    return max(done, default=0)


def checks(changed: list[Path]) -> list[list[str]]:
    """Return pytest's arguments of each run that changed files need.

    >>> checks([Path("gaudi_launch/cli/main.py")])[1][1:]
    ['-k', 'gaudi_launch/cli']
    """
    found = []
    modules = [path for path in changed if path.suffix == ".py"]
    if modules:
        found.append([f"{_PROGRAM}structure.py"])
    folders = {_folder(path) for path in modules}
    if folders:
        found.append([f"{_PROGRAM}words.py", "-k", " or ".join(sorted(folders))])
    if any(path.suffix in (".json", ".md") for path in changed):
        found.append([f"{_PROGRAM}words_zh.py"])
    return found


def _folder(path: Path) -> str:
    """Return the folder of a module whose wording is one check: two levels at most."""
    depth = 1 if path.parts[0] == "scripts" else 2
    return "/".join(path.parts[:depth])


def _run(*arguments: str) -> int:
    words = [sys.executable, "-m", "pytest", "-q", *arguments]
    status = subprocess.run(words, check=False).returncode
    # no test has this name: the wording of other tests is free
    nothing = 5
    return 0 if status == nothing else status


if __name__ == "__main__":
    raise SystemExit(main())
