"""What a gateway accepts as models, replicas and addresses."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.extensions.stack.gateway.gateway_settings import (
    Backend,
    GatewaySettings,
    RequestLimits,
    Tls,
    check_backends,
)
from tests.support.places import TOP
from tests.support.records import known
from tests.support.refusals import failing

ONE = {"http://127.0.0.1:9201": ""}


@pytest.mark.parametrize(
    ("backends", "id", "values"),
    [
        ([], "no_models", {}),
        ([Backend("two words", ONE)], "bad_model", {"found": "two words"}),
        ([Backend("模型", ONE)], "bad_model", {"found": "模型"}),
        ([Backend("a\nb", ONE)], "bad_model", {"found": "a\nb"}),
        ([Backend("a", ONE), Backend("b", ONE, aliases=("a",))], "twice", {"name": "a"}),
        ([Backend("a", {})], "no_replica", {"model": "a"}),
        *(
            ([Backend("a", {**ONE, url: ""})], "bad_replica", {"model": "a", "found": url})
            for url in (
                "127.0.0.1:9201",
                "http://127.0.0.1:9201/v1",
                "http://127.0.0.1:1 check",
                "https://127.0.0.1:1",
                "http://127.0.0.1:123456",
            )
        ),
    ],
)
def test_what_cannot_be_routed_to_is_refused(
    backends: list[Backend], id: str, values: dict[str, str]
) -> None:
    with failing(f"gateway.{id}", ExitCode.USAGE) as raised:
        check_backends(backends)
    assert raised.value.text.values == values


def test_the_defaults_of_a_gateway() -> None:
    assert known(GatewaySettings()) == {
        "host": "127.0.0.1",
        "port": 8000,
        "limits": RequestLimits(None, None),
        "user_limits": {},
        "body_mib": 8,
        "timeout_seconds": 1800,
        "connections": 2000,
        "trusted_proxies": (),
        "large_connections": 200,
        "threads": 4,
    }
    backend = Backend("a", ONE, ("b",))
    assert (backend.balance, backend.names) == ("least-load", ("a", "b"))


def test_names_and_addresses_of_engines_are_accepted() -> None:
    check_backends(
        [Backend("Qwen/Qwen3-8B", {**ONE, "http://[::1]:9202": ""}, aliases=("chat", "a:b"))]
    )


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        (GatewaySettings(), "http://127.0.0.1:8000"),
        (GatewaySettings(host="0.0.0.0", port=80), "http://127.0.0.1:80"),
        (GatewaySettings(host="::"), "http://127.0.0.1:8000"),
        (GatewaySettings(host="fd00::1"), "http://[fd00::1]:8000"),
        (GatewaySettings(host="10.0.0.5", tls=Tls(TOP, TOP)), "https://10.0.0.5:8000"),
    ],
)
def test_the_url_is_one_that_clients_here_can_use(settings: GatewaySettings, url: str) -> None:
    assert settings.url == url
