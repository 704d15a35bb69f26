"""The state of a deployment, read from a cluster's objects.

Pure: JSON in, records out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from gaudi_launch.core.base.json_values import array, mapping
from gaudi_launch.core.base.messages import Message, message

INSTANCE = "app.kubernetes.io/instance"
OURS = "app.kubernetes.io/managed-by=gaudi-launch"
HELM = "meta.helm.sh/release-name"
# kinds every cluster has, and those of controllers that it may not have
CORE = (
    "deployments.apps",
    "services",
    "ingresses.networking.k8s.io",
    "horizontalpodautoscalers.autoscaling",
    "poddisruptionbudgets.policy",
    "configmaps",
    "persistentvolumeclaims",
    "pods",
)
OPTIONAL = (
    "leaderworkersets.leaderworkerset.x-k8s.io",
    "rayservices.ray.io",
    "servicemonitors.monitoring.coreos.com",
    "prometheusrules.monitoring.coreos.com",
)
# reasons of the scheduler for finding no node (kube-scheduler's messages), and the remedies
_UNSCHEDULABLE = (
    (re.compile(r"Insufficient hugepages"), "kube.few_hugepages"),
    (re.compile(r"Insufficient habana\.ai/gaudi"), "kube.few_cards"),
    (re.compile(r"Insufficient aws\.amazon\.com/neuron"), "kube.few_neuron"),
    (
        re.compile(r"unbound immediate PersistentVolumeClaims|persistentvolumeclaim .* not found"),
        "kube.no_volume",
    ),
    (re.compile(r"untolerated taint"), "kube.taint"),
    (re.compile(r"node affinity/selector"), "kube.selector"),
    (re.compile(r"Insufficient (cpu|memory)"), "kube.few_cpu"),
)
_WAITING = {
    "ImagePullBackOff": "kube.no_image",
    "ErrImagePull": "kube.no_image",
    "InvalidImageName": "kube.no_image",
    "CreateContainerConfigError": "kube.no_secret",
    "CreateContainerError": "kube.no_container",
    "RunContainerError": "kube.no_container",
}


@dataclass(frozen=True)
class KubeWorkload:
    """An object that creates pods: its kind, its desired and its ready replicas."""

    kind: str
    name: str
    wanted: int
    ready: int


@dataclass(frozen=True)
class Pod:
    """A pod. ``phase`` is one of pending, preparing, starting, ready, failed, ending.

    ``seconds`` is its age.
    """

    name: str
    model: str
    phase: str
    node: str = ""
    restarts: int = 0
    seconds: int = 0
    why: Message | None = None


@dataclass(frozen=True)
class Status:
    """One deployment: everything with its instance label."""

    name: str
    workloads: tuple[KubeWorkload, ...]
    pods: tuple[Pod, ...]
    helm: bool = False

    @property
    def ready(self) -> bool:
        return bool(self.workloads) and all(w.ready >= w.wanted for w in self.workloads)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "ready": self.ready,
            "helm": self.helm,
            "workloads": [vars(each) for each in self.workloads],
            "pods": [
                {
                    **vars(pod),
                    "why": pod.why.to_json() if pod.why else None,
                }
                for pod in self.pods
            ],
        }


def statuses(items: Iterable[Any], now: datetime | None = None) -> list[Status]:
    """Return the deployments among these objects, by name.

    An object of an unexpected form is left out.
    """
    now = now or datetime.now(timezone.utc)
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for item in items:
        name = instance_of(item)
        if name:
            groups.setdefault(name, []).append(item)
    found = []
    for name, group in sorted(groups.items()):
        workloads = tuple(w for item in group if (w := _workload(item)) is not None)
        pods = tuple(_pod(item, now) for item in group if item.get("kind") == "Pod")
        helm = any(isinstance(_at(item, "metadata", "annotations", HELM), str) for item in group)
        found.append(Status(name, workloads, tuple(sorted(pods, key=lambda pod: pod.name)), helm))
    return found


def instance_of(item: Any) -> str:
    """Return the deployment that an object belongs to, "" for none."""
    return str(_at(item, "metadata", "labels", INSTANCE) or "")


def engine_of(item: Any) -> str:
    """Return the engine's container in a pod, which is the first.

    Return "" for a pod of another kind (a chat page, the head of a Ray cluster).
    """
    if (
        _at(item, "kind") != "Pod"
        or _at(item, "metadata", "labels", "app.kubernetes.io/component") != "engine"
    ):
        return ""
    containers = _list(item, "spec", "containers")
    if not containers:
        return ""
    return str(_at(containers[0], "name") or "")


def reference_of(item: Any) -> str:
    """Return ``kind.version.group/name`` as kubectl reads it.

    Return "" for what a controller creates and deletes itself.
    """
    api, kind, name = _at(item, "apiVersion"), _at(item, "kind"), _at(item, "metadata", "name")
    if _list(item, "metadata", "ownerReferences") or not all(
        isinstance(word, str) for word in (api, kind, name)
    ):
        return ""
    group, _, version = str(api).rpartition("/")
    if group:
        return f"{kind.lower()}.{version}.{group}/{name}"
    return f"{kind.lower()}/{name}"


def _workload(item: Mapping[str, Any]) -> KubeWorkload | None:
    kind, name = str(item.get("kind")), str(_at(item, "metadata", "name") or "")
    if kind in ("Deployment", "LeaderWorkerSet"):
        return KubeWorkload(
            kind,
            name,
            _number(item, 1, "spec", "replicas"),
            _number(item, 0, "status", "readyReplicas"),
        )
    if kind == "RayService":
        groups = _at(item, "spec", "rayClusterConfig", "workerGroupSpecs")
        wanted = 1
        if isinstance(groups, list):
            wanted = sum(_number(g, 0, "minReplicas") for g in groups)
        ready = _number(
            item, 0, "status", "activeServiceStatus", "rayClusterStatus", "readyWorkerReplicas"
        )
        running = _at(item, "status", "serviceStatus") == "Running"
        return KubeWorkload(kind, name, wanted, ready if running else 0)
    return None


def _pod(item: Mapping[str, Any], now: datetime) -> Pod:
    phase, why = _phase(item, now)
    statuses = _list(item, "status", "containerStatuses")
    return Pod(
        name=str(_at(item, "metadata", "name") or ""),
        model=str(_at(item, "metadata", "labels", "app.kubernetes.io/name") or ""),
        phase=phase,
        node=str(_at(item, "spec", "nodeName") or ""),
        restarts=sum(_number(status, 0, "restartCount") for status in statuses),
        seconds=_age(_at(item, "metadata", "creationTimestamp"), now),
        why=why,
    )


def _phase(item: Mapping[str, Any], now: datetime) -> tuple[str, Message | None]:
    if _at(item, "metadata", "deletionTimestamp"):
        return "ending", None
    conditions = {str(_at(c, "type")): c for c in _list(item, "status", "conditions")}
    if _at(conditions.get("Ready"), "status") == "True":
        return "ready", None
    scheduled = conditions.get("PodScheduled")
    if _at(scheduled, "status") == "False":
        detail = str(_at(scheduled, "message") or "")
        known = (id for pattern, id in _UNSCHEDULABLE if pattern.search(detail))
        return "pending", message(next(known, "kube.unscheduled"), said=detail)
    refusal = _refusal(item)
    if refusal is not None:
        return "failed", refusal
    first = _list(item, "status", "initContainerStatuses")
    containers = _list(item, "status", "containerStatuses")
    for status in (*first, *containers):
        failure = _failure(status)
        if failure is not None:
            return "failed", failure
    if any(_at(status, "state", "running") for status in first):
        return "preparing", message("kube.copying")
    return _starting(item, containers, now)


def _starting(
    item: Mapping[str, Any], containers: Sequence[Any], now: datetime
) -> tuple[str, Message | None]:
    """Return the phase of a pod whose containers are created or run."""
    for status in containers:
        since = _at(status, "state", "running", "startedAt")
        if since and _at(status, "ready") is not True:
            budget = _budget(item, str(_at(status, "name")))
            if budget and _at(status, "started") is not True:
                return "starting", message("kube.starting", seconds=_age(since, now), most=budget)
            return "starting", None
    return "preparing", None


def _refusal(item: Mapping[str, Any]) -> Message | None:
    """Return why a node refused or evicted a pod, None if it did not.

    The device plugin that cannot give a card is one reason, and the pod then has no containers
    (kubernetes pkg/kubelet/kubelet.go rejectPod, pkg/kubelet/eviction).
    """
    status = mapping(item.get("status"))
    if status.get("phase") != "Failed" or "reason" not in status:
        return None
    reason = status["reason"]
    return message("kube.refused", reason=reason, said=status.get("message", reason))


def _failure(status: Mapping[str, Any]) -> Message | None:
    """Return why a container does not run, None if it does or will."""
    reason = str(_at(status, "state", "waiting", "reason") or "")
    detail = str(_at(status, "state", "waiting", "message") or reason)
    if reason in _WAITING:
        return message(_WAITING[reason], said=detail)
    ended = _at(status, "state", "terminated")
    if not ended and reason == "CrashLoopBackOff":
        ended = _at(status, "lastState", "terminated")
    code = _at(ended, "exitCode")
    if not isinstance(code, int) or code == 0:
        return None
    id = "kube.crashed"
    if _at(ended, "reason") == "OOMKilled":
        id = "kube.out_of_memory"
    return message(id, container=str(_at(status, "name")), code=code)


def _budget(item: Mapping[str, Any], container: str) -> int:
    """Return the seconds that a container's startup probe allows, 0 without one."""
    for each in _list(item, "spec", "containers"):
        if _at(each, "name") == container and isinstance(_at(each, "startupProbe"), Mapping):
            probe = each["startupProbe"]
            return _number(probe, 10, "periodSeconds") * _number(probe, 3, "failureThreshold")
    return 0


def _at(item: Any, *path: str) -> Any:
    for name in path:
        if not isinstance(item, Mapping):
            return None
        item = item.get(name)
    return item


def _list(item: Any, *path: str) -> list[Any]:
    return array(_at(item, *path))


def _number(item: Any, otherwise: int, *path: str) -> int:
    found = _at(item, *path)
    if isinstance(found, int) and not isinstance(found, bool):
        return found
    return otherwise


def _age(text: Any, now: datetime) -> int:
    """Return seconds since a Kubernetes time; 0 for other text."""
    try:
        then = datetime.strptime(str(text), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return 0
    return max(0, int((now - then).total_seconds()))
