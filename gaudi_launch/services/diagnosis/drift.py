"""Packages that an import or attribute error of a log goes through. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gaudi_launch.engines.pins import Deviation
from gaudi_launch.services.log.follow import bare

_ERROR = re.compile(r"\b(?:ImportError|ModuleNotFoundError|AttributeError): (?P<words>.*)")
_MODULE = re.compile(r"(?:\bfrom|\bmodule|No module named) '(?P<name>[\w.]{1,200})'")
_FRAME = re.compile(r'File "[^"\n]{0,500}/(?:site|dist)-packages/(?P<name>\w{1,100})')
_TRACEBACK = "Traceback (most recent call last):"
_MOST = 3


@dataclass(frozen=True)
class DriftError:
    """An import or attribute error: its line, and the modules that it concerns.

    ``named`` are those of its sentence, ``passed`` those of its traceback, the deepest first.
    """

    number: int
    text: str
    named: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()

    def blamed(self, deviations: Iterable[Deviation]) -> tuple[Deviation, ...]:
        """Return the deviating packages that this error concerns, at most three."""
        by_module = {module: each for each in deviations for module in each.modules}
        for modules in (self.named, self.passed):
            hit = dict.fromkeys(by_module[module] for module in modules if module in by_module)
            if hit:
                return tuple(hit)[:_MOST]
        return ()


def drift_errors(text: str) -> Sequence[DriftError]:
    """Return the import and attribute errors of a log, in its order."""
    found: list[DriftError] = []
    frames: list[str] = []
    for number, raw in enumerate(text.split("\n"), start=1):
        line = bare(raw[:2000])
        if _TRACEBACK in line:
            frames = []
        frame = _FRAME.search(line)
        if frame is not None:
            frames.append(frame["name"])
        error = _ERROR.search(line)
        if error is not None:
            named = tuple(name.partition(".")[0] for name in _MODULE.findall(error["words"]))
            passed = tuple(dict.fromkeys(reversed(frames)))
            found.append(DriftError(number, line[:300], named, passed))
            frames = []
    return found
