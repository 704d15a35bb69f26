"""Change the code in small ways and see whether its own tests notice.

    python scripts/mutation.py core/planning/memory               every mutant of a module
    python scripts/mutation.py core/services/diagnosis            every mutant of a package
    python scripts/mutation.py extensions/watch --draw 200        200 mutants, the same each time
    python scripts/mutation.py --lines FILE --draw 30 --tests PATH ...   on lines of a file

The tests are those at the mirrored path: `tests/core/planning/test_memory.py` of a module, all
below `tests/extensions/watch` of a package, there without the slow ones; `--tests` adds more. With
`--lines` (a `gaudi_launch/FILE.py:NUMBER` a line; scripts/proof.py writes them) the tests are those
of `--tests` only. scripts/mutants.py states the operators and what is left out,
scripts/mutation_run.py how a mutant is judged. The score is killed and timed out of all. Survivors
are printed with their change, and everything is written as JSON outside of the project.

A mutant may end any process or delete any file, so all of it runs in separate namespaces
(unshare(1)): separate processes and network, every file system read-only, an empty /tmp.
`--no-sandbox` is for modules whose tests start nothing and delete nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from mutants import Mutant, modules_of, mutants_of
from mutation_run import Judge, Judged

TOP = Path(__file__).resolve().parents[1]
PACKAGE = TOP / "gaudi_launch"
TESTS = TOP / "tests"
RESULTS = Path(tempfile.gettempdir()) / "gaudi-launch-mutation"
# file systems of the kernel: they are not made read-only
_OF_THE_KERNEL = ("proc", "sysfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2")
_INSIDE = "GAUDI_LAUNCH_MUTATION_SANDBOX"


@dataclass(frozen=True)
class Target:
    """A module or package, by its path below the package: `planning/memory`, `watch`."""

    name: str

    @property
    def path(self) -> Path:
        """Return the module's file or the package's folder."""
        for path in (PACKAGE / f"{self.name}.py", PACKAGE / self.name):
            if path.exists():
                return path
        raise SystemExit(f"{self.name}: neither a module nor a package of gaudi_launch")

    @property
    def tests(self) -> list[Path]:
        """Return the test file of a module or the folder of a package, if any."""
        path = TESTS / self.name
        if self.path.is_file():
            path = path.with_name(f"test_{path.name}.py")
        return [path] if path.exists() else []


def main() -> int:
    """Read the options, run, print and record.

    Return 1 if the score is below `--at-least`.
    """
    reader = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    reader.add_argument("target", nargs="*", type=Target, metavar="MODULE")
    reader.add_argument("--lines", type=Path, metavar="FILE", help="draw on these lines")
    reader.add_argument("--draw", type=int, metavar="N", help="draw N mutants of all targets")
    reader.add_argument("--seed", type=int, default=24)
    reader.add_argument("--tests", nargs="+", default=[], metavar="PATH[::FUNCTION]")
    reader.add_argument("--last", type=Path, metavar="FILE", help="functions that run last")
    reader.add_argument("-k", dest="only", default="", metavar="EXPRESSION", help="as pytest's")
    reader.add_argument(
        "--seconds", type=float, default=20.0, help="processor time of one mutant's tests"
    )
    reader.add_argument("--at-least", type=float, default=0.0, metavar="PERCENT")
    reader.add_argument("--json", type=Path, metavar="FILE")
    reader.add_argument("--no-sandbox", action="store_true")
    options = reader.parse_args()
    options.tests = [str(TOP / each) for each in options.tests]
    if bool(options.target) == (options.lines is not None):
        reader.error("give MODULE, or --lines FILE")
    name = "+".join(each.name.replace("/", ".") for each in options.target) or options.lines.stem
    results: Path = (options.json or RESULTS / f"{name}.json").resolve()
    if results.is_relative_to(TOP):
        raise SystemExit(f"{results}: results are stored outside of the project")
    if not options.no_sandbox and _INSIDE not in os.environ:
        return _in_namespaces(results)
    if _INSIDE in os.environ:
        _only_read()
    mutants = drawn([mutant for each in options.target for mutant in all_of(each)], options)
    if options.lines is not None:
        mutants = drawn_on(options.lines.read_text(encoding="utf-8").split(), options)
    judged, notes = judge(mutants, options)
    score = report(judged)
    document = {
        "targets": [each.name for each in options.target],
        "draw": options.draw,
        "seed": options.seed,
        "score": score,
        "tests": [each.removeprefix(f"{TOP}/") for each in options.tests],
        "notes": notes,
        "mutants": [_row(each) for each in judged],
    }
    _write(document, results)
    return 1 if score < options.at_least else 0


def all_of(target: Target) -> Iterator[Mutant]:
    """Yield the mutants of each module of a target."""
    for path in modules_of(target.path):
        yield from mutants_of(path)


def drawn(mutants: Sequence[Mutant], options: argparse.Namespace) -> list[Mutant]:
    """Return the mutants that compile, in the order of the code: all, or a draw."""
    if options.draw is None:
        return [mutant for mutant in mutants if mutant.differs]
    order = list(range(len(mutants)))
    random.Random(options.seed).shuffle(order)
    chosen: list[int] = []
    for number in order:
        if len(chosen) == options.draw:
            break
        if mutants[number].differs:
            chosen.append(number)
    return [mutants[number] for number in sorted(chosen)]


def drawn_on(places: Sequence[str], options: argparse.Namespace) -> list[Mutant]:
    """Return at most `--draw` mutants on lines of the package, one a line."""
    chance = random.Random(options.seed)
    of_file: dict[str, list[Mutant]] = {}
    chosen: list[Mutant] = []
    for place in chance.sample(sorted(places), len(places)):
        if len(chosen) == options.draw:
            break
        name, _, line = place.partition(":")
        if name not in of_file:
            of_file[name] = [*mutants_of(TOP / name)]
        here = [each for each in of_file[name] if each.start[0] == int(line) and each.differs]
        if here:
            chosen.append(chance.choice(here))
    return chosen


def judge(mutants: Sequence[Mutant], options: argparse.Namespace) -> tuple[list[Judged], list[str]]:
    """Return the judged mutants, and the notes about the run."""
    notes: list[str] = []

    def say(text: str) -> None:
        if not text.startswith("\n"):
            notes.append(text)
        print(text, flush=True)

    say(f"{len(mutants)} mutants")
    # a failing example is enough: hypothesis need not look for the smallest
    settings.register_profile(
        "mutation",
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=[HealthCheck.too_slow],
    )
    os.environ["HYPOTHESIS_PROFILE"] = "mutation"
    files = [str(path) for each in options.target for path in each.tests] + options.tests
    # a file that is named runs also when it is slow
    named = [Path(each.partition("::")[0]) for each in files]
    own = frozenset(path for path in named if path.is_file())
    last = options.last.read_text(encoding="utf-8").split() if options.last else ()
    plugin = Judge(mutants, own, options.seconds, say, frozenset(last))
    os.chdir(TOP)
    words = [
        "-qq",
        "-s",
        "--disable-warnings",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "no:logging",
    ]
    status = pytest.main([*words, "-k", options.only, *files], plugins=[plugin])
    if len(plugin.judged) < len(mutants):
        raise SystemExit(f"pytest ended with {status}: not all mutants are judged")
    notes += [f"fails without a mutant: {name}" for name in plugin.failing]
    return plugin.judged, notes


def report(judged: Sequence[Judged]) -> float:
    """Print the counts; return the score in percent."""
    counts = Counter(each.outcome for each in judged)
    noticed = counts["killed"] + counts["timeout"]
    score = 100.0 * noticed / max(1, len(judged))
    words = ", ".join(f"{counts[each]} {each}" for each in sorted(counts))
    print(f"\n{len(judged)} mutants: {words}; {score:.1f} % killed", flush=True)
    return round(score, 1)


def _row(each: Judged) -> dict[str, Any]:
    mutant = each.mutant
    return {
        "path": mutant.path.relative_to(TOP).as_posix(),
        "line": mutant.start[0],
        "operator": mutant.operator,
        "function": mutant.function.name if mutant.function else None,
        "diff": mutant.diff,
        "outcome": each.outcome,
        "by": each.by,
        "tests": each.tests,
        "seconds": each.seconds,
    }


def _write(document: dict[str, Any], results: Path) -> None:
    """Write the results.

    In the sandbox the file was opened before.
    """
    text = json.dumps(document, indent=1) + "\n"
    if _INSIDE in os.environ:
        with os.fdopen(int(os.environ[_INSIDE]), "w", encoding="utf-8") as file:
            file.write(text)
        return
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(text, encoding="utf-8")


def _in_namespaces(results: Path) -> int:
    """Run this program again in separate namespaces; return its exit status."""
    if shutil.which("unshare") is None:
        raise SystemExit("unshare is not found: install util-linux, or add --no-sandbox")
    results.parent.mkdir(parents=True, exist_ok=True)
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--net"]
    if os.geteuid() != 0:
        words += ["--user", "--map-root-user"]
    begun = time.monotonic()
    with results.open("w", encoding="utf-8") as file:
        environment = {**os.environ, _INSIDE: str(file.fileno())}
        command = [*words, sys.executable, *sys.argv]
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        with subprocess.Popen(command, env=environment, pass_fds=[file.fileno()]) as inside:
            try:
                status = inside.wait()
            finally:
                # its first process ignores SIGTERM, as the first of any machine does
                inside.kill()
    print(f"{time.monotonic() - begun:.0f} s, {results}")
    return status


def _only_read() -> None:
    """Make every file system read-only and /tmp empty; give the network its loopback."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        point, kind = before.split()[4], after.split()[0]
        if kind not in _OF_THE_KERNEL:
            command = ["mount", "-o", "remount,ro,bind", point]
            subprocess.run(command, check=False, capture_output=True)
    for point in ("/tmp", "/dev/shm"):
        subprocess.run(["mount", "-t", "tmpfs", "none", point], check=True)
    tempfile.tempdir = None


if __name__ == "__main__":
    sys.exit(main())
