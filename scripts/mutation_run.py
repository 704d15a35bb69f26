"""Judge mutants inside one pytest process.

Each has a child that was forked after the collection.

The tests run once in a child that records which lines each of them executes. Then each mutant gets
a separate child: the changed function takes the place of the original's code, caches are emptied,
and the tests that execute the changed lines run until one fails, the module's own first, then the
fast ones. A mutant of code that runs at the import makes its child forget the package and the tests
and import them again.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import math
import os
import resource
import select
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from mutants import Function, Mutant

_MEMORY_BYTES = 8 << 30
# a mutant has this many times the processor time of its tests, and at least these seconds; one that
# waits has more, as other programs may use the processors
_TIMES_LONGER = 3
_LEAST_SECONDS = 5.0
_TIMES_WAITING = 20
_BASELINE_SECONDS = 1800.0
NOT_NOTICED = ("survived", "untested")
_OURS = ("gaudi_launch", "tests")


@dataclass(frozen=True)
class Judged:
    """A mutant with its outcome: killed, timeout, survived or untested.

    No test executes one that is untested.

    One that crashes or takes all memory counts as a timeout: nothing is heard of it.
    """

    mutant: Mutant
    outcome: str
    by: str
    tests: int
    seconds: float


def described(judged: Judged) -> str:
    """Return a mutant that no test notices as text: place, tests, change."""
    mutant = judged.mutant
    place = f"{mutant.path.parent.name}/{mutant.path.name}:{mutant.start[0]}"
    return f"\n{place} {judged.outcome}, {judged.tests} tests\n{mutant.diff}"


@dataclass
class Executed:
    """The code that one test executes: seconds of a processor, and lines by file."""

    seconds: float
    lines: Mapping[str, set[int]]


@dataclass
class Judge:
    """A pytest plugin: it runs no session of tests but one for each mutant.

    ``own`` are the test files of the mutated modules, which run first, also when they are slow.
    ``most_seconds`` bounds the processor time of the tests of one mutant. ``last`` are test
    functions that run when the others notice nothing; they have as much time again.
    """

    mutants: Sequence[Mutant]
    own: frozenset[Path]
    most_seconds: float
    say: Callable[[str], None]
    last: frozenset[str] = frozenset()
    judged: list[Judged] = field(default_factory=list)
    failing: list[str] = field(default_factory=list)
    executed: dict[str, Executed] = field(default_factory=dict)
    functions: dict[tuple[str, Function], list[FunctionType]] = field(default_factory=dict)
    caches: list[Any] = field(default_factory=list)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [each for each in items if self._belongs(each)]

    def _belongs(self, item: pytest.Item) -> bool:
        if item.get_closest_marker("e2e") is not None:
            return False
        return item.get_closest_marker("slow") is None or item.path in self.own

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("the tests are not collected")
        self._find_functions()
        begun = time.monotonic()
        self._baseline(session.items)
        self.say(
            f"{len(self.executed)} tests in {time.monotonic() - begun:.0f} s"
            f", {len(self.failing)} of them fail without a mutant and are left out"
        )
        for number, mutant in enumerate(self.mutants, start=1):
            self.judged.append(self._judge(mutant, session.items))
            if self.judged[-1].outcome in NOT_NOTICED:
                self.say(described(self.judged[-1]))
            if number % 50 == 0:
                self.say(
                    f"{number} of {len(self.mutants)} mutants, {time.monotonic() - begun:.0f} s"
                )
        return True

    def _find_functions(self) -> None:
        paths = {str(mutant.path) for mutant in self.mutants}
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename in paths:
                place = Function(each.__qualname__, each.__code__.co_firstlineno)
                self.functions.setdefault((each.__code__.co_filename, place), []).append(each)
            of_ours = str(getattr(each, "__module__", "")).startswith("gaudi_launch")
            if isinstance(each, functools._lru_cache_wrapper) and of_ours:
                self.caches.append(each)

    def _baseline(self, items: Sequence[pytest.Item]) -> None:
        paths = {str(mutant.path) for mutant in self.mutants}
        traced = [
            each
            for each in self.caches
            if getattr(getattr(each, "__wrapped__", None), "__code__", None) is not None
            and each.__wrapped__.__code__.co_filename in paths
        ]
        answer = _in_child(lambda: _record(items, paths, traced), _BASELINE_SECONDS)
        if answer is None:
            raise pytest.UsageError("the tests did not end without a mutant")
        for name, row in answer.items():
            if row["failed"]:
                self.failing.append(name)
                continue
            lines = {path: set(numbers) for path, numbers in row["lines"].items()}
            self.executed[name] = Executed(row["seconds"], lines)

    def _judge(self, mutant: Mutant, items: Sequence[pytest.Item]) -> Judged:
        chosen = self._tests_of(mutant, items)
        if not chosen:
            return Judged(mutant, "untested", "", 0, 0.0)
        needed = sum(self.executed[item.nodeid].seconds for item in chosen)
        begun = time.monotonic()
        limit = _LEAST_SECONDS + _TIMES_LONGER * needed
        answer = _in_child(lambda: self._try(mutant, chosen), limit)
        seconds = round(time.monotonic() - begun, 2)
        if answer is None:
            return Judged(mutant, "timeout", "", len(chosen), seconds)
        outcome = "killed" if answer["by"] else "survived"
        return Judged(mutant, outcome, answer["by"], len(chosen), seconds)

    def _tests_of(self, mutant: Mutant, items: Sequence[pytest.Item]) -> list[pytest.Item]:
        """Return the tests that execute the changed lines, in order of execution.

        For code that runs at the import: all that execute anything of the module, or are its own.
        """
        path, lines = str(mutant.path), set(mutant.lines)
        found: list[tuple[bool, bool, float, int, pytest.Item]] = []
        for item in items:
            executed = self.executed.get(item.nodeid)
            if executed is None:
                continue
            here = executed.lines.get(path, set())
            own = item.path in self.own
            if here & lines if mutant.function else (here or own):
                last = item.nodeid.partition("[")[0] in self.last
                found.append((last, not own, executed.seconds, len(found), item))
        chosen: list[pytest.Item] = []
        spent: dict[bool, float] = {}
        for last, _, seconds, _, item in sorted(found, key=lambda row: row[:4]):
            if last not in spent or spent[last] + seconds <= self.most_seconds:
                chosen.append(item)
            spent[last] = spent.get(last, 0.0) + seconds
        return chosen

    def _try(self, mutant: Mutant, chosen: Sequence[pytest.Item]) -> dict[str, Any]:
        """Return the test that fails with the mutant, "" without one."""
        code = compile(mutant.text, str(mutant.path), "exec", dont_inherit=True)
        if mutant.function is None or not self._exchange(mutant, code):
            return {"by": _imported_again(mutant, code, chosen)}
        for cache in self.caches:
            cache.cache_clear()
        for item, following in zip(chosen, [*chosen[1:], None], strict=True):
            reports = runtestprotocol(item, log=False, nextitem=following)
            if any(report.failed for report in reports):
                return {"by": item.nodeid}
        return {"by": ""}

    def _exchange(self, mutant: Mutant, code: CodeType) -> bool:
        """Give the functions in memory the changed code, where that is possible."""
        assert mutant.function is not None
        known = self.functions.get((str(mutant.path), mutant.function), [])
        fresh = _code_of(code, mutant.function)
        if fresh is None or not known:
            return False
        if any(each.__code__.co_freevars != fresh.co_freevars for each in known):
            return False
        for each in known:
            each.__code__ = fresh
        return True


def _code_of(code: CodeType, function: Function) -> CodeType | None:
    """Return a function's code in that of its module."""
    for name in function.name.split("."):
        parts = [each for each in code.co_consts if isinstance(each, CodeType)]
        named = [each for each in parts if each.co_name == name]
        exact = [each for each in named if each.co_firstlineno == function.line]
        if not named:
            return None
        code = (exact or named)[0]
    return code if code.co_firstlineno == function.line else None


def _in_child(work: Callable[[], Mapping[str, Any]], seconds: float) -> dict[str, Any] | None:
    """Return what a forked child finds.

    None: it takes longer or ends without an answer.

    ``seconds`` are of a processor.
    """
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        child = os.fork()
        if child == 0:
            os.close(reading)
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds) + 1))
            _answer(work, writing, folder)
        os.close(writing)
        try:
            return _read(reading, time.monotonic() + _TIMES_WAITING * seconds)
        finally:
            os.close(reading)
            _end(child)


def _answer(work: Callable[[], Mapping[str, Any]], writing: int, folder: str) -> None:
    """Work in this child and end it."""
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        quiet = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(quiet, number)
        os.environ["TMPDIR"] = os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
        tempfile.tempdir = None
        try:
            found: Mapping[str, Any] = work()
        except BaseException as error:  # a mutant may raise anything, SystemExit too
            found = {"by": f"{type(error).__name__} outside of a test"}
        rest = json.dumps(found).encode() + b"\n"
        while rest:
            rest = rest[os.write(writing, rest) :]
    finally:
        os._exit(0)


def _read(reading: int, until: float) -> dict[str, Any] | None:
    """Return the line of JSON that a child writes.

    A process that the child started may outlive it.
    """
    parts = bytearray()
    while not parts.endswith(b"\n"):
        left = until - time.monotonic()
        if left <= 0 or not select.select([reading], [], [], left)[0]:
            return None
        part = os.read(reading, 1 << 20)
        if not part:
            return None
        parts += part
    found: dict[str, Any] = json.loads(parts)
    return found


def _end(child: int) -> None:
    """End a child with the processes of its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _record(
    items: Sequence[pytest.Item], paths: set[str], caches: Iterable[Any]
) -> dict[str, dict[str, Any]]:
    """Run the tests once; return the outcome, seconds and lines of each.

    What a fixture of several tests executes counts for each of them. A cached function of the
    mutated modules begins each test without its cache.
    """
    lines: dict[str, set[int]] = defaultdict(set)
    shared: dict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
    rows = {}

    def inside(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            lines[frame.f_code.co_filename].add(frame.f_lineno)
        return inside

    def called(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in paths:
            return None
        lines[frame.f_code.co_filename].add(frame.f_lineno)
        return inside

    class Phases:
        """Keep the lines of the fixtures that several tests share."""

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_setup(self, item: pytest.Item) -> Any:
            done = yield
            begun = [(path, number) for path, numbers in lines.items() for number in numbers]
            for key in _shared_fixtures(item):
                shared[key] += begun
                for path, number in shared[key]:
                    lines[path].add(number)
            return done

    if items:
        items[0].config.pluginmanager.register(Phases())
    for item, following in zip(items, [*items[1:], None], strict=True):
        lines.clear()
        for cache in caches:
            cache.cache_clear()
        begun = time.process_time()
        threading.settrace(called)
        sys.settrace(called)
        try:
            reports = runtestprotocol(item, log=False, nextitem=following)
        finally:
            sys.settrace(None)
            threading.settrace(None)
        rows[item.nodeid] = {
            "failed": any(report.failed for report in reports),
            "seconds": round(time.process_time() - begun, 3),
            "lines": {path: sorted(numbers) for path, numbers in lines.items()},
        }
    return rows


def _shared_fixtures(item: pytest.Item) -> list[tuple[str, str]]:
    """Return a key for each fixture that tests of this file may share."""
    information = getattr(item, "_fixtureinfo", None)
    if information is None:
        return []
    return [
        (str(item.path), name)
        for name, found in information.name2fixturedefs.items()
        if found and found[-1].scope != "function" and found[-1].baseid
    ]


class _Finder(importlib.abc.MetaPathFinder):
    """Import one module from changed code."""

    def __init__(self, name: str, path: Path, code: CodeType) -> None:
        self.name, self.path, self.code = name, path, code

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        loader = _Loader(name, str(self.path))
        loader.changed = self.code
        return importlib.util.spec_from_file_location(name, self.path, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    changed: CodeType

    def get_code(self, fullname: str) -> CodeType:
        return self.changed


def _imported_again(mutant: Mutant, code: CodeType, chosen: Sequence[pytest.Item]) -> str:
    """Return what fails after an import of the changed code, "" for nothing."""
    top = chosen[0].config.rootpath
    parts = list(mutant.path.relative_to(top).with_suffix("").parts)
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    for module in list(sys.modules):
        if module.split(".")[0] in _OURS:
            del sys.modules[module]
    sys.meta_path.insert(0, _Finder(name, mutant.path, code))
    arguments = ["-x", "-p", "no:cacheprovider", *(item.nodeid for item in chosen)]
    first = _FirstFailure()
    status = pytest.main(arguments, plugins=[first])
    return first.name or ("" if status == 0 else f"pytest ended with {status}")


class _FirstFailure:
    name = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.name = self.name or report.nodeid
