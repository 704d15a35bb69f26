"""The keys file of a gateway, and what is refused in it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.extensions.stack.gateway.gateway_settings import (
    GatewaySettings,
    RequestLimits,
    Tls,
)
from gaudi_launch.extensions.stack.gateway.keys_file import check_access, users
from gaudi_launch.extensions.stack.gateway.runtime.gateway_process import users_of
from tests.support.gateways import KEYS, certificate_in, keys_file
from tests.support.places import DATA


def refusal(settings: GatewaySettings) -> tuple[str, dict[str, object]]:
    with pytest.raises(LaunchError) as raised:
        check_access(settings)
    assert raised.value.exit_code is ExitCode.USAGE
    return raised.value.id, dict(raised.value.text.values)


def test_users_are_read_and_keys_are_not_kept(tmp_path: Path) -> None:
    assert users(keys_file(tmp_path)) == ("alice", "bob")


def test_a_user_may_have_several_keys(tmp_path: Path) -> None:
    assert users(keys_file(tmp_path, "alice k1\nbob k2\nalice k3\n")) == ("alice", "bob")


@pytest.mark.parametrize(
    ("content", "id", "values"),
    [
        ("alice sk-1\nbob\n", "gateway.keys_line", {"line": 2}),
        ("# users\n\nalice sk-1 60\n", "gateway.keys_line", {"line": 3}),
        ("al:ice sk-1\n", "gateway.keys_line", {"line": 1}),
        (f"{'a' * 65} sk-1\n", "gateway.keys_line", {"line": 1}),
        ("alice sk-1\n\nbob sk-1\n", "gateway.keys_twice", {"line": 3, "first": 1}),
        ("# nobody\n", "gateway.keys_none", {}),
        ("", "gateway.keys_none", {}),
    ],
)
def test_a_wrong_line_is_named(
    tmp_path: Path, content: str, id: str, values: dict[str, object]
) -> None:
    path = keys_file(tmp_path, content)
    assert refusal(GatewaySettings(keys_file=path)) == (id, {"path": str(path), **values})


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = keys_file(tmp_path)
    path.chmod(0o640)
    assert refusal(GatewaySettings(keys_file=path)) == (
        "gateway.keys_open",
        {"path": str(path), "mode": "0640"},
    )


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    none = tmp_path / "none"
    assert refusal(GatewaySettings(keys_file=none)) == (
        "gateway.keys_unreadable",
        {"path": str(none), "why": "No such file or directory"},
    )
    path = keys_file(tmp_path)
    path.write_bytes(b"alice \xff\xfe\n")
    id, values = refusal(GatewaySettings(keys_file=path))
    assert (id, values["path"]) == ("gateway.keys_unreadable", str(path))
    assert "can't decode byte 0xff" in str(values["why"])
    assert refusal(GatewaySettings(keys_file=tmp_path))[0] in (
        "gateway.keys_unreadable",
        "gateway.keys_open",
    )


def test_limits_of_a_user_without_a_key_are_refused(tmp_path: Path) -> None:
    own = {"carol": RequestLimits(1)}
    settings = GatewaySettings(keys_file=keys_file(tmp_path), user_limits=own)
    assert refusal(settings) == ("gateway.unknown_user", {"user": "carol", "known": "alice, bob"})
    without = GatewaySettings(user_limits=own)
    assert refusal(without) == ("gateway.unknown_user", {"user": "carol", "known": "-"})


def test_a_certificate_needs_its_own_unencrypted_key(tmp_path: Path) -> None:
    mine, other = certificate_in(tmp_path / "mine"), certificate_in(tmp_path / "other")
    check_access(GatewaySettings(tls=mine))

    def why(certificate: Path, key: Path) -> str:
        id, values = refusal(GatewaySettings(tls=Tls(certificate, key)))
        found = str(values.pop("why"))
        assert (id, values) == ("gateway.tls_unusable", {"path": str(certificate), "key": str(key)})
        return found

    assert "KEY_VALUES_MISMATCH" in why(mine.certificate, other.key)
    assert str(tmp_path / "none") in why(mine.certificate, tmp_path / "none")
    assert why(mine.key, mine.key)
    assert why(mine.certificate, mine.certificate)
    mine.key.write_bytes((DATA / "expired.pem").read_bytes())
    assert "certificate has expired" in why(mine.key, mine.key)
    words = ("openssl", "rsa", "-aes128", "-passout", "pass:x", "-in", str(other.key))
    subprocess.run([*words, "-out", str(other.key)], check=True, capture_output=True)
    assert why(other.certificate, other.key)
    mine.key.chmod(0o644)
    assert why(mine.certificate, mine.key) == f"{mine.key}: -rw-r--r--"


@pytest.mark.parametrize("content", [KEYS, "a k\n", "alice k1\nalice k2\n", "# x\n\n"])
def test_the_process_reads_the_same_users(tmp_path: Path, content: str) -> None:
    found = {line.split()[1] for line in users_of(content)}
    try:
        assert set(users(keys_file(tmp_path, content))) == found
    except LaunchError as error:
        assert (error.id, found) == ("gateway.keys_none", set())


@pytest.mark.parametrize("content", ["alice\n", "a b c\n", "al:ice k\n"])
def test_the_process_refuses_the_same_lines(tmp_path: Path, content: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        users_of(content)
    assert (
        refusal(GatewaySettings(keys_file=keys_file(tmp_path, content)))[0] == "gateway.keys_line"
    )
