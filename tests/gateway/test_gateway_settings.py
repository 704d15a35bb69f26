"""What a gateway accepts as models, replicas and addresses."""

from __future__ import annotations

import pytest

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.gateway.gateway_settings import (
    Backend,
    GatewayReplica,
    GatewaySettings,
    Tls,
    check_backends,
)
from tests.support.places import TOP

ONE = (GatewayReplica("http://127.0.0.1:9201"),)


@pytest.mark.parametrize(
    ("backends", "id"),
    [
        ([], "gateway.no_models"),
        ([Backend("two words", ONE)], "gateway.bad_model"),
        ([Backend("模型", ONE)], "gateway.bad_model"),
        ([Backend("a\nb", ONE)], "gateway.bad_model"),
        ([Backend("a", ONE), Backend("b", ONE, aliases=("a",))], "gateway.twice"),
        ([Backend("a", ())], "gateway.no_replica"),
        ([Backend("a", (GatewayReplica("127.0.0.1:9201"),))], "gateway.bad_replica"),
        ([Backend("a", (GatewayReplica("http://127.0.0.1:9201/v1"),))], "gateway.bad_replica"),
        ([Backend("a", (GatewayReplica("http://127.0.0.1:1 check"),))], "gateway.bad_replica"),
    ],
)
def test_what_cannot_be_routed_to_is_refused(backends: list[Backend], id: str) -> None:
    with pytest.raises(LaunchError) as raised:
        check_backends(backends)
    assert (raised.value.id, raised.value.exit_code) == (id, ExitCode.USAGE)


def test_names_and_addresses_of_engines_are_accepted() -> None:
    check_backends(
        [
            Backend(
                "Qwen/Qwen3-8B",
                (*ONE, GatewayReplica("http://[::1]:9202")),
                aliases=("chat", "a:b"),
            )
        ]
    )


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        (GatewaySettings(), "http://127.0.0.1:8000"),
        (GatewaySettings(host="0.0.0.0", port=80), "http://127.0.0.1:80"),
        (GatewaySettings(host="::"), "http://[::1]:8000"),
        (GatewaySettings(host="fd00::1"), "http://[fd00::1]:8000"),
        (GatewaySettings(host="10.0.0.5", tls=Tls(TOP, TOP)), "https://10.0.0.5:8000"),
    ],
)
def test_the_url_is_one_that_clients_here_can_use(settings: GatewaySettings, url: str) -> None:
    assert settings.url == url
