"""Replicas that Ray scales: RayService. Pure.

KubeRay v1.7.0 (ray-project/kuberay@59d663aeec13) does not support habana.ai/gaudi, so Ray gets the
cards as an option (rayStartParams), and any change makes KubeRay start a second cluster unless
upgrades are disabled. On Gaudi a replica is the planned engine inside our Serve application
(`Engine.serve_config`), one replica per pod.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gaudi_launch.core.render.yaml_text import dump
from gaudi_launch.extensions.kubernetes.chart_values import Checksum, Knob, Name
from gaudi_launch.extensions.kubernetes.objects.pod import (
    SCRIPTS,
    claim,
    config_maps,
    engine_container,
    knob,
    labels,
    manifest,
    pod_metadata,
    pod_spec,
    recipe_containers,
)
from gaudi_launch.extensions.kubernetes.options import KubernetesOptions
from gaudi_launch.extensions.kubernetes.target import PORT, ServedModel

# awslabs/ai-on-eks@41a979e:
# blueprints/inference/llama2-13b-chat-rayserve-inf2/ray-service-llama2.yaml
_HEAD = {"cpu": "4", "memory": "20Gi"}
# Ray writes the output of its processes to files inside the pod, which `kubectl logs` does not show
# (docs: Ray, Configuring Logging; seen with 2.60); its messages are left out
_TO_THE_POD = {"RAY_LOG_TO_STDERR": "1", "RAY_BACKEND_LOG_LEVEL": "warning"}
_PORTS = ((6379, "gcs-server"), (8265, "dashboard"), (10001, "client"), (PORT, "serve"))


def ray_service(
    served: ServedModel, cluster: KubernetesOptions, release: Name, places: Mapping[str, str]
) -> dict[str, Any]:
    """Return a head without cards, and one worker pod for each replica."""
    worker = _worker(served, cluster, release, places)
    head = _head(served, cluster, release)
    workers = {
        "groupName": "workers",
        "replicas": cluster.replicas,
        "minReplicas": cluster.replicas,
        "maxReplicas": cluster.max_replicas,
        "numOfHosts": 1,
        "rayStartParams": {"resources": quoted({served.ray_resource: served.ray_amount})},
        "template": worker,
    }
    scales = {}
    if cluster.max_replicas > cluster.replicas:
        scales = {"enableInTreeAutoscaling": True}
    spec = {
        # without it every change starts a second cluster in addition to the first, for which no
        # cards are free
        "upgradeStrategy": {"type": "None"},
        "serveConfigV2": dump(dict(served.serve)),
        "rayClusterConfig": {
            "rayVersion": cluster.ray_version,
            **scales,
            "headGroupSpec": head,
            "workerGroupSpecs": [workers],
        },
    }
    # no ray.io/initializing-timeout: it would end a service for good that only waits for cards
    return manifest("RayService", served.name, labels(served, release), spec=spec)


def quoted(resources: Mapping[str, int]) -> str:
    """Return JSON in the quotes that KubeRay's command line needs.

    >>> quoted({"HPU": 8})
    '"{\\\\"HPU\\\\": 8}"'
    """
    return '"' + json.dumps(dict(resources)).replace('"', '\\"') + '"'


def _worker(
    served: ServedModel, cluster: KubernetesOptions, release: Name, places: Mapping[str, str]
) -> dict[str, Any]:
    first, beside = recipe_containers(served)
    container = engine_container(served, cluster, places)
    kept = ["image", "env", "resources", "volumeMounts"]
    if served.application:
        kept.append("securityContext")
    container = {
        "name": "ray-worker",
        **{name: container[name] for name in kept},
        "lifecycle": _stop(),
    }
    container["env"] = [
        *({"name": name, "value": value} for name, value in _TO_THE_POD.items()),
        *container["env"],
    ]
    spec = pod_spec(
        served, cluster, release, [_with_application(container, served), *beside], first
    )
    spec["volumes"] += _volumes(served, release)
    reads = {**config_maps(served, cluster), **_application(served)}
    return {
        "metadata": pod_metadata(labels(served, release), reads, served.annotations),
        "spec": spec,
    }


def _head(served: ServedModel, cluster: KubernetesOptions, release: Name) -> dict[str, Any]:
    container = {
        "name": "ray-head",
        "image": knob(served, "image", served.container.image, "text"),
        "env": [{"name": name, "value": value} for name, value in served.head_env.items()],
        "ports": [{"name": name, "containerPort": number} for number, name in _PORTS],
        "resources": Knob(("head", "resources"), {"requests": _HEAD, "limits": _HEAD}, "block"),
        "volumeMounts": [],
        "lifecycle": _stop(),
    }
    pod: dict[str, Any] = {
        "enableServiceLinks": False,
        "nodeSelector": Knob(("head", "nodeSelector"), dict(served.head_selector), "block"),
        "containers": [_with_application(container, served)],
        "volumes": _volumes(served, release),
    }
    if cluster.runtime_class and served.needs.cards:
        # the image's Gaudi libraries load without cards, but its runtime class is that of the nodes
        pod = {"runtimeClassName": Knob(("runtimeClassName",), cluster.runtime_class), **pod}
    # replicas run on workers: the head has no card, and the small parts of Serve need no CPU
    start = {"dashboard-host": "0.0.0.0"}
    if served.application:
        start["num-cpus"] = "0"
    return {
        "rayStartParams": start,
        "template": {
            "metadata": pod_metadata(labels(served, release, "ray-head"), _application(served)),
            "spec": pod,
        },
    }


def _with_application(container: dict[str, Any], served: ServedModel) -> dict[str, Any]:
    """Return the container with our application on Python's path.

    An application of the model is in its image.
    """
    if not served.application:
        return {name: value for name, value in container.items() if value != []}
    path = {"name": "PYTHONPATH", "value": f"{SCRIPTS}/ray"}
    mount = {"name": "application", "mountPath": f"{SCRIPTS}/ray", "readOnly": True}
    return {
        **container,
        "env": [path, *container["env"]],
        "volumeMounts": [*container["volumeMounts"], mount],
    }


def _application(served: ServedModel) -> dict[str, Checksum]:
    """Return the ConfigMap of our Serve application, by its volume.

    An application of the model is in its image.
    """
    if not served.application:
        return {}
    return {"application": Checksum("application", served.application)}


def _volumes(served: ServedModel, release: Name) -> list[dict[str, Any]]:
    maps = _application(served).items()
    return [
        {"name": volume, "configMap": {"name": claim(release, read.suffix)}}
        for volume, read in maps
    ]


def _stop() -> dict[str, Any]:
    return {"preStop": {"exec": {"command": ["ray", "stop"]}}}
