"""Access to other hosts: argument lists of ssh with time limits, nothing else.

A request is text on standard input; its answer is one marked line of JSON.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.paths import write_whole
from gaudi_launch.core.base.reader import parse_json, standalone
from gaudi_launch.core.engines.detect import Installed, parse, question
from gaudi_launch.core.hosts import agent
from gaudi_launch.core.hosts.differences import FolderFacts, Seen
from gaudi_launch.core.hosts.inventory import LAUNCHER, Member
from gaudi_launch.core.hosts.steps import HostStep, ssh_environment, ssh_words

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
_ANSWER = "gaudi-launch-answer:"
# ssh's exit status when it could not connect
_NO_CONNECTION = 255
_MOST_AT_ONCE = 32
# the agent gives what it began 5 s (agent.py)
_GOODBYE_SECONDS = 8.0


class RemoteError(Exception):
    """A host that cannot be queried, with the reason."""

    def __init__(self, why: Message) -> None:
        super().__init__(why.id)
        self.why = why

    def failure(self) -> LaunchError:
        """Return the same as the error that ends a command (MACHINE)."""
        return LaunchError(self.why.id, ExitCode.MACHINE, **dict(self.why.values))


def ask(member: Member, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Let the agent execute one request on a host; return its answer.

    Raises RemoteError.
    """
    # a JSON text as a Python literal: nothing in it can end the program's line
    program = f"{standalone(agent.__file__)}\nmain({json.dumps(dict(request))!r})\n"
    output, error, code = _run(member, ssh_words(member, [member.python, "-"]), program, seconds)
    marked = (text for text in reversed(output.splitlines()) if text.startswith(agent.MARK))
    try:
        answer = parse_json(next(marked, "").removeprefix(agent.MARK))
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise RemoteError(_trouble(member, code, error or output))
    if "error" in answer:
        raise RemoteError(
            message("cluster.host_failed", host=member.name, why=str(answer["error"])[:300])
        )
    return answer


def words(member: Member, argv: Sequence[str], seconds: float) -> str:
    """Run a command on a host outside its container; return its output.

    Raises RemoteError.
    """
    bare = replace(member, enter=())
    output, error, code = _run(bare, ssh_words(bare, argv), "", seconds)
    if code:
        raise RemoteError(_trouble(member, code, error or output))
    return output


def _run(member: Member, argv: Sequence[str], text: str, seconds: float) -> tuple[str, str, int]:
    env: Mapping[str, str] | None = ssh_environment(os.environ)
    goodbye = 0.0
    if member.local:
        # an agent that runs here, not behind ssh, ends what it began when its output is closed
        env, goodbye = None, _GOODBYE_SECONDS
    try:
        done = interrupt.run(
            argv,
            env=env,
            streams=interrupt.Streams(text_in=text),
            seconds=seconds,
            ending=interrupt.Ending(with_main=True, goodbye_seconds=goodbye),
        )
    except subprocess.TimeoutExpired:
        raise RemoteError(
            message("cluster.host_slow", host=member.name, seconds=f"{seconds:g}")
        ) from None
    except OSError as error:
        why = error.strerror or str(error)
        raise RemoteError(
            message("cluster.no_ssh", host=member.name, program=argv[0], why=why)
        ) from None
    return done.stdout, done.stderr, done.returncode


def _trouble(member: Member, code: int, output: str) -> Message:
    if code == _NO_CONNECTION and not member.local:
        return no_connection(member, output)
    last = (output.strip().splitlines() or ["-"])[-1][:300]
    if last == "-":
        last = f"exit status {code}"
    return message("cluster.host_failed", host=member.name, why=last)


def each(members: Sequence[Member], do: Callable[[Member], _T]) -> list[_T | RemoteError]:
    """Return the results of a function for all hosts, run in parallel.

    A RemoteError takes the place of an answer.
    """

    def one(member: Member) -> _T | RemoteError:
        try:
            return do(member)
        except RemoteError as error:
            return error

    at_once = min(_MOST_AT_ONCE, max(1, len(members)))
    return interrupt.in_threads(one, members, at_once)


def each_or(
    members: Sequence[Member],
    do: Callable[[Member], _T],
    instead: Callable[[Member, RemoteError], _T],
) -> list[_T]:
    """Return the results as `each`, with those of ``instead`` for hosts that failed."""

    def one(member: Member) -> _T:
        try:
            return do(member)
        except RemoteError as error:
            return instead(member, error)

    # no RemoteError is left
    return [answer for answer in each(members, one) if not isinstance(answer, RemoteError)]


def snapshot(member: Member, seconds: float) -> dict[str, Any]:
    """Return the snapshot document of a host. Raises RemoteError."""
    launcher = member.launcher
    if member.local and launcher == LAUNCHER:
        # this program itself, which need not be on the PATH of this machine
        launcher = (sys.executable, "-m", "gaudi_launch")
    output = words(member, [*launcher, "devices", "snapshot", "-"], seconds)
    try:
        document = parse_json(output)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise RemoteError(message("cluster.no_snapshot", host=member.name))
    return document


def look(member: Member, folders: Sequence[str], seconds: float) -> Seen:
    """Return the facts from the engine's interpreter on a host.

    They are versions, clock, folders and tools. Raises RemoteError.
    """
    began = time.time()
    answer = ask(member, {"do": "probe", "folders": list(folders), "question": question()}, seconds)
    ended = time.time()
    try:
        found = {
            path: FolderFacts(int(files), int(size))
            for path, (files, size) in dict(answer["folders"]).items()
        }
        return Seen(
            member,
            installed=_installed(member, str(answer["engine"])),
            python=str(answer["python"]),
            # the host read its clock between these times
            clock=float(answer["time"]) - (began + ended) / 2,
            clock_within=(ended - began) / 2,
            folders=found,
            tools=tuple(str(tool) for tool in answer["tools"]),
        )
    except (KeyError, TypeError, ValueError):
        raise RemoteError(
            message("cluster.host_failed", host=member.name, why="no answer")
        ) from None


def _installed(member: Member, output: str) -> Installed | None:
    line = next((text for text in output.splitlines() if text.startswith(_ANSWER)), None)
    if line is None:
        return None
    try:
        return parse(member.python, line.removeprefix(_ANSWER))
    except LaunchError as error:
        _log.debug("the host's engine is not known: %s", error)
        return None


def begin(
    step: HostStep,
    folder: str,
    secrets: Mapping[str, str],
    settle: float = 2.0,
    lease: float = 0.0,
) -> dict[str, Any]:
    """Start a step in the background.

    ``lease``: the host ends it after this number of seconds without a question of the launcher,
    until the lease is released. 0: never.

    Raises RemoteError when it does not start or ends immediately.
    """
    given = {name: secrets[name] for name in step.secrets if name in secrets}
    request = {
        "do": "start",
        "folder": folder,
        "name": step.name,
        "argv": list(step.argv),
        "env": dict(step.env),
        "files": dict(step.files),
        "secrets": given,
        "settle": settle,
        "lease": lease,
    }
    answer = ask(step.member, request, 60 + settle)
    host = step.member.name
    if "running" in answer:
        raise RemoteError(
            message("cluster.runs_already", host=host, what=step.name, pid=answer["running"])
        )
    if "failed" in answer:
        raise RemoteError(
            message("cluster.not_started", host=host, program=step.argv[0], why=answer["failed"])
        )
    return answer


def do(step: HostStep, seconds: float) -> None:
    """Run a step to its end. Raises RemoteError when it fails."""
    answer = ask(
        step.member, {"do": "run", "argv": list(step.argv), "seconds": seconds}, seconds + 30
    )
    if answer.get("code") != 0:
        last = (str(answer.get("output", "")).strip().splitlines() or ["-"])[-1][:300]
        raise RemoteError(
            message("cluster.step_failed", host=step.member.name, program=step.argv[0], why=last)
        )


def gather(
    members: Sequence[Member],
    folders: Sequence[str],
    keep: Path | None,
    *,
    ask: bool,
    seconds: float = 60.0,
) -> list[tuple[Seen, str | None]]:
    """Return the facts of every host, with the source of its Host.

    The source is a file or a name (None: unknown). ``ask`` False: no host is connected to; hosts
    without a snapshot stay unknown. Snapshots that come over ssh are stored in the folder ``keep``.
    """

    def one(member: Member) -> tuple[Seen, str | None]:
        source = member.snapshot
        seen = Seen(member)
        if ask:
            seen = look(member, folders, 2 * seconds)
            if source is None and keep is not None:
                document = snapshot(member, seconds)
                path = keep / f"{member.name}.json"
                write_whole(path, json.dumps(document))
                source = str(path)
        elif source is None:
            seen = replace(seen, trouble=message("cluster.not_asked", host=member.name))
        return seen, source

    return each_or(
        members, one, lambda member, error: (Seen(member, trouble=error.why), member.snapshot)
    )


_MOST_LETTERS = 300
_KEY_CHANGED = re.compile(r"Host key for (\S+) has changed")
_KEY_FAILED = "Host key verification failed"
_DENIED = "Permission denied ("
# consequences of an error in a line before: of a jump host, of a slow server
_CONSEQUENCES = (
    "kex_exchange_identification:",
    "Connection closed by UNKNOWN",
    "Connection to UNKNOWN",
)


def no_connection(member: Member, errors: str) -> Message:
    """Return why ssh could not connect to a host, and what to do."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    changed = _KEY_CHANGED.search(errors)
    if changed is not None:
        return message(
            "cluster.key_changed", host=member.name, ssh=member.ssh, known=changed[1][:100]
        )
    if any(line.startswith(_KEY_FAILED) for line in lines):
        return message("cluster.key_unknown", host=member.name, ssh=member.ssh)
    denied = [line for line in lines if _DENIED in line]
    if denied:
        return message("cluster.no_login", host=member.name, ssh=member.ssh, why=_short(denied[-1]))
    # the line that names the cause; "-" where ssh printed nothing
    causes = [line for line in lines if not line.startswith(_CONSEQUENCES)]
    *_, last = ("-", *lines, *causes)
    return message("cluster.unreachable", host=member.name, ssh=member.ssh, why=_short(last))


def _short(line: str) -> str:
    """Return a line of ssh as a part of a sentence."""
    return line[:_MOST_LETTERS].rstrip(".")
