"""End real commands with children at random moments, by four kinds of signal.

Use: `python scripts/acceptance/interrupts.py 200 [AT_ONCE [CASE]]`.

Each command finds a stand-in for the program that it starts (python3, ssh, kubectl, hl-smi, rsync),
which never ends and has a child. It is ended by SIGINT half of the times, else by SIGTERM, SIGHUP
or SIGKILL. Each time the exit status must be that of the signal, nothing may live on and no
temporary file may stay. Prints one JSON object; the exit status is 0 when all was so.
"""

from __future__ import annotations

import json
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

# around the fork, and well into the wait for the child
_SPREADS_SECONDS = (0.01, 0.05, 0.5)
# ssh and kubectl are given longer than this
_LIMIT_SECONDS = 40.0
_SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGINT, signal.SIGHUP),
    *(signal.SIGINT, signal.SIGKILL),
)
_TOKEN = "GAUDI_LAUNCH_ACCEPTANCE_TOKEN"
_KEY = "0123456789abcdef"
# where the first call ends, the signal also comes around the fork of the second
_ENDLESS = """#!/bin/sh
if [ -n "$FIRST_ENDS" ] && [ ! -e "$HOME/first" ]; then
    touch "$HOME/first"
    exit 1
fi
case "$*" in
    *"$ONLY"*) sleep 600 & sleep 600 ;;
esac
"""


@dataclass(frozen=True)
class Case:
    """A command, and the program that it runs.

    Calls of the program with ``only`` in its arguments never end. One that runs at the user's
    terminal is ended by SIGINT or SIGKILL: it gets a closing terminal's SIGHUP itself.
    """

    words: tuple[str, ...]
    program: str
    only: str = ""
    first_ends: bool = False
    at_terminal: bool = False


CASES = {
    "setup": Case(
        ("setup", "vllm-fork@1.22", "--python", "{home}/bin/python3"), "python3", "-m venv"
    ),
    "cluster-up": Case(
        (
            "cluster",
            "up",
            "-w",
            "Qwen/Qwen3-8B",
            "--hosts",
            "a.invalid,b.invalid",
            "--engine",
            "vllm-gaudi",
        ),
        "ssh",
    ),
    "cluster-status": Case(("cluster", "status", "--name", "demo"), "ssh"),
    "cluster-down": Case(
        ("cluster", "down", "--name", "demo", "--hosts", "a.invalid,b.invalid"), "ssh"
    ),
    "kube-status": Case(("kube", "status"), "kubectl"),
    "kube-logs": Case(("kube", "logs", "demo"), "kubectl"),
    "devices": Case(("devices",), "hl-smi", first_ends=True),
    "doctor": Case(("doctor",), "hl-smi", first_ends=True),
    "plan": Case(("plan", "-w", "Qwen/Qwen3-8B", "-n", "1"), "hl-smi", first_ends=True),
    "cache-sync": Case(
        ("cache", "sync", _KEY, "user@a.invalid", "--run", "--cache", "{home}/recipes"),
        "rsync",
        at_terminal=True,
    ),
}


@dataclass(frozen=True)
class Result:
    """One interrupted command: when it was interrupted, its end, what remained."""

    case: str
    after: float
    signal: int
    status: int
    left: tuple[int | str, ...]
    error: str

    @property
    def good(self) -> bool:
        expected = {130} if self.signal == signal.SIGINT else {130, -self.signal}
        return self.status in expected and not self.left


def interrupt(number: int, folder: Path, name: str, after: float) -> Result:
    """Run the command, end it ``after`` seconds of its first child, and check."""
    case = CASES[name]
    signals = (signal.SIGINT, signal.SIGKILL) if case.at_terminal else _SIGNALS
    sent = signals[number % len(signals)]
    home = folder / str(number)
    _furnish(home, case)
    token = f"{os.getpid()}-{number}"
    environment = {
        **os.environ,
        "GAUDI_LAUNCH_ENGINES_DIR": str(home),
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "XDG_STATE_HOME": str(home / "state"),
        "KUBECONFIG": str(home / "kubeconfig"),
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "ONLY": case.only,
        "FIRST_ENDS": "1" if case.first_ends else "",
        _TOKEN: token,
    }
    arguments = [word.format(home=home) for word in case.words]
    words = [sys.executable, "-m", "gaudi_launch", "--debug", *arguments]
    with subprocess.Popen(
        words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as command:
        assert command.stderr is not None
        said = ""
        # the debug log has a program's arguments before it is started
        while not (
            "run [" in said and case.program in said and case.only in said.replace("', '", " ")
        ):
            said = command.stderr.readline()
            if not said:
                break
        time.sleep(after)
        command.send_signal(sent)
        try:
            _, error = command.communicate(timeout=_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            command.kill()
            error = "it continued"
    left = _living(token)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    kept = tuple(str(each) for each in (home / "tmp").iterdir())
    return Result(name, after, sent, command.returncode, (*left, *kept), error[-500:])


def _furnish(home: Path, case: Case) -> None:
    """Write the stand-in, a kubeconfig, a key of recipes and the state of a cluster."""
    from gaudi_launch.core.hosts.inventory import Member
    from gaudi_launch.extensions.cluster.state import Part, Place, RunningCluster, remember

    (home / "tmp").mkdir(parents=True)
    program = home / "bin" / case.program
    program.parent.mkdir(parents=True)
    program.write_text(_ENDLESS, encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (home / "kubeconfig").write_text("{}", encoding="utf-8")
    recipes = home / "recipes" / _KEY
    recipes.mkdir(parents=True)
    (recipes / "graph.recipe").write_bytes(b"x")
    known = home / "state" / "gaudi-launch" / "clusters" / "demo"
    known.mkdir(parents=True)
    places = tuple(Place(Member(name, name), "127.0.0.1") for name in ("a.invalid", "b.invalid"))
    remember(known, RunningCluster("demo", False, 8850, 8, (Part(places, "http://127.0.0.1:1"),)))


def _living(token: str) -> tuple[int, ...]:
    """Return the processes that carry a token in their environment.

    Those on their way out get a moment.
    """
    word = f"{_TOKEN}={token}".encode()
    found: tuple[int, ...] = ()
    for _ in range(20):
        found = tuple(pid for pid in _pids() if word in _environment(pid))
        if not found:
            break
        time.sleep(0.1)
    return found


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def main() -> int:
    moments = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    at_once = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    # a shell's background jobs ignore it, and what they start would, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chance = random.Random()
    cases = sys.argv[3:] or list(CASES)
    draws = [
        chance.uniform(0.0, _SPREADS_SECONDS[n % len(_SPREADS_SECONDS)]) for n in range(moments)
    ]

    def one(number: int) -> Result:
        return interrupt(number, Path(place), cases[number % len(cases)], draws[number])

    with (
        tempfile.TemporaryDirectory(prefix="gaudi-launch-interrupts-") as place,
        ThreadPoolExecutor(at_once) as pool,
    ):
        results = list(pool.map(one, range(moments)))
    bad = [vars(result) for result in results if not result.good]
    print(json.dumps({"moments": moments, "bad": bad}, indent=1))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
