"""The Serve config of several models: compared as one."""

from __future__ import annotations

from typing import Any

from gaudi_launch.core.planning.engine import Scaling
from gaudi_launch.core.render.gateway import GatewayPlace, GatewaySecrets
from gaudi_launch.extensions.ray.case import StackDeployment, stack_document
from gaudi_launch.extensions.ray.config import document


def deployment(name: str, replicas: int, **more: Any) -> StackDeployment:
    config = document(
        address="127.0.0.1",
        port=1,
        kind="engine",
        words=["python3", "-m", name],
        sets=[{"modules": [replicas]}],
        wanted=Scaling(replicas, replicas, 1, 100),
    )
    return StackDeployment(name, (name, f"{name}-too"), config, **more)


def test_keys_and_certificates_are_named_by_their_files() -> None:
    secrets = GatewaySecrets("/k", "/c.pem", "/key.pem")
    made = stack_document([deployment("a", 1, env={})], GatewayPlace("::", 443, secrets), "/code")
    assert made["http_options"] == {
        "host": "::",
        "port": 443,
        "ssl_certfile": "/c.pem",
        "ssl_keyfile": "/key.pem",
    }
    assert made["applications"][0]["args"]["keys_file"] == "/k"
