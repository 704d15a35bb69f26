"""One model on one node per replica: Deployment and Service. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gaudi_launch.extensions.kubernetes.chart_values import Knob, Name
from gaudi_launch.extensions.kubernetes.objects.needs import PULL_SECONDS
from gaudi_launch.extensions.kubernetes.objects.pod import (
    config_maps,
    engine_container,
    labels,
    manifest,
    pod_metadata,
    pod_spec,
    recipe_containers,
    replicas_of,
    selector,
)
from gaudi_launch.extensions.kubernetes.options import KubernetesOptions
from gaudi_launch.extensions.kubernetes.target import PORT, ServedModel


def deployment(
    served: ServedModel,
    cluster: KubernetesOptions,
    release: Name,
    places: Mapping[str, str],
    together: bool,
) -> dict[str, Any]:
    """Return replicas of one model.

    An update removes a pod before it creates the new one: a rolling update in the other order waits
    for cards that are not free.
    """
    first, beside = recipe_containers(served)
    containers = [engine_container(served, cluster, places), *beside]
    spec = {
        **replicas_of(served, cluster),
        "revisionHistoryLimit": 3,
        "progressDeadlineSeconds": served.needs.start_seconds + PULL_SECONDS,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": 0, "maxUnavailable": cluster.at_once},
        },
        "selector": {"matchLabels": selector(served)},
        "template": {
            "metadata": pod_metadata(labels(served, release), config_maps(served, cluster)),
            "spec": {
                "automountServiceAccountToken": False,
                **pod_spec(served, cluster, release, containers, first, together),
            },
        },
    }
    return manifest("Deployment", served.name, labels(served, release), spec=spec)


def service(served: ServedModel, release: Name, pods: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Service of a model; ``pods`` selects the ready ones."""
    spec = {
        "type": Knob(("service", "type"), "ClusterIP"),
        "selector": dict(pods),
        "ports": [{"name": "http", "port": PORT, "targetPort": "http"}],
    }
    return manifest("Service", served.name, labels(served, release), spec=spec)
