"""The state of ``tune`` in a folder: candidates, launches and runs."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.saved_plan import SavedTraffic
from gaudi_launch.app.tune_candidates import TuneCandidate
from gaudi_launch.errors import ExitCode, LaunchError

_FILE = "tune.json"
_SCHEMA = 1


@dataclass(frozen=True)
class TuneFigure:
    """One saved bench run: seconds and output tokens/s, means of all requests."""

    file: str
    tokens: float
    ttft: float
    tpot: float
    latency: float
    score: float


@dataclass(frozen=True)
class TuneStart:
    """One launch of a candidate with its runs.

    ``why`` it failed, "" where it did not. ``start_seconds`` until it was ready, ``seconds`` until
    it was stopped again, ``requests`` in all of its runs. ``last`` for the round that decides.
    """

    candidate: int
    round: int
    last: bool
    start_seconds: float
    seconds: float
    requests: int
    figures: tuple[TuneFigure, ...] = ()
    why: str = ""

    @property
    def score(self) -> float:
        """Return the median score of its runs; 0 without one."""
        scores = sorted(figure.score for figure in self.figures)
        if not scores:
            return 0.0
        return scores[len(scores) // 2]


@dataclass(frozen=True)
class TuneState:
    """A search: its candidates, and each launch so far."""

    folder: Path
    goal: str
    traffic: SavedTraffic
    requests: int
    candidates: tuple[TuneCandidate, ...]
    starts: tuple[TuneStart, ...] = ()
    done: bool = False

    def start_of(self, candidate: int, round: int, *, last: bool) -> TuneStart | None:
        """Return the start of a candidate in a round, if there was one."""
        wanted = (candidate, round, last)
        found = (one for one in self.starts if (one.candidate, one.round, one.last) == wanted)
        return next(found, None)

    def best_start(self, candidate: int) -> TuneStart | None:
        """Return the last measured start of a candidate; None without one."""
        measured = [
            start for start in self.starts if start.candidate == candidate and start.figures
        ]
        return measured[-1] if measured else None

    def with_start(self, start: TuneStart) -> TuneState:
        """Return the state with another start, written."""
        return write(replace(self, starts=(*self.starts, start)))


def key_of(options: LaunchOptions, traffic: SavedTraffic, goal: str) -> str:
    """Return the name of the folder for the searches of this question."""
    words = json.dumps([asdict(options), traffic.to_json(), goal], default=str)
    name = "".join(
        each if each.isalnum() else "-" for each in (options.model or "").rsplit("/", 1)[-1]
    )
    return f"{name[:40].strip('-') or 'model'}-{hashlib.sha256(words.encode()).hexdigest()[:8]}"


def new_folder(key: str) -> Path:
    """Return a new folder for a search. Raises LaunchError (FAILED)."""
    base = _base() / key
    folder = base / time.strftime("%Y-%m-%d-%H-%M-%S")
    number = 1
    while folder.exists():
        number += 1
        folder = base / f"{time.strftime('%Y-%m-%d-%H-%M-%S')}-{number}"
    try:
        folder.mkdir(parents=True, mode=0o700)
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError("tune.no_folder", ExitCode.FAILED, path=str(folder), why=why) from None
    return folder


def newest(key: str) -> TuneState | None:
    """Return the newest search of this question, None without one.

    Raises LaunchError (FAILED) for a file that cannot be read.
    """
    found = sorted((_base() / key).glob(f"*/{_FILE}"), key=lambda path: path.stat().st_mtime)
    return read(found[-1]) if found else None


def _base() -> Path:
    from gaudi_launch.paths import state_dir

    return state_dir() / "tune"


def write(state: TuneState) -> TuneState:
    """Write the state; return it. Raises LaunchError (FAILED)."""
    document = {
        "schema": _SCHEMA,
        "goal": state.goal,
        "traffic": state.traffic.to_json(),
        "requests": state.requests,
        "done": state.done,
        "candidates": [
            {"name": one.name, "options": _given(one.options), "cards": one.cards, "hash": one.hash}
            for one in state.candidates
        ],
        "starts": [asdict(start) for start in state.starts],
    }
    path = state.folder / _FILE
    part = path.with_suffix(".part")
    try:
        part.write_text(json.dumps(document, indent=1), encoding="utf-8")
        part.replace(path)
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError("tune.no_folder", ExitCode.FAILED, path=str(path), why=why) from None
    return state


def _given(options: LaunchOptions) -> dict[str, Any]:
    empty = LaunchOptions()
    names = (field.name for field in fields(LaunchOptions))
    return {
        name: getattr(options, name)
        for name in names
        if getattr(options, name) != getattr(empty, name)
    }


def read(path: Path) -> TuneState:
    """Return the state in a file. Raises LaunchError (FAILED)."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return TuneState(
            folder=path.parent,
            goal=document["goal"],
            traffic=SavedTraffic(**document["traffic"]),
            requests=int(document["requests"]),
            candidates=tuple(_read_candidate(each) for each in document["candidates"]),
            starts=tuple(_read_start(each) for each in document["starts"]),
            done=bool(document["done"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LaunchError(
            "tune.bad_state", ExitCode.FAILED, path=str(path), why=str(error)
        ) from None


def _read_candidate(found: dict[str, Any]) -> TuneCandidate:
    options = dict(found["options"])
    options["extra"] = tuple(options.get("extra", ()))
    return TuneCandidate(
        found["name"], LaunchOptions(**options), int(found["cards"]), found["hash"]
    )


def _read_start(found: dict[str, Any]) -> TuneStart:
    figures = tuple(TuneFigure(**each) for each in found["figures"])
    return TuneStart(**{**found, "figures": figures})
