"""The lock files that reserve cards and ports, read without taking them."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from gaudi_launch import locks
from gaudi_launch.host.card_locks import (
    lock_folders,
    lock_name,
    port_lock_name,
    read_holder,
    read_reserved,
    read_service,
    read_services,
    user_name,
)
from gaudi_launch.host.hardware import Holder


@contextmanager
def locked(path: Path, content: object) -> Iterator[None]:
    """Lock a file with this content as a launch does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    handle = os.open(path, os.O_RDWR)
    try:
        assert locks.try_ofd(handle)
        yield
    finally:
        os.close(handle)


def test_only_locked_files_reserve_a_card(tmp_path: Path) -> None:
    run, tmp = lock_folders(tmp_path)
    assert (run, tmp) == (tmp_path / "run/lock/gaudi-launch", tmp_path / "tmp/gaudi-launch-locks")
    assert read_reserved(tmp_path) == {}
    with ExitStack() as all_locks:
        for path, content in (
            (run / lock_name(0), {"pid": 7, "command": "serve", "user": "ana"}),
            (run / lock_name(12), ["no launch"]),
            (run / "module-x.lock", {"pid": 8}),
            (run / "module-3.lock.old", {"pid": 8}),
            (run / port_lock_name("0.0.0.0", 8000), {"pid": 8, "service": "qwen"}),
            # the folder of a machine without the first one names the launch that has no entry there
            (tmp / lock_name(12), {"pid": 9}),
            (tmp / lock_name(0), {"pid": 10}),
        ):
            all_locks.enter_context(locked(path, content))
        (run / lock_name(1)).write_text('{"pid": 11}')
        assert read_reserved(tmp_path) == {0: Holder(7, "serve", "ana"), 12: Holder(9)}
        assert read_services(tmp_path) == {"qwen": Holder(8)}
    assert (read_reserved(tmp_path), read_services(tmp_path)) == ({}, {})


def test_the_first_launcher_of_a_service_is_named(tmp_path: Path) -> None:
    run, tmp = lock_folders(tmp_path)
    first = {"pid": 1, "service": "a", "user": "ana"}
    with (
        locked(run / port_lock_name("h", 1), first),
        locked(tmp / port_lock_name("h", 1), {"pid": 2, "service": "a"}),
        locked(tmp / port_lock_name("h", 2), {"service": "b"}),
    ):
        assert read_services(tmp_path) == {"a": Holder(1, "", "ana")}


@pytest.mark.parametrize(
    ("text", "holder"),
    [
        ('{"pid": 7}', Holder(7)),
        ('{"pid": 7, "command": "a\\u001bb\\u7684", "user": 3}', Holder(7, "a?b?", "")),
        (
            json.dumps({"pid": 7, "command": "c" * 201, "user": "u" * 65}),
            Holder(7, "c" * 200, "u" * 64),
        ),
        ('{"pid": true}', None),
        ('{"pid": "7"}', None),
        ('{"command": "x"}', None),
        ("[7]", None),
        ("7", None),
        ("", None),
        ("[" * 100_000, None),
    ],
)
def test_the_launch_that_a_lock_file_names(text: str, holder: Holder | None) -> None:
    assert read_holder(text) == holder


@pytest.mark.parametrize(
    ("text", "service"),
    [
        ('{"service": "qwen"}', "qwen"),
        (json.dumps({"service": "s" * 65}), "s" * 64),
        ('{"service": "a\\nb"}', "a?b"),
        ('{"service": 3}', ""),
        ("{}", ""),
        ("[]", ""),
        ("{", ""),
    ],
)
def test_the_service_that_a_lock_file_names(text: str, service: str) -> None:
    assert read_service(text) == service


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost", "port-80-127.0.0.1.lock"),
        ("0.0.0.0", "port-80-127.0.0.1.lock"),
        ("::", "port-80-127.0.0.1.lock"),
        ("::1", "port-80-::1.lock"),
        ("a-B.9/../x y", "port-80-a-B.9_.._x_y.lock"),
        ("h" * 101, f"port-80-{'h' * 100}.lock"),
    ],
)
def test_a_port_has_one_lock_for_each_address_that_clients_use(host: str, name: str) -> None:
    assert port_lock_name(host, 80) == name


def test_a_user_is_named_or_numbered() -> None:
    assert user_name() == pwd.getpwuid(os.getuid()).pw_name
    assert user_name(0) == "root"
    assert user_name(3_999_999_999) == "3999999999"
