"""The gateway's Secrets, and the places of their files in its pod."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.core.render.gateway import GatewaySecrets
from gaudi_launch.extensions.kubernetes.chart_values import Name, plain
from gaudi_launch.extensions.kubernetes.objects.gateway_objects import gateway_objects, pod_secrets
from tests.support.served_models import GATEWAY

KEYS = {"name": "keys", "mountPath": "/etc/gaudi-launch-keys", "readOnly": True}
TLS = {"name": "tls", "mountPath": "/etc/gaudi-launch-tls", "readOnly": True}


def test_the_gateway_reads_the_files_of_the_secrets() -> None:
    assert pod_secrets(GatewaySecrets()) == GatewaySecrets()
    assert pod_secrets(GatewaySecrets("/k")) == GatewaySecrets("/etc/gaudi-launch-keys/keys")
    assert pod_secrets(GatewaySecrets("/k", "/c", "/p")) == GatewaySecrets(
        "/etc/gaudi-launch-keys/keys",
        "/etc/gaudi-launch-tls/tls.crt",
        "/etc/gaudi-launch-tls/tls.key",
    )


@pytest.mark.parametrize(
    ("keys", "tls", "mounts"),
    [(False, False, []), (True, False, [KEYS]), (False, True, [TLS]), (True, True, [KEYS, TLS])],
)
def test_only_secrets_of_the_user_are_mounted(
    keys: bool, tls: bool, mounts: list[dict[str, object]]
) -> None:
    secrets = GatewaySecrets("/k" if keys else "", "/c" if tls else "", "/p" if tls else "")
    gateway = replace(GATEWAY, secrets=secrets)
    made = [plain(each) for each in gateway_objects(gateway, Name("c"))]
    assert [each["kind"] for each in made] == ["ConfigMap", "Deployment", "Service"]
    pod = made[1]["spec"]["template"]["spec"]
    assert pod["containers"][0]["volumeMounts"][2:] == mounts
    assert pod["volumes"][2:] == [
        {
            "name": each["name"],
            "secret": {"secretName": f"c-gateway-{each['name']}", "defaultMode": 0o440},
        }
        for each in mounts
    ]
