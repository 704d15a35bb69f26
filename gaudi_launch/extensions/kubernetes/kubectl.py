"""Run kubectl with argument lists, and classify its failures.

It is the only source of facts about a cluster.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import text
from gaudi_launch.core.base.reader import parse_json

PROGRAM = "kubectl"
_SECONDS = 60.0
_IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
# messages of kubectl 1.20 to 1.32 and their meanings; the first match counts
_NO_KIND = re.compile(r"the server doesn't have a resource type|no matches for kind", re.IGNORECASE)
_MEANINGS = (
    (r"context .* does not exist|no context exists|context was not found", "kube.context"),
    (r"error loading config file", "kube.bad_file"),
    (
        r"localhost:8080|no configuration has been provided|invalid configuration",
        "kube.no_config",
    ),
    (
        r"unauthorized|must be logged in|forbidden|certificate|executable .* not found"
        r"|getting credentials",
        "kube.forbidden",
    ),
    (
        r"unable to connect|connection refused|i/o timeout|no such host|was refused|handshake"
        r"|deadline exceeded|context canceled",
        "kube.unreachable",
    ),
)
# of the others: FAILED
_CODES = {
    "kube.context": ExitCode.USAGE,
    "kube.bad_file": ExitCode.USAGE,
    "kube.no_config": ExitCode.MACHINE,
}


@dataclass(frozen=True)
class Kubectl:
    """The program with the options that choose a cluster.

    Empty texts leave the choice to its configuration.
    """

    namespace: str = text(
        "-N", "--namespace", metavar="NAME", help="Namespace (default: that of kubectl)."
    )
    kubeconfig: str = text("--kubeconfig", metavar="FILE", help="kubectl's configuration.")
    context: str = text("--context", metavar="NAME", help="Context in that configuration.")
    program: str = PROGRAM
    seconds: float = _SECONDS

    def words(self, *words: str) -> list[str]:
        """Return the complete command for these arguments."""
        chosen = {
            "--kubeconfig": self.kubeconfig,
            "--context": self.context,
            "--namespace": self.namespace,
        }
        options = [f"{name}={value}" for name, value in chosen.items() if value]
        return [self.program, *options, *words]

    def document(self, *words: str) -> dict[str, Any] | None:
        """Return the JSON answer of a command.

        Return None where the cluster does not know the requested kind.

        Raises LaunchError: no cluster is configured (MACHINE), it cannot be reached or refuses
        (FAILED).
        """
        command = self.words(*words, "-o", "json", f"--request-timeout={self.seconds:.0f}s")
        try:
            with _found():
                done = interrupt.run(command, seconds=self.seconds + 5)
        except subprocess.TimeoutExpired:
            raise LaunchError(
                "kube.unreachable", ExitCode.FAILED, why=f"{self.seconds:.0f} s"
            ) from None
        if done.returncode:
            said = _words_of(done.stderr, done.returncode)
            if _NO_KIND.search(said):
                return None
            raise failure(said)
        try:
            found = parse_json(done.stdout)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise LaunchError("kube.answer", ExitCode.FAILED, command=" ".join(words))
        return found

    def show(self, *words: str) -> None:
        """Run a command with its output on ours, for as long as it takes.

        Raises LaunchError (FAILED).
        """
        with _found():
            done = interrupt.run(self.words(*words), streams=interrupt.Streams(output=None))
        # a reader that closed the pipe (| head) is not a failure
        ended_well = done.returncode in (0, -signal.SIGPIPE)
        if not ended_well and "broken pipe" not in done.stderr:
            raise failure(_words_of(done.stderr, done.returncode))


@contextmanager
def _found() -> Iterator[None]:
    """Raise LaunchError (MACHINE) where the program cannot be run."""
    try:
        yield
    except OSError as error:
        why = error.strerror or ""
        raise LaunchError("kube.no_kubectl", ExitCode.MACHINE, why=why) from None


def _words_of(said: str, code: int) -> str:
    """Return the message of kubectl, or how it ended without one (killed, say)."""
    return said.strip() or f"exit status {code}"


def failure(said: str) -> LaunchError:
    """Return the meaning of kubectl's message for a user."""
    last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "-")
    for pattern, id in _MEANINGS:
        if re.search(pattern, said, re.IGNORECASE):
            return LaunchError(id, _CODES.get(id, ExitCode.FAILED), why=last)
    return LaunchError("kube.failed", ExitCode.FAILED, why=last)


def find(chosen: Kubectl) -> Kubectl:
    """Return kubectl for a cluster, with the program's path.

    Raises LaunchError: there is no kubectl, or no cluster is selected (MACHINE), a kubeconfig that
    does not exist (USAGE).
    """
    program = shutil.which(PROGRAM)
    if program is None:
        raise LaunchError("kube.no_kubectl", ExitCode.MACHINE, why="PATH")
    if chosen.kubeconfig and not Path(chosen.kubeconfig).is_file():
        raise LaunchError("kube.no_file", ExitCode.USAGE, path=chosen.kubeconfig)
    if not chosen.kubeconfig and not _configured():
        raise LaunchError("kube.no_config", ExitCode.MACHINE, why="KUBECONFIG, ~/.kube/config")
    return replace(chosen, program=program)


def _configured() -> bool:
    named = os.environ.get("KUBECONFIG", "")
    files: Sequence[Path] = [Path(word) for word in named.split(os.pathsep) if word]
    files = files or [Path.home() / ".kube" / "config", _IN_CLUSTER]
    try:
        return any(file.is_file() for file in files)
    except OSError:
        return False
