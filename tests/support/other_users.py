"""Users without root, and root, on one simulated machine.

Each uses the installed command. They are accounts of useradd, or (``real`` False) lines in copies
of /etc/passwd and /etc/group that only their own processes see. In their mount namespace a folder
of root that an interpreter is in can be entered; nothing else changes for them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.host.simulated import write_tree
from tests.support.processes import TRIVIAL
from tests.support.serve import write_model
from tests.support.waiting import GENEROUS

_PROGRAMS = ("unshare", "setpriv", "mount", "useradd", "userdel", "groupadd", "groupdel")
_FIRST_ID = 64_200
# what has no access by others, and the interpreter in it: seen through a folder that has
_ENTER = """
if [ -n "$1" ]; then
    mkdir -p "$2" && mount --bind "$1" "$2" && mount --rbind "${2%%/entered/*}/entered/root" /root
fi
if [ -n "$3" ]; then
    mount --bind "$3/passwd" /etc/passwd && mount --bind "$3/group" /etc/group
fi
user="$4"; shift 4
exec setpriv --reuid "$user" --regid "$user" --init-groups "$@"
"""


def missing() -> str:
    """Return why such users cannot be made here; "" when they can."""
    if os.geteuid() != 0:
        return "other users need root"
    absent = [program for program in _PROGRAMS if shutil.which(program) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    tried = subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True)
    return "" if tried.returncode == 0 else "no mount namespaces here"


@dataclass(frozen=True)
class Ended:
    """A command: its exit code and what it printed."""

    code: int
    output: str
    errors: str

    @property
    def shown(self) -> str:
        return " ".join((self.output + self.errors).split())


class OtherUsers:
    """Two users of one group, ``one`` and ``two``, and root."""

    def __init__(self, folder: Path, *, real: bool) -> None:
        self.folder = folder
        self.real = real
        self.group = f"glshare{os.getpid()}"
        self.names = {name: f"gl{name}{os.getpid()}" for name in ("one", "two")}
        self.machine = folder / "machine"
        self.model = folder / "models" / "Small"
        self.python = folder / "engine-python"

    def make(self) -> None:
        """Make the machine, a model, an engine and the users."""
        self.folder.chmod(0o755)
        write_tree("hls2", self.machine)
        for path in ("run/lock", "tmp"):
            (self.machine / path).mkdir(parents=True, exist_ok=True)
            (self.machine / path).chmod(0o1777)
        write_model(self.model)
        self.python.write_text(f'#!/bin/sh\nexec {sys.executable} {TRIVIAL} "$@"\n')
        self.python.chmod(0o755)
        if self.real:
            subprocess.run(["groupadd", self.group], check=True)
            for name in self.names.values():
                words = ["useradd", "--create-home", "--user-group", "--groups", self.group, name]
                subprocess.run(words, check=True)
        else:
            self._write_accounts()

    def _write_accounts(self) -> None:
        accounts = self.folder / "accounts"
        accounts.mkdir()
        users = Path("/etc/passwd").read_text()
        groups = Path("/etc/group").read_text()
        for number, name in enumerate(self.names.values(), start=_FIRST_ID):
            home = self.folder / "home" / name
            home.mkdir(parents=True)
            os.chown(home, number, number)
            users += f"{name}:x:{number}:{number}::{home}:/bin/sh\n"
            groups += f"{name}:x:{number}:\n"
        groups += f"{self.group}:x:{_FIRST_ID + 10}:{','.join(self.names.values())}\n"
        (accounts / "passwd").write_text(users)
        (accounts / "group").write_text(groups)

    def group_id(self) -> int:
        """Return the number of the group of both users."""
        if not self.real:
            return _FIRST_ID + 10
        import grp

        return grp.getgrnam(self.group).gr_gid

    def home(self, who: str) -> Path:
        """Return the home of ``one`` or ``two``, and of "root" one for these tests."""
        if who == "root":
            return self.folder / "root-home"
        if self.real:
            return Path("/home") / self.names[who]
        return self.folder / "home" / self.names[who]

    def call(self, who: str, *words: str, umask: int = 0o022, **variables: str) -> Ended:
        """Run the launcher as this user ("one", "two", "root")."""
        return self.run(who, [sys.executable, "-m", "gaudi_launch", *words], umask, variables)

    def run(self, who: str, argv: Sequence[str], umask: int, variables: Mapping[str, str]) -> Ended:
        """Run a command as this user and return its end."""
        enter = () if who == "root" else self._enter(who)
        done = subprocess.run(
            [*enter, *argv],
            env={**self._environment(who), **variables},
            cwd="/",
            umask=umask,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GENEROUS,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def _enter(self, who: str) -> list[str]:
        """Return the arguments before a command of a user."""
        prefix = Path(sys.base_prefix)
        inside = prefix.is_relative_to("/root")
        there = self.folder / "entered" / "root" / prefix.relative_to("/root") if inside else ""
        accounts = "" if self.real else str(self.folder / "accounts")
        return [
            *("unshare", "-m", "--propagation", "private", "sh", "-ec", _ENTER, "-"),
            *(str(prefix) if inside else "", str(there), accounts, self.names[who]),
        ]

    def _environment(self, who: str) -> dict[str, str]:
        name = "root" if who == "root" else self.names[who]
        return {
            "HOME": str(self.home(who)),
            "USER": name,
            "LOGNAME": name,
            "LC_ALL": "C.UTF-8",
            "GAUDI_LAUNCH_LANG": "en",
            "GAUDI_LAUNCH_ROOT": str(self.machine),
            "PATH": f"{self.machine / 'bin'}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        }

    def detach(self, who: str, name: str, port: int, *words: str, umask: int = 0o022) -> Ended:
        """Start a service with two cards."""
        return self.call(
            who,
            *("serve", "-w", str(self.model), "-n", "2", "-p", str(port), "--name", name),
            *("--no-doctor", "--python", str(self.python), "--detach", *words),
            umask=umask,
        )

    def processes(self) -> list[str]:
        """Return the processes of both users, and of services of this folder."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                owner = entry.stat().st_uid
            except (OSError, UnicodeDecodeError):
                continue
            if command and (owner in self._ids() or str(self.folder) in command):
                found.append(f"{entry.name} ({owner}): {command[:150]}")
        return found

    def _ids(self) -> set[int]:
        if not self.real:
            return {_FIRST_ID, _FIRST_ID + 1}
        import pwd

        return {pwd.getpwnam(name).pw_uid for name in self.names.values()}

    def end_all(self) -> None:
        """Stop services that still run."""
        for who in ("root", *self.names):
            self.call(who, "stop", "--all", "--drain", "0")
        for entry in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(entry.split()[0]), signal.SIGKILL)

    def clear(self) -> None:
        """End everything, and remove the accounts with their files."""
        self.end_all()
        if self.real:
            for name in self.names.values():
                subprocess.run(["userdel", "--remove", name], check=False, capture_output=True)
            subprocess.run(["groupdel", self.group], check=False, capture_output=True)

    def left(self) -> list[str]:
        """Return the accounts and homes that remain after `clear`."""
        names = (*self.names.values(), self.group)
        known = Path("/etc/passwd").read_text() + Path("/etc/group").read_text()
        found = [name for name in names if name in known]
        return found + [str(path) for name in names for path in Path("/home").glob(name)]
