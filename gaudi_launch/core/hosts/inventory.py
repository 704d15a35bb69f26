"""The hosts of ``--hosts h1,h2`` or a file, checked before they are queried."""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.reader import BadDocument
from gaudi_launch.core.base.yaml_reader import parse_yaml

LOCAL = "local"
"""The name of this machine, which needs no ssh."""

LAUNCHER = ("gaudi-launch",)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
# never a leading "-" (ssh would read an option) and nothing that a shell or ssh's own % and ${}
# would touch
_TARGET = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9_][A-Za-z0-9._:-]*", re.ASCII)
_INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,14}", re.ASCII)
# "a=simulated:hls2+busy=0,1", and with more variants after the last number
_MODULES = re.compile(r"[^=]*=simulated:.*=[0-9,]+,[0-9]+(\+[^,]*)?", re.ASCII)
_MOST_BYTES = 1 << 20
_MOST_HOSTS = 1024
_FIELDS = {"name", "ssh", "address", "interface", "snapshot", "python", "enter", "launcher"}


@dataclass(frozen=True)
class Member:
    """One host.

    ``ssh`` is what ssh connects to; ``address`` is its address for the others (None: from its
    snapshot); ``python`` the engine's interpreter there; ``enter`` the command that enters its
    container (docker exec -i NAME); ``launcher`` the command of gaudi-launch there.
    """

    name: str
    ssh: str
    address: str | None = None
    interface: str | None = None
    snapshot: str | None = None
    python: str = "python3"
    enter: tuple[str, ...] = ()
    launcher: tuple[str, ...] = LAUNCHER

    @property
    def local(self) -> bool:
        return self.ssh == LOCAL

    @property
    def target(self) -> str:
        """Return what ssh connects to, without the user."""
        return self.ssh.rpartition("@")[2]


def parse_hosts(text: str, python: str | None = None, enter: str = "") -> tuple[Member, ...]:
    """Return the hosts of ``h1,user@h2``.

    ``=SNAPSHOT`` after a host names the file of its facts, or a simulated machine, whose modules
    have commas, too. Raises LaunchError (USAGE).
    """
    rows = []
    for word in _host_words(text):
        target, equals, snapshot = word.partition("=")
        row = {"ssh": target, **_common(python, enter)}
        if equals:
            row["snapshot"] = snapshot
        rows.append(row)
    return _members(rows, "--hosts")


def _common(python: str | None, enter: str) -> dict[str, str]:
    """Return the fields of every host that options of the command give."""
    given = {"python": python, "enter": enter}
    return {name: value for name, value in given.items() if value}


def _host_words(text: str) -> list[str]:
    """Return the hosts between commas; ``simulated:hls2+busy=0,1`` is one of them."""
    first, *others = text.split(",")
    found = [first.strip()]
    for word in others:
        joined = f"{found[-1]},{word}"
        if _MODULES.fullmatch(joined):
            found[-1] = joined
        else:
            found.append(word.strip())
    return found


def read_inventory(path: Path, python: str | None = None, enter: str = "") -> tuple[Member, ...]:
    """Return the hosts of a YAML or JSON file.

    Snapshots are relative to its folder. Raises LaunchError (USAGE).
    """
    try:
        with path.open("rb") as file:
            document = parse_yaml(file.read(_MOST_BYTES))
    except OSError as error:
        raise _bad(str(path), error.strerror or str(error)) from None
    except BadDocument as error:
        raise _bad(str(path), str(error)) from None
    return parse_inventory(document, str(path), path.parent, python, enter)


def parse_inventory(
    document: object, where: str, folder: Path, python: str | None = None, enter: str = ""
) -> tuple[Member, ...]:
    """Return the hosts of a document: ``{schema: 1, hosts: [...]}``.

    Each is a name or a mapping.
    """
    found = mapping(document)
    hosts = found.get("hosts")
    if found.get("schema") != 1 or not isinstance(hosts, list):
        raise _bad(where, "{schema: 1, hosts: [...]}")
    unknown = set(found) - {"schema", "hosts"}
    if unknown:
        raise _bad(where, f"{', '.join(sorted(map(str, unknown)))}?")
    common = _common(python, enter)
    return _members([{**common, **_row(each, where, folder)} for each in hosts], where)


def _row(given: object, where: str, folder: Path) -> Mapping[str, Any]:
    """Return the fields of one host. Raises LaunchError (USAGE)."""
    row = given
    if isinstance(given, str):
        row = {"ssh": given}
    if not isinstance(row, dict) or set(row) - _FIELDS:
        raise _bad(where, f"{given!r:.80}: {', '.join(sorted(_FIELDS))}")
    snapshot = row.get("snapshot")
    if isinstance(snapshot, str) and not snapshot.startswith(("simulated:", "/")):
        return {**row, "snapshot": str(folder / snapshot)}
    return row


def _members(rows: Sequence[Mapping[str, Any]], where: str) -> tuple[Member, ...]:
    if not 1 <= len(rows) <= _MOST_HOSTS:
        raise _bad(where, f"{len(rows)} hosts; 1 - {_MOST_HOSTS}")
    members = tuple(_member(row, where) for row in rows)
    # as another user it is still the same host
    for field, read in (("name", "name"), ("ssh", "target"), ("address", "address")):
        values = [getattr(member, read) for member in members if getattr(member, read)]
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise LaunchError("cluster.twice", ExitCode.USAGE, field=field, found=twice[0])
    return members


def _member(row: Mapping[str, Any], where: str) -> Member:
    words = {key: row.get(key) for key in _FIELDS}
    target = _checked(words["ssh"] or words["name"] or "", _TARGET)
    own_name = re.sub(r"[^A-Za-z0-9._-]", "-", target.rpartition("@")[2])
    name = _checked(words["name"] or own_name, _NAME)
    for key in ("address", "interface", "snapshot", "python"):
        if not _is_text(words[key]):
            raise _bad(where, f"{name}: {key}: {words[key]!r:.60}")
    address = None
    if words["address"] is not None:
        address = _address(words["address"])
    if words["interface"] is not None and not _INTERFACE.fullmatch(words["interface"]):
        raise LaunchError("cluster.bad_interface", ExitCode.USAGE, found=words["interface"])
    if str(words["python"] or "").startswith("-"):
        raise _bad(where, f"{name}: python: {words['python']}")
    return Member(
        name=name,
        ssh=target,
        address=address,
        interface=words["interface"],
        snapshot=words["snapshot"],
        python=words["python"] or "python3",
        enter=_words(words["enter"], where),
        launcher=_words(words["launcher"], where) or LAUNCHER,
    )


def _is_text(value: object) -> bool:
    """Return True for a text that is not empty, and for a field that is not given."""
    return value is None or (isinstance(value, str) and value != "")


def _checked(word: Any, pattern: re.Pattern[str]) -> str:
    """Return the name of a host, or how ssh reaches it. Raises LaunchError (USAGE)."""
    if not isinstance(word, str) or not pattern.fullmatch(word):
        raise LaunchError("cluster.bad_host", ExitCode.USAGE, found=str(word)[:80])
    return word


def _words(value: object, where: str) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        try:
            return tuple(shlex.split(value))
        except ValueError as error:
            raise _bad(where, f"{value!r:.60}: {error}") from None
    if isinstance(value, list) and all(isinstance(word, str) and word for word in value):
        return tuple(value)
    raise _bad(where, f"{value!r:.60}")


def _address(text: str) -> str:
    """Return an address in the kernel's spelling.

    fd00:0::1 and fd00::1 are the same host.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise LaunchError("cluster.bad_address", ExitCode.USAGE, found=text) from None
    if address.is_unspecified or address.is_multicast:
        raise LaunchError("cluster.bad_address", ExitCode.USAGE, found=text)
    return str(address)


def _bad(where: str, why: str) -> LaunchError:
    return LaunchError("cluster.bad_inventory", ExitCode.USAGE, path=where, why=why)
