"""The exceptions of a log: of each traceback the line that names its error. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

Line = tuple[int, str]

# vLLM's logger: LEVEL MM-DD HH:MM:SS [file.py:line] (vllm/logger.py)
_LOGGED = re.compile(
    r"^(?P<level>ERROR|CRITICAL|WARN(?:ING)?|INFO|DEBUG)\b:?\s{0,8}"
    r"(?:\d\d-\d\d )?(?:\d\d:\d\d:\d\d(?:[.,]\d{1,6})? )?(?:\[[^\]]{1,200}\] ?)?"
)
_SURVIVED = ("WARN", "WARNING", "INFO", "DEBUG")
_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = ("The above exception was the direct cause", "During handling of the above exception")
_NAMED = re.compile(
    r"^(?:[A-Za-z_]\w{0,80}\.){0,10}[A-Z]\w{0,80}(?:Error|Exception|Group|Exit|Killed|Interrupt)"
    r"(?:\([\w.]{1,80}\))?(?:: |:?$)"
)
# how Python shows that a process was terminated on request (docs: Built-in Exceptions; asyncio)
_ASKED_TO_END = re.compile(r"^(?:[\w.]{0,80}\.)?(?:KeyboardInterrupt|SystemExit|CancelledError)\b")
# pydantic names the field and the reason in the lines below
_BELOW = re.compile(r"validation errors? for \w+$")


@dataclass
class Exceptions:
    """Reads a log line by line.

    ``raised`` has one (line number, text) for each traceback, a chain counting as one: its last,
    which is what the engine made of the first. ``loose`` are errors without a traceback.
    """

    raised: list[Line] = field(default_factory=list)
    loose: list[Line] = field(default_factory=list)
    _inside: bool = False
    _chained: bool = False
    _unfinished: bool = False

    def feed(self, number: int, line: str) -> None:
        """Read a line without colours and process prefix."""
        logged = _LOGGED.match(line)
        if logged is not None and logged["level"] in _SURVIVED:
            return
        words = line[logged.end() :].strip() if logged is not None else line
        if self._unfinished and words:
            self._finish(words)
        elif words.startswith(_TRACEBACK):
            self._inside = True
        elif words.startswith(_CHAINED):
            self._chained = True
        elif _NAMED.match(words) and not _ASKED_TO_END.match(words):
            self._add((number, words[:300]))

    def _add(self, line: Line) -> None:
        if not self._inside:
            self.loose.append(line)
        elif self._chained and self.raised:
            self.raised[-1] = line
        else:
            self.raised.append(line)
        if self._inside:
            self._unfinished = _BELOW.search(line[1]) is not None
        self._inside = self._chained = False

    def _finish(self, words: str) -> None:
        number, text = self.raised[-1]
        self.raised[-1] = (number, f"{text}: {words}"[:300])
        self._unfinished = False
