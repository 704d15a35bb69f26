"""Write a page of the mutants that no test noticed.

It is made from the results of scripts/mutation.py.

    python scripts/survivors.py RESULTS.json... > tests/data/survivors.md

The page has a line for each package with its counts, then each mutant that survived or that no test
executed, with the line before and after the change.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_NOTICED = ("killed", "timeout")
_INTRODUCTION = """# Mutants that no test noticed

Drawn by `python scripts/mutation.py PACKAGE --draw 200 --seed 24` and judged by the tests of the
package's folder without the slow modules, so that a line of this list may be tested elsewhere.
`untested`: none of these tests executes the line. Line numbers are those at the time of the draw.
`python scripts/survivors.py RESULTS.json... > tests/data/survivors.md` writes this page.
"""


def main() -> None:
    """Print the page of the results that the command line names."""
    results = [json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]]
    print("\n".join(page(results)))


def page(results: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of the page: a table of all packages, then a part for each."""
    yield _INTRODUCTION
    yield "| package | mutants | killed or timed out | survived | untested |"
    yield "|---|---|---|---|---|"
    for result in results:
        counts = Counter(mutant["outcome"] for mutant in result["mutants"])
        noticed = sum(counts[outcome] for outcome in _NOTICED)
        share = 100 * noticed / len(result["mutants"])
        yield (
            f"| {_name(result)} | {len(result['mutants'])} | {share:.1f} % |"
            f" {counts['survived']} | {counts['untested']} |"
        )
    for result in results:
        yield f"\n## {_name(result)}\n"
        others = result.get("tests", [])
        if others:
            yield f"Judged also by {', '.join(others)}.\n"
        yield "```diff"
        for mutant in result["mutants"]:
            if mutant["outcome"] not in _NOTICED:
                yield from _lines(mutant)
        yield "```"


def _name(result: Mapping[str, Any]) -> str:
    return ", ".join(result["targets"])


def _lines(mutant: Mapping[str, Any]) -> Iterator[str]:
    """Yield where a mutant is, and its lines before and after, not indented."""
    path = mutant["path"].removeprefix("gaudi_launch/")
    mark = "" if mutant["outcome"] == "survived" else f", {mutant['outcome']}"
    yield f"# {path}:{mutant['line']}{mark}"
    for line in mutant["diff"].splitlines():
        yield f"{line[0]} {line[1:].strip()}"


if __name__ == "__main__":
    main()
