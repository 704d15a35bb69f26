"""Cases of an acceptance script: run in order, reported as one JSON object."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Generic, TypeVar

PlaceT = TypeVar("PlaceT")


@dataclass(frozen=True)
class Result:
    """One case: what it took, and what was not as stated ("" when all was)."""

    case: str
    seconds: float
    wrong: str


class Unexpected(Exception):
    """Something that is not as stated."""


def check_shown(shown: str, found: int, wanted: int, texts: Sequence[str]) -> None:
    """Compare the output and exit code of a command. Raises Unexpected."""
    if found != wanted:
        raise Unexpected(f"exit code {found}, expected {wanted}: {shown[-700:]}")
    absent = [text for text in texts if text not in shown]
    if absent:
        raise Unexpected(f"not in the output: {absent}: {shown[-900:]}")
    if "Traceback" in shown:
        raise Unexpected(f"a traceback: {shown[-900:]}")


@dataclass(frozen=True)
class Suite(Generic[PlaceT]):
    """The cases of a script.

    ``missing`` returns why they cannot be run here, "" when they can. ``place`` makes what they
    are run on, for the short form or the complete one, and adds what remains of it to a list.
    ``run`` runs one case there; it raises Unexpected.
    """

    about: str | None
    missing: Callable[[], str]
    place: Callable[[bool, list[str]], AbstractContextManager[PlaceT]]
    run: Callable[[PlaceT, Callable[[PlaceT], None]], None]
    cases: Sequence[Callable[[PlaceT], None]]
    short: Sequence[Callable[[PlaceT], None]]

    def main(self) -> int:
        """Run the cases of the command line; return the exit status."""
        parser = argparse.ArgumentParser(description=self.about)
        parser.add_argument("--short", action="store_true", help="only the short cases")
        parser.add_argument("cases", nargs="*", metavar="CASE", help="only these cases")
        given = parser.parse_args()
        known = {case.__name__: case for case in self.cases}
        strange = [name for name in given.cases if name not in known]
        if strange:
            parser.error(f"not a case: {', '.join(strange)}; known: {', '.join(known)}")
        why = self.missing()
        if why:
            print(why, file=sys.stderr)
            return 3
        chosen = [known[name] for name in given.cases]
        if not chosen:
            chosen = list(self.short if given.short else self.cases)
        left: list[str] = []
        with self.place(given.short, left) as place:
            results = [self._result(place, case) for case in chosen]
        print(json.dumps({"results": [asdict(result) for result in results], "left": left}))
        return 1 if left or any(result.wrong for result in results) else 0

    def _result(self, place: PlaceT, case: Callable[[PlaceT], None]) -> Result:
        began = time.monotonic()
        wrong = ""
        try:
            self.run(place, case)
        except (Unexpected, AssertionError) as error:
            wrong = str(error) or type(error).__name__
        result = Result(case.__name__, round(time.monotonic() - began, 1), wrong)
        print(f"{result.case}: {result.seconds} s {result.wrong or 'ok'}", file=sys.stderr)
        return result
