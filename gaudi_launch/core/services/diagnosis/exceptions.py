"""The errors of a log: tracebacks, and lines that report one. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from gaudi_launch.core.services.log.line import LogLine

Line = tuple[int, str]

_MOST = 300
_MOST_FRAMES = 200
_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = ("The above exception was the direct cause", "During handling of the above exception")
# the first line below a traceback that is not indented names its error
_RAISED = re.compile(r"^[A-Za-z_][\w.]{0,200}(?:\([\w.]{1,80}\))?: ")
_NAMED = re.compile(
    r"^(?:[A-Za-z_]\w{0,80}\.){0,10}_?(?:(?:[A-Z]\w{0,80})?(?:Error|Exception)"
    r"|[A-Z]\w{0,80}(?:Group|Exit|Killed|Interrupt))(?:\([\w.]{1,80}\))?(?:: |:?$)"
)
# errors of other programs: docker, argparse, a shell, HCCL, the Gaudi software
_REPORTED = re.compile(
    r"^(?:[\w./ -]{1,80}: ){0,3}(?:[\w./ -]{0,60} )?"
    r"(?:[Ee]rror|ERROR|[Ff]atal(?: error)?|FATAL|panic)(?: response from daemon)?: ?\S"
    r"|\bFATAL ERROR ::|: The condition \[.{0,200}\] failed"
    r"|^(?:[^:]{1,200}: ){1,4}(?:command not found|No such file or directory|Permission denied)$"
    r"|^[\w./-]{1,80}: [^:].{0,300}\[Errno \d{1,3}\]"
)
# they announce an error of another line, or of another process
WRAPS = re.compile(
    r"Exception in worker |(?:\S{1,60}: )?\*{3} SIG\w+ received|ray\.exceptions\.RayTaskError\("
)
# how Python shows that a process was terminated on request (docs: Built-in Exceptions; asyncio)
_ASKED_TO_END = re.compile(r"^(?:[\w.]{0,80}\.)?(?:KeyboardInterrupt|SystemExit|CancelledError)\b")
# the reason is in the line below: pydantic's field, what the Gaudi bridge's thread did; Rust's
# anyhow names a cause
_BELOW = re.compile(r"validation errors? for \w+$|\bException in .{1,60}\.\.\.$")
_CAUSED_BY = "Caused by:"
_FRAME = re.compile(r'^\s*File "(?P<path>[^"\n]{1,500})", line \d')


@dataclass(frozen=True)
class LogError:
    """One error with the paths of its traceback's frames, the deepest first.

    ``raised`` is False for a line that only reports an error. ``before`` is the line that announced
    the traceback, or the first exception of a chain.
    """

    number: int
    text: str
    raised: bool = False
    frames: tuple[str, ...] = ()
    before: LogError | None = None


@dataclass
class _Process:
    """The traceback of one process, as far as it was read."""

    inside: bool = False
    chained: bool = False
    frames: list[str] = field(default_factory=list)
    # places of errors: the last one, one that the next line completes, one that only announces
    last: int | None = None
    unfinished: int | None = None
    announcing: int | None = None

    def reads(self, words: str) -> bool:
        """Read a line of a traceback itself; return False for any other line."""
        frame = _FRAME.match(words)
        if frame is not None:
            self.frames = [frame["path"], *self.frames[:_MOST_FRAMES]]
            return True
        if words.startswith(_CHAINED):
            self.chained = True
            return True
        if words.startswith(_TRACEBACK):
            self.inside, self.frames = True, []
            return True
        return False


@dataclass
class Errors:
    """Reads a log line by line.

    ``found`` has the errors in the order of their first lines. A chain of exceptions counts as its
    last, which is what the engine made of the first. A line that announces a traceback and the
    error of it are one.
    """

    found: list[LogError] = field(default_factory=list)
    _processes: dict[str, _Process] = field(default_factory=dict)

    def feed(self, number: int, line: LogLine) -> None:
        """Read one line; what was logged below an error was survived."""
        if line.level in ("info", "warning"):
            return
        process = self._processes.setdefault(line.process, _Process())
        words = line.words
        if process.reads(words):
            return
        if words == _CAUSED_BY:
            process.unfinished = process.last
        elif process.unfinished is not None and words.strip():
            self._complete(process, words)
        elif process.inside:
            if _RAISED.match(words) or _NAMED.match(words):
                self._raise(process, number, words)
        elif self._is_error(line):
            self._add(process, number, words)
        elif words.strip() and not self._announced(process).endswith(":"):
            process.announcing = None

    def _announced(self, process: _Process) -> str:
        if process.announcing is None:
            return ""
        return self.found[process.announcing].text

    def _is_error(self, line: LogLine) -> bool:
        words = line.words
        if line.level:
            # an indented line is code of a traceback whose beginning is cut off
            named = bool(words.strip()) and not words.startswith((" ", "\t", "^"))
        else:
            named = bool(_NAMED.match(words) or _REPORTED.search(words))
        return named and not _ASKED_TO_END.match(words)

    def _add(self, process: _Process, number: int, words: str) -> None:
        """Add the error of a line outside a traceback."""
        process.last = len(self.found)
        if _NAMED.match(words):
            error = LogError(number, words[:_MOST], True, tuple(process.frames))
            process.frames, process.announcing = [], None
        else:
            error = LogError(number, words[:_MOST], False, ())
            process.announcing = process.last
        self.found.append(error)
        if _BELOW.search(words):
            process.unfinished = process.last

    def _raise(self, process: _Process, number: int, words: str) -> None:
        place = process.announcing
        if process.chained:
            place = process.last
        process.inside, process.chained, process.announcing = False, False, None
        if _ASKED_TO_END.match(words):
            return
        error = LogError(number, words[:_MOST], True, tuple(process.frames))
        process.frames = []
        if place is None:
            place = len(self.found)
            self.found.append(error)
        else:
            error = replace(error, before=self.found[place].before or self.found[place])
            self.found[place] = error
        process.last = place
        if _BELOW.search(error.text):
            process.unfinished = place

    def _complete(self, process: _Process, words: str) -> None:
        """Add the line below to an error that it explains."""
        place, process.unfinished = process.unfinished, None
        if place is not None:
            error = self.found[place]
            self.found[place] = replace(error, text=f"{error.text}: {words.strip()}"[:_MOST])
