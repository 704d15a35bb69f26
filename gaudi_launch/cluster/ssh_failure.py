"""Name the cause of a connection that ssh could not make, from its errors. Pure.

The texts are OpenSSH's (openssh-portable 9.2: sshconnect.c, sshconnect2.c, packet.c,
kex.c); ssh does not translate them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gaudi_launch.cluster.inventory import Member
from gaudi_launch.messages import Message, message

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
    return message("cluster.unreachable", host=member.name, ssh=member.ssh, why=_reason(lines))


def _reason(lines: Sequence[str]) -> str:
    """Return the line that names the cause; "-" where ssh printed nothing."""
    causes = [line for line in lines if not line.startswith(_CONSEQUENCES)]
    *_, last = ("-", *lines, *causes)
    return _short(last)


def _short(line: str) -> str:
    """Return a line of ssh as a part of a sentence."""
    return line[:_MOST_LETTERS].rstrip(".")
