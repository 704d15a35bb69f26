"""The records of ``tune``: candidates, launches, runs; and a search's folder."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from gaudi_launch.core.base.errors import file_error
from gaudi_launch.core.base.paths import state_dir
from gaudi_launch.core.launch.saved_plan import SavedTraffic
from gaudi_launch.core.planning.launch_options import LaunchOptions


@dataclass(frozen=True)
class TuneCandidate:
    """A plan to try; ``cards`` and ``hash`` are of what its options had first."""

    name: str
    options: LaunchOptions
    cards: int
    hash: str


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
        return self.middle.score if self.middle is not None else 0.0

    @property
    def middle(self) -> TuneFigure | None:
        """Return the run with the median score; None without a run."""
        ranked = sorted(self.figures, key=lambda figure: figure.score)
        return ranked[len(ranked) // 2] if ranked else None


@dataclass(frozen=True)
class TuneState:
    """A search: its candidates, and each launch so far."""

    folder: Path
    goal: str
    traffic: SavedTraffic
    requests: int
    candidates: tuple[TuneCandidate, ...]
    starts: tuple[TuneStart, ...] = ()

    @property
    def decisive(self) -> list[TuneStart]:
        """Return the starts of the last round, else the newest of each candidate."""
        last = [start for start in self.starts if start.last and start.figures]
        if any(start.candidate != 0 for start in last):
            return last
        newest = [self.best_start(number) for number in range(len(self.candidates))]
        return [start for start in newest if start is not None]

    def best_start(self, candidate: int) -> TuneStart | None:
        """Return the last measured start of a candidate; None without one."""
        measured = [
            start for start in self.starts if start.candidate == candidate and start.figures
        ]
        return measured[-1] if measured else None


def new_folder(options: LaunchOptions, traffic: SavedTraffic, goal: str) -> Path:
    """Return a new folder for a search, below the one of its question.

    Raises LaunchError (FAILED).
    """
    words = json.dumps([asdict(options), traffic.to_json(), goal], default=str)
    name = "".join(
        each if each.isalnum() else "-" for each in (options.model or "").rsplit("/", 1)[-1]
    )
    key = f"{name[:40].strip('-') or 'model'}-{hashlib.sha256(words.encode()).hexdigest()[:8]}"
    base = state_dir() / "tune" / key
    folder = base / time.strftime("%Y-%m-%d-%H-%M-%S")
    number = 1
    while folder.exists():
        number += 1
        folder = base / f"{time.strftime('%Y-%m-%d-%H-%M-%S')}-{number}"
    try:
        folder.mkdir(parents=True, mode=0o700)
    except OSError as error:
        raise file_error("tune.no_folder", error, folder) from None
    return folder
