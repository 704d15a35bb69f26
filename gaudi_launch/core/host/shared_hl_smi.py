"""hl-smi shared by all programs of a user: at most one call per second.

Each query is answered by the card's firmware, so `top`, the exporter and the services share the
answers through one file. Ages are read from the system's monotonic clock, which all processes
share.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gaudi_launch.core.base import codec, locks, paths
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.host import hl_smi
from gaudi_launch.core.host.hl_smi import Ask, HlSmiOutput

_log = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0
_LARGEST = 8 << 20


@dataclass(frozen=True)
class TimedOutput:
    """An output of hl-smi, and when it was requested (monotonic seconds)."""

    output: HlSmiOutput
    at: float


@dataclass
class SharedHlSmi:
    """The hl-smi of a machine, with its latest answers in ``folder``."""

    ask: Ask
    folder: Path
    clock: Callable[[], float] = time.monotonic
    _known: dict[str, TimedOutput] = field(default_factory=dict)
    _last_call: float = float("-inf")

    def latest(self, arguments: Sequence[str], most_age: float) -> TimedOutput | None:
        """Return the newest output of these arguments; None when there is none yet.

        hl-smi is called when the newest is older than ``most_age`` seconds and no program called it
        within the last second; otherwise the newest is returned, however old it is.
        """
        key = " ".join(arguments)
        known = self._known.get(key)
        if known is not None and 0 <= self.clock() - known.at <= most_age:
            return known
        try:
            self._share(key, arguments, most_age)
        except OSError as error:
            _log.debug("the answers of hl-smi are not shared: %s", error)
            # keep to one call per second without a file, as on a full disk
            now = self.clock()
            if now - self._last_call >= PAUSE_SECONDS:
                self._last_call = now
                self._known[key] = TimedOutput(self.ask(arguments), now)
        return self._known.get(key)

    def _share(self, key: str, arguments: Sequence[str], most_age: float) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(
            self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            if locks.try_take(handle):
                self._refresh(key, arguments, most_age)
            else:
                # another program calls it right now; its last answers are complete
                self._read()
        finally:
            os.close(handle)

    def _refresh(self, key: str, arguments: Sequence[str], most_age: float) -> None:
        last_call = self._read()
        now = self.clock()
        known = self._known.get(key)
        if known is not None and 0 <= now - known.at <= most_age:
            return
        if 0 <= now - last_call < PAUSE_SECONDS:
            return
        self._write(now)
        self._last_call = now
        self._known[key] = TimedOutput(self.ask(arguments), now)
        self._write(now)

    def _read(self) -> float:
        """Read the answers of all programs; return when hl-smi was called last."""
        try:
            with (self.folder / "answers.json").open("rb") as file:
                document = parse_json(file.read(_LARGEST))
            for key, entry in document["answers"].items():
                self._known[key] = codec.read(TimedOutput, entry)
            return float(document["last_call"])
        except FileNotFoundError:
            return float("-inf")
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            _log.debug("the shared answers of hl-smi are not read: %s", error)
            return float("-inf")

    def _write(self, last_call: float) -> None:
        now = self.clock()
        # answers from before a reboot are later than the clock
        answers = {key: codec.write(each) for key, each in self._known.items() if each.at <= now}
        text = json.dumps({"last_call": last_call, "answers": answers})
        paths.write_whole(self.folder / "answers.json", text, 0o600)


def find() -> SharedHlSmi | None:
    """Return the hl-smi on PATH, shared; None when there is none."""
    program = shutil.which("hl-smi")
    if program is None:
        return None
    name = "".join(letter if letter.isalnum() else "-" for letter in str(Path(program).resolve()))
    return SharedHlSmi(
        partial(hl_smi.run, program), paths.state_dir() / "hl-smi" / name[-100:].strip("-")
    )
