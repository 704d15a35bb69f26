"""The gateway of several models: ConfigMap, Deployment and Service. Pure.

The pod copies the mounted files, because HAProxy's sockets and maps are next to them. Keys and TLS
files come from Secrets that the user creates; they are named here and never written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gaudi_launch.core.render.gateway import GatewayFiles, GatewaySecrets
from gaudi_launch.extensions.kubernetes.chart_values import Checksum, Name
from gaudi_launch.extensions.kubernetes.objects.extras import config_map, server
from gaudi_launch.extensions.kubernetes.target import PORT

COMPONENT = "gateway"
_KEYS_FOLDER, _TLS_FOLDER = "/etc/gaudi-launch-keys", "/etc/gaudi-launch-tls"
# names in a Secret of type kubernetes.io/tls (docs: Kubernetes, Secrets, TLS Secrets)
_CERTIFICATE, _KEY = "tls.crt", "tls.key"
KEYS_ENTRY = "keys"
# any user but root: the number of the user with fewest rights
_USER = 65534
# read by the group of the pod only
_GROUP_READS = 0o440
# a request of 8 MiB takes about 16 MiB (docs/decisions/gateway.md); 100 of them at once
_NEEDS = {
    "requests": {"cpu": "1", "memory": "512Mi"},
    "limits": {"cpu": "4", "memory": "2Gi"},
}
# running streams end first; HAProxy is given ten seconds more
_GRACE_SECONDS = 120


def gateway_name(release: Name) -> Name:
    return Name(release.release, COMPONENT)


def keys_secret(release: Name) -> str:
    """Return the name of the Secret with the keys file, as its entry `KEYS_ENTRY`."""
    return Name(release.release, "gateway-keys").plain()


def tls_secret(release: Name) -> str:
    """Return the name of the Secret of type kubernetes.io/tls."""
    return Name(release.release, "gateway-tls").plain()


def pod_secrets(secrets: GatewaySecrets) -> GatewaySecrets:
    """Return where the pod has these files of the machine."""
    found = GatewaySecrets()
    if secrets.keys:
        found = replace(found, keys=f"{_KEYS_FOLDER}/{KEYS_ENTRY}")
    if secrets.certificate:
        certificate, key = f"{_TLS_FOLDER}/{_CERTIFICATE}", f"{_TLS_FOLDER}/{_KEY}"
        found = replace(found, certificate=certificate, key=key)
    return found


def gateway_objects(gateway: GatewayFiles, release: Name) -> list[dict[str, Any]]:
    """Return the objects, in the order in which they may be applied."""
    reads = {COMPONENT: Checksum(COMPONENT, gateway.files)}
    return [
        config_map(release, COMPONENT, gateway.files),
        *server(release, COMPONENT, reads, _pod(gateway, release), PORT),
    ]


def _pod(gateway: GatewayFiles, release: Name) -> dict[str, Any]:
    mounts = [
        {"name": "gateway", "mountPath": gateway.folder, "readOnly": True},
        {"name": "run", "mountPath": gateway.run_folder},
    ]
    volumes: list[dict[str, Any]] = [
        {"name": "gateway", "configMap": {"name": gateway_name(release)}},
        {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
    ]
    if gateway.secrets.keys:
        mounts.append({"name": "keys", "mountPath": _KEYS_FOLDER, "readOnly": True})
        volumes.append(_secret("keys", keys_secret(release)))
    if gateway.secrets.certificate:
        mounts.append({"name": "tls", "mountPath": _TLS_FOLDER, "readOnly": True})
        volumes.append(_secret("tls", tls_secret(release)))
    container = {
        "name": COMPONENT,
        "image": gateway.image,
        "command": list(gateway.argv),
        "ports": [{"name": "http", "containerPort": PORT}],
        "resources": _NEEDS,
        "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 5},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
        },
        "containers": [container],
        "volumes": volumes,
    }


def _secret(volume: str, name: str) -> dict[str, Any]:
    return {"name": volume, "secret": {"secretName": name, "defaultMode": _GROUP_READS}}
