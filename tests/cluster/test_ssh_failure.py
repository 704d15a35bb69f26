"""What OpenSSH 9.2 printed to two real servers, as a sentence with a command to copy."""

from __future__ import annotations

import pytest

from gaudi_launch.cluster.inventory import Member
from gaudi_launch.cluster.ssh_failure import no_connection
from gaudi_launch.messages import set_language

CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Offending ED25519 key in /home/me/.ssh/known_hosts:2
Host key for 10.0.0.2 has changed and you have requested strict checking.
Host key verification failed.
"""
CLOSED = """\
kex_exchange_identification: Connection closed by remote host
Connection closed by UNKNOWN port 65535
"""
DENIED = "root@10.0.0.1: Permission denied (publickey,password).\n"


@pytest.mark.parametrize(
    ("errors", "id", "values"),
    [
        (CHANGED, "cluster.key_changed", {"known": "10.0.0.2"}),
        (f"{CHANGED}{CLOSED}", "cluster.key_changed", {"known": "10.0.0.2"}),
        ("Host key verification failed.\n", "cluster.key_unknown", {}),
        (f"Host key verification failed.\n{CLOSED}", "cluster.key_unknown", {}),
        (DENIED, "cluster.no_login", {"why": DENIED.strip().rstrip(".")}),
        (
            f"Permission denied, please try again.\n{DENIED}{CLOSED}",
            "cluster.no_login",
            {"why": DENIED.strip().rstrip(".")},
        ),
        (
            f"ssh: connect to host 10.0.0.1 port 22: Connection refused\n{CLOSED}",
            "cluster.unreachable",
            {"why": "ssh: connect to host 10.0.0.1 port 22: Connection refused"},
        ),
        (
            "Connection timed out during banner exchange\n"
            "Connection to UNKNOWN port 65535 timed out\n",
            "cluster.unreachable",
            {"why": "Connection timed out during banner exchange"},
        ),
        (
            "Timeout, server 10.0.0.2 not responding.\n",
            "cluster.unreachable",
            {"why": "Timeout, server 10.0.0.2 not responding"},
        ),
        (CLOSED, "cluster.unreachable", {"why": "Connection closed by UNKNOWN port 65535"}),
        ("", "cluster.unreachable", {"why": "-"}),
    ],
)
def test_the_cause_is_named(errors: str, id: str, values: dict[str, str]) -> None:
    found = no_connection(Member("host-b", "me@b"), errors)
    assert (found.id, dict(found.values)) == (id, {"host": "host-b", "ssh": "me@b", **values})


def test_the_sentence_ends_with_what_to_do() -> None:
    set_language("en")
    lines = [
        no_connection(Member("b", "me@b"), errors).render()
        for errors in (CHANGED, "Host key verification failed.", DENIED, "Connection refused")
    ]
    set_language(None)
    assert [line.rpartition(": ")[2] for line in lines] == [
        "ssh-keygen -R 10.0.0.2",
        "ssh me@b",
        "ssh-copy-id me@b",
        "ssh -o BatchMode=yes me@b true",
    ]
