"""One model on one node per replica: Deployment and Service. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gaudi_launch.kubernetes.chart_values import Knob, Name
from gaudi_launch.kubernetes.objects.pod import (
    config_maps,
    engine_container,
    labels,
    pod_metadata,
    pod_spec,
    recipe_containers,
    replicas_of,
    rollout_seconds,
    selector,
)
from gaudi_launch.kubernetes.target import PORT, KubernetesTarget, ServedModel


def deployment(
    served: ServedModel,
    cluster: KubernetesTarget,
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
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": served.name, "labels": labels(served, release)},
        "spec": {
            **replicas_of(served, cluster),
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": rollout_seconds(served),
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
        },
    }


def service(served: ServedModel, release: Name, pods: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Service of a model; ``pods`` selects the ready ones."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": served.name, "labels": labels(served, release)},
        "spec": {
            "type": Knob(("service", "type"), "ClusterIP"),
            "selector": dict(pods),
            "ports": [{"name": "http", "port": PORT, "targetPort": "http"}],
        },
    }
