"""The lock files that reserve cards and ports, read without taking them."""

from __future__ import annotations

import json
import os
import pwd

import pytest

from gaudi_launch.core.base.locks import user_name
from gaudi_launch.core.host.card_locks import read_service


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


def test_a_user_is_named_or_numbered() -> None:
    assert user_name() == pwd.getpwuid(os.getuid()).pw_name
    assert user_name(0) == "root"
    assert user_name(3_999_999_999) == "3999999999"
