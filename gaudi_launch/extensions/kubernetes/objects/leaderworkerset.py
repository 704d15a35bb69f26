"""One replica over several nodes: LeaderWorkerSet, with Ray inside each group.

Pure.

kubernetes-sigs/lws@2161f38f (v0.10.0) makes the groups. `core.hosts.layout` and `core.hosts.parts`
define how vLLM spans nodes, and what that changes in a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gaudi_launch.extensions.kubernetes.chart_values import Name
from gaudi_launch.extensions.kubernetes.objects.pod import (
    SCRIPTS,
    config_maps,
    engine_container,
    labels,
    literal,
    manifest,
    pod_metadata,
    pod_spec,
    port_of,
    recipe_containers,
    replicas_of,
    selector,
)
from gaudi_launch.extensions.kubernetes.options import KubernetesOptions
from gaudi_launch.extensions.kubernetes.target import ServedModel

_SCRIPT = f"{SCRIPTS}/multi_node.py"


def leader_worker_set(
    served: ServedModel, cluster: KubernetesOptions, release: Name, places: Mapping[str, str]
) -> dict[str, Any]:
    """Return groups of ``cluster.node_count`` pods.

    When one pod fails its group is recreated: a Ray cluster that lost a node cannot continue with
    the same engine.
    """
    first, beside = recipe_containers(served)
    cards = str(served.needs.cards)
    # scale-out over the hosts' interfaces pins memory (Gaudi2E manual 1.21: IPC_LOCK in addition to
    # SYS_NICE)
    shared = {
        **engine_container(served, cluster, places),
        "securityContext": {"capabilities": {"add": ["SYS_NICE", "IPC_LOCK"]}},
    }
    shared["volumeMounts"] = [
        *shared["volumeMounts"],
        {"name": "scripts", "mountPath": SCRIPTS, "readOnly": True},
    ]
    leader = {
        **shared,
        "command": ["python3", _SCRIPT, "head", "$(LWS_GROUP_SIZE)", cards],
        "args": [literal(word) for word in (*served.container.entry, *served.container.argv)],
    }
    worker = {
        key: value
        for key, value in shared.items()
        if key not in ("args", "ports", "startupProbe", "readinessProbe", "livenessProbe")
    }
    worker |= {"command": ["python3", _SCRIPT, "worker", "$(LWS_LEADER_ADDRESS)", cards]}

    def template(role: str, containers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        spec = pod_spec(served, cluster, release, containers, first)
        return {
            "metadata": pod_metadata(
                {**labels(served, release), "role": role}, config_maps(served, cluster)
            ),
            "spec": {"automountServiceAccountToken": False, **spec},
        }

    # graphs that the engine's ranks on a worker compile are stored on the worker: the keeper there
    # queries the leader
    url = f"http://$(LWS_LEADER_ADDRESS):{port_of(served.container)}{served.container.health}"
    far = [{**each, "command": [*each["command"][:-1], url]} for each in beside]
    spec = {
        **replicas_of(served, cluster),
        # the leader is ready when the engine is, and the engine needs the workers, which must
        # not wait for it
        "startupPolicy": "LeaderCreated",
        "rolloutStrategy": {
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": {"maxUnavailable": cluster.at_once, "maxSurge": 0},
        },
        "leaderWorkerTemplate": {
            "size": cluster.node_count,
            "restartPolicy": "RecreateGroupOnPodRestart",
            "leaderTemplate": template("leader", [leader, *beside]),
            "workerTemplate": template("worker", [worker, *far]),
        },
    }
    return manifest("LeaderWorkerSet", served.name, labels(served, release), spec=spec)


def leaders(served: ServedModel) -> dict[str, Any]:
    """Return the labels of the pods that answer."""
    return {**selector(served), "role": "leader"}
