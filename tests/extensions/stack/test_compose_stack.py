"""A stack as a compose file with the gateway's files, as goldens."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.planning.container import Container
from gaudi_launch.extensions.stack import compose_stack
from gaudi_launch.extensions.stack.compose_stack import ComposeEngine, render, secrets_of
from gaudi_launch.extensions.stack.gateway.gateway_image import (
    IMAGE,
    GatewaySecrets,
    RenderedGateway,
)
from gaudi_launch.extensions.stack.gateway.gateway_settings import GatewaySettings, Tls
from tests.support.cli import golden

GATEWAY = RenderedGateway(("haproxy", "-f", "x$y"), {"haproxy.cfg": "text\n", "models.map": ""})
CARDS = Container("image", ("a",), modules=(0, 1), indices=(6, 4))
ENGINES = (
    ComposeEngine("site-one", CARDS, None, ()),
    ComposeEngine("site-two", Container("other", ("b",)), "FROM x\n", ("site-one", "site-zero")),
)
OPEN = GatewaySettings(port=9000)
CLOSED = GatewaySettings(
    keys_file=Path("/keys$1"), tls=Tls(Path("/cert.pem"), Path("/key.pem")), port=9000
)


@pytest.fixture(autouse=True)
def image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the gateway's image a short recipe: it names versions of its own."""
    monkeypatch.setattr(compose_stack, "dockerfile", lambda: "FROM gateway\n")
    monkeypatch.setattr(compose_stack, "IMAGE", "gateway:1")


def test_the_paths_of_secrets_in_the_container() -> None:
    assert secrets_of(OPEN) == GatewaySecrets()
    assert secrets_of(CLOSED) == GatewaySecrets(
        "/run/secrets/gateway-keys",
        "/run/secrets/gateway-certificate",
        "/run/secrets/gateway-key",
    )
    assert IMAGE.startswith("gaudi-launch/gateway:")


@pytest.mark.parametrize(("name", "settings"), [("open", OPEN), ("closed", CLOSED)])
def test_the_services_of_a_stack(name: str, settings: GatewaySettings, plain_english: None) -> None:
    found = render("Site.1", ["head", "more"], ENGINES, GATEWAY, settings)
    golden(f"render-parts/stack-{name}.yaml", found.files["compose.yaml"])
    assert {path: text for path, text in found.files.items() if path != "compose.yaml"} == {
        "gateway/haproxy.cfg": "text\n",
        "gateway/models.map": "",
    }
    secrets = message("render.stack_secrets", paths="/keys$$1, /cert.pem, /key.pem")
    assert found.notes == (
        message("render.indices", modules="0,1", indices="6,4"),
        *([secrets] if name == "closed" else []),
        message("render.stack_build", image="gateway:1"),
    )
    assert found.executable == frozenset()
