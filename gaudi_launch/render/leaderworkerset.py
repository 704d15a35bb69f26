"""One replica over several nodes: LeaderWorkerSet, with Ray inside each group. Pure.

kubernetes-sigs/lws@2161f38f (v0.10.0) makes the groups. How vLLM spans nodes on Gaudi (Ray, the interfaces named
before it starts): HabanaAI/vllm-fork@17a7946f:README_GAUDI.md; for DeepSeek-R1 its branch deepseek_r1:scripts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.planning.container import Container
from gaudi_launch.render.knobs import Knob, Name
from gaudi_launch.render.kubernetes_pod import (
    SCRIPTS,
    engine_container,
    knob,
    labels,
    literal,
    pod_spec,
    recipe_containers,
    selector,
)
from gaudi_launch.render.kubernetes_records import Cluster, Served

API = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
_SCRIPT = f"{SCRIPTS}/multi_node.py"


def across(container: Container, cards: int, cluster: Cluster, heads: int | None, layers: int | None) -> Container:
    """One node's engine made to span ``cluster.nodes`` nodes of ``cards`` cards.

    ``tp``: every card of every node holds a part of each layer (DeepSeek-R1 on 2 x 8: TP 16, EP 16, as its scripts
    have it). ``pp``: each node holds some of the layers. Raises LaunchError (USAGE) for a model that cannot be cut.
    """
    nodes, words, env = cluster.nodes, list(container.argv), dict(container.env)
    tensor = cards * nodes if cluster.layout == "tp" else cards
    if cluster.layout == "tp" and heads and heads % tensor:
        raise LaunchError("kubernetes.heads", ExitCode.USAGE, heads=heads, cards=tensor)
    if cluster.layout == "pp" and layers and layers < nodes:
        raise LaunchError("kubernetes.layers", ExitCode.USAGE, layers=layers, nodes=nodes)
    words = with_option(words, "--tensor-parallel-size", str(tensor))
    words = with_option(words, "--distributed-executor-backend", "ray")
    if cluster.layout == "pp":
        words = with_option(words, "--pipeline-parallel-size", str(nodes))
        # HabanaAI/vllm-fork@17a7946f:README_GAUDI.md: pipeline parallelism in lazy mode needs the tensor cache
        env["PT_HPUGRAPH_DISABLE_TENSOR_CACHE"] = "0"
    elif "VLLM_EP_SIZE" in env:
        env["VLLM_EP_SIZE"] = str(tensor)
    env |= {"GLOO_SOCKET_IFNAME": cluster.interface, "HCCL_SOCKET_IFNAME": cluster.interface}
    return replace(container, argv=tuple(words), env=env)


def with_option(words: Sequence[str], name: str, value: str) -> list[str]:
    """The words with one option set, however it was spelled; added at the end where it was not there."""
    found, after, seen = [], False, False
    for word in words:
        given, equals, _ = word.partition("=")
        if after:
            found.append(value)
            after = False
        elif given.replace("_", "-") == name:
            seen = True
            after = not equals
            found.append(f"{given}={value}" if equals else word)
        else:
            found.append(word)
    return found if seen else [*found, name, value]


def leader_worker_set(served: Served, cluster: Cluster, release: Name, places: Mapping[str, str]) -> dict[str, Any]:
    """Groups of ``cluster.nodes`` pods. When one pod fails its group is made anew: a Ray cluster that lost a node
    cannot go on with the same engine."""
    first, beside = recipe_containers(served)
    cards = str(served.needs.cards)
    # scale-out over the hosts' interfaces pins memory (Gaudi2E manual 1.21: IPC_LOCK beside SYS_NICE)
    shared = {
        **engine_container(served, cluster, places),
        "securityContext": {"capabilities": {"add": ["SYS_NICE", "IPC_LOCK"]}},
    }
    shared["volumeMounts"] = [
        *shared["volumeMounts"],
        {"name": "scripts", "mountPath": SCRIPTS, "readOnly": True},
    ]
    program = [served.container.entrypoint] if served.container.entrypoint else []
    words = [literal(word) for word in (*program, *served.container.argv)]
    leader = {**shared, "command": ["python3", _SCRIPT, "head", "$(LWS_GROUP_SIZE)", cards]}
    leader["args"] = knob(served, "args", words)
    worker = {
        key: value
        for key, value in shared.items()
        if key not in ("args", "ports", "startupProbe", "readinessProbe", "livenessProbe")
    }
    worker |= {"command": ["python3", _SCRIPT, "worker", "$(LWS_LEADER_ADDRESS)", cards]}

    def template(role: str, containers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        spec = pod_spec(served, cluster, release, containers, first)
        return {
            "metadata": {"labels": {**labels(served, release), "role": role}},
            "spec": {"automountServiceAccountToken": False, **spec},
        }

    # what the engine's ranks on a worker compile lies on the worker: the keeper there asks the leader
    url = f"http://$(LWS_LEADER_ADDRESS):{_port(served)}{served.container.health}"
    far = [{**each, "command": [*each["command"][:-1], url]} for each in beside]
    count = {} if cluster.scaled else {"replicas": knob(served, "replicas", cluster.replicas, "number")}
    return {
        **API,
        "metadata": {"name": served.name, "labels": labels(served, release)},
        "spec": {
            **count,
            # the leader is ready when the engine is, and the engine needs the workers: they may not wait for it
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0},
            },
            "leaderWorkerTemplate": {
                "size": Knob(("models", served.key, "nodes"), cluster.nodes, "number"),
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": template("leader", [leader, *beside]),
                "workerTemplate": template("worker", [worker, *far]),
            },
        },
    }


def leaders(served: Served) -> dict[str, Any]:
    """The pods that answer."""
    return {**selector(served), "role": "leader"}


def _port(served: Served) -> int:
    return served.container.ports[0][1] if served.container.ports else 8000
