"""Packages that the errors of a log concern. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gaudi_launch.core.doctor.findings import Deviation
from gaudi_launch.core.services.diagnosis.exceptions import Errors, LogError
from gaudi_launch.core.services.log.line import lines_of

_ERROR = re.compile(r"\b(?:ImportError|ModuleNotFoundError|AttributeError): (?P<words>.*)")
_MODULE = re.compile(r"(?:\bfrom|\bmodule|No module named) '(?P<name>[\w.]{1,200})'")
_INSTALLED = re.compile(r"/(?:site|dist)-packages/(?:[^/]{1,200}\.egg/)?(?P<name>\w{1,100})")
# checkouts of the engine and the libraries between it and the cards
_CHECKOUT = re.compile(r"/(?P<name>vllm|vllm_gaudi|vllm[_-]hpu[_-]extension)/\w")
_MOST = 3
_PAIR = {"vllm", "vllm_gaudi", "vllm_hpu_extension", "habana_frameworks"}
# a call with other arguments than the function has, and what the object of another release lacks;
# objects of Python itself, of torch and of the model's own files say nothing of the releases
_MISMATCH = re.compile(
    r"^(?:\w{1,50}\.){0,5}(?:TypeError: .{0,200}(?:unexpected keyword argument"
    r"|positional arguments?\b|missing \d+ required)"
    r"|AttributeError: (?:module 'vllm|type object|'[A-Z_](?!one)\w{0,100}"
    r"(?<!Config)(?<!Tokenizer)(?<!TokenizerFast)(?<!Processor)'))"
)


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
    errors = Errors()
    for number, line in lines_of(text):
        errors.feed(number, line)
    found: list[DriftError] = []
    for each in errors.found:
        error = _ERROR.search(each.text)
        if error is not None:
            named = tuple(name.partition(".")[0] for name in _MODULE.findall(error["words"]))
            passed = tuple(dict.fromkeys(_packages(each.frames)))
            found.append(DriftError(each.number, each.text, named, passed))
    return found


def is_mismatch(error: LogError, engine: str) -> bool:
    """Return True if plugin, vLLM and Gaudi software seem to differ in release.

    The deepest frame outside of torch is theirs, or a log of vLLM shows no frame at all.
    """
    if engine == "other" or not _MISMATCH.search(error.text):
        return False
    if not error.frames:
        return engine.startswith("vllm")
    return next((name for name in _packages(error.frames) if name != "torch"), None) in _PAIR


def _packages(frames: Iterable[str]) -> Iterator[str]:
    for path in frames:
        found = _INSTALLED.search(path) or _CHECKOUT.search(path)
        if found is not None:
            yield found["name"].replace("-", "_")
