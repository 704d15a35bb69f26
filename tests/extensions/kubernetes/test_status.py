"""The state of a deployment, from objects as kubectl gives them."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Any

import pytest

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.extensions.kubernetes.status import (
    CORE,
    OPTIONAL,
    KubeWorkload,
    Pod,
    Status,
    engine_of,
    reference_of,
    statuses,
)
from tests.support.kubernetes_documents import goldens, pod, thing

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=timezone.utc)


def waiting(reason: str, detail: str | None = None, name: str = "engine") -> dict[str, Any]:
    state = {"reason": reason}
    if detail is not None:
        state["message"] = detail
    return {"name": name, "state": {"waiting": state}}


def ended(name: str = "engine", **how: Any) -> dict[str, Any]:
    return {"name": name, "state": {"terminated": how}}


def started(name: str = "engine", **more: Any) -> dict[str, Any]:
    return {"name": name, "state": {"running": {"startedAt": "2026-11-21T08:55:00Z"}}, **more}


def phase(item: dict[str, Any]) -> tuple[str, Message | None]:
    (found,) = statuses([item], NOW)
    (found_pod,) = found.pods
    return found_pod.phase, found_pod.why


def test_the_objects_of_two_deployments() -> None:
    replicas: dict[str, Any] = {"spec": {"replicas": 2}, "status": {"readyReplicas": 1}}
    groups = [{"minReplicas": 1}, {"minReplicas": 2}, {}]
    cluster = {"activeServiceStatus": {"rayClusterStatus": {"readyWorkerReplicas": 3}}}
    items = [
        thing("LeaderWorkerSet", "r1", "other", **replicas),
        thing(
            "RayService",
            "ray",
            "other",
            spec={"rayClusterConfig": {"workerGroupSpecs": groups}},
            status={"serviceStatus": "Running", **cluster},
            metadata={"annotations": {"meta.helm.sh/release-name": "other"}},
        ),
        thing("Deployment", "chat", **replicas),
        {**pod(conditions=[{"type": "Ready", "status": "True"}])},
        thing("Service", "chat"),
        thing("Pod", "nameless", ""),
        {"kind": "Pod"},
        "junk",
    ]
    (chat, other) = statuses(items, NOW)
    assert chat == Status(
        "chat",
        (KubeWorkload("Deployment", "chat", 2, 1),),
        (Pod("chat-a", "chat-a-model", "ready", "gaudi-1", 0, 600),),
    )
    workloads = (
        KubeWorkload("LeaderWorkerSet", "r1", 2, 1),
        KubeWorkload("RayService", "ray", 3, 3),
    )
    assert other == Status("other", workloads, (), helm=True)


@pytest.mark.parametrize("kind", ["Deployment", "LeaderWorkerSet"])
def test_without_numbers_one_replica_is_wanted_and_none_is_ready(kind: str) -> None:
    (found,) = statuses([thing(kind, "chat")], NOW)
    assert found.workloads == (KubeWorkload(kind, "chat", 1, 0),)
    odd = thing(kind, "chat", spec={"replicas": True}, status={"readyReplicas": "1"})
    assert statuses([odd], NOW)[0].workloads == found.workloads
    assert not found.ready


def test_a_ray_service_that_does_not_run_has_no_ready_worker() -> None:
    cluster = {"activeServiceStatus": {"rayClusterStatus": {"readyWorkerReplicas": 3}}}
    (found,) = statuses([thing("RayService", "ray", status=cluster)], NOW)
    assert found.workloads == (KubeWorkload("RayService", "ray", 1, 0),)


def test_a_deployment_as_json() -> None:
    why = message("kube.taint", said="0/3")
    found = Status(
        "chat",
        (KubeWorkload("Deployment", "chat", 1, 1),),
        (Pod("a", "m", "pending", why=why), Pod("b", "m", "ready", "node", 2, 60)),
        helm=True,
    )
    common = {"model": "m", "restarts": 0, "seconds": 0}
    assert found.to_json() == {
        "name": "chat",
        "ready": True,
        "helm": True,
        "workloads": [{"kind": "Deployment", "name": "chat", "wanted": 1, "ready": 1}],
        "pods": [
            {
                **common,
                "name": "a",
                "phase": "pending",
                "node": "",
                "why": {"id": "kube.taint", "message": why.render()},
            },
            {
                **common,
                "name": "b",
                "phase": "ready",
                "node": "node",
                "restarts": 2,
                "seconds": 60,
                "why": None,
            },
        ],
    }


def test_pods_are_in_the_order_of_their_names_with_all_restarts() -> None:
    first = thing("Pod", "b", status={"containerStatuses": [{"restartCount": 2}] * 2})
    (found,) = statuses([first, thing("Pod", "a")], NOW)
    assert [(each.name, each.restarts) for each in found.pods] == [("a", 0), ("b", 4)]


@pytest.mark.parametrize(
    ("said", "id"),
    [
        ("1 Insufficient habana.ai/gaudi, 2 Insufficient hugepages-2Mi", "kube.few_hugepages"),
        ("3 Insufficient habana.ai/gaudi, 3 Insufficient cpu", "kube.few_cards"),
        ("3 Insufficient aws.amazon.com/neuron", "kube.few_neuron"),
        ("pod has unbound immediate PersistentVolumeClaims", "kube.no_volume"),
        ('persistentvolumeclaim "weights" not found', "kube.no_volume"),
        ("3 node(s) had untolerated taint {a: b}", "kube.taint"),
        ("3 node(s) didn't match Pod's node affinity/selector", "kube.selector"),
        ("3 Insufficient cpu", "kube.few_cpu"),
        ("3 Insufficient memory", "kube.few_cpu"),
        ("no reason", "kube.unscheduled"),
    ],
)
def test_a_pod_without_a_node_says_what_is_missing(said: str, id: str) -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": said}
    assert phase(pod(conditions=[condition])) == ("pending", message(id, said=said))


@pytest.mark.parametrize(
    ("reason", "id"),
    [
        ("ImagePullBackOff", "kube.no_image"),
        ("ErrImagePull", "kube.no_image"),
        ("InvalidImageName", "kube.no_image"),
        ("CreateContainerConfigError", "kube.no_secret"),
        ("CreateContainerError", "kube.no_container"),
        ("RunContainerError", "kube.no_container"),
    ],
)
def test_a_container_that_cannot_begin_has_failed(reason: str, id: str) -> None:
    found = pod(containerStatuses=[waiting(reason, "because")])
    assert phase(found) == ("failed", message(id, said="because"))
    first = pod(initContainerStatuses=[waiting(reason)], containerStatuses=[started()])
    assert phase(first) == ("failed", message(id, said=reason))


CRASHED = message("kube.crashed", container="engine", code=3)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (pod(), ("preparing", None)),
        (pod(containerStatuses=[waiting("ContainerCreating")]), ("preparing", None)),
        (pod(containerStatuses=[ended(exitCode=3, reason="Error")]), ("failed", CRASHED)),
        (
            pod(containerStatuses=[ended("keep", exitCode=137, reason="OOMKilled")]),
            ("failed", message("kube.out_of_memory", container="keep", code=137)),
        ),
        (pod(initContainerStatuses=[ended("bring", exitCode=0)]), ("preparing", None)),
        (
            pod(
                containerStatuses=[
                    {**waiting("CrashLoopBackOff"), "lastState": {"terminated": {"exitCode": 3}}}
                ]
            ),
            ("failed", CRASHED),
        ),
        # it begins again: its last end is no longer the reason
        (
            pod(
                containerStatuses=[
                    {**waiting("ContainerCreating"), "lastState": {"terminated": {"exitCode": 3}}}
                ]
            ),
            ("preparing", None),
        ),
        (
            pod(initContainerStatuses=[started("bring")], containerStatuses=[waiting("x")]),
            ("preparing", message("kube.copying")),
        ),
        (
            pod(containerStatuses=[started()]),
            ("starting", message("kube.starting", seconds=300, most=2400)),
        ),
        (pod(containerStatuses=[started(started=True)]), ("starting", None)),
        (pod(containerStatuses=[started("keep-recipes")]), ("starting", None)),
        (pod(containerStatuses=[started(ready=True)]), ("preparing", None)),
        (
            pod(containerStatuses=[started("keep-recipes", ready=True), started()]),
            ("starting", message("kube.starting", seconds=300, most=2400)),
        ),
        (
            {
                **pod(conditions=[{"type": "Ready", "status": "False"}]),
                "status": {"containerStatuses": [started()]},
                "spec": {"containers": [{"name": "engine", "startupProbe": {}}]},
            },
            # Kubernetes' own numbers: three times ten seconds
            ("starting", message("kube.starting", seconds=300, most=30)),
        ),
    ],
)
def test_the_phase_of_a_pod(item: dict[str, Any], expected: tuple[str, Message | None]) -> None:
    assert phase(item) == expected


REFUSED = "Pod was rejected: Allocate failed due to no healthy devices present"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        # kubelet.go rejectPod: without a container
        ({"reason": "UnexpectedAdmissionError", "message": REFUSED}, REFUSED),
        ({"reason": "NodeLost"}, "NodeLost"),
        (
            {
                "reason": "Evicted",
                "message": "The node was low on resource: memory.",
                "containerStatuses": [ended(exitCode=137, reason="Error")],
            },
            "The node was low on resource: memory.",
        ),
    ],
)
def test_a_pod_that_its_node_refused_or_evicted_has_failed(
    status: dict[str, Any], said: str
) -> None:
    item = pod(phase="Failed", conditions=[{"type": "PodScheduled", "status": "True"}], **status)
    why = message("kube.refused", reason=status["reason"], said=said)
    assert phase(item) == ("failed", why)


def test_a_pod_of_which_a_container_failed_has_that_reason() -> None:
    item = pod(phase="Failed", containerStatuses=[ended(exitCode=3)])
    assert phase(item) == ("failed", CRASHED)


def test_a_deleted_pod_is_ending_whatever_its_state() -> None:
    item = pod(conditions=[{"type": "Ready", "status": "True"}])
    item["metadata"]["deletionTimestamp"] = "2026-11-21T08:59:00Z"
    assert phase(item) == ("ending", None)


def test_the_age_of_an_unknown_or_later_time_is_nothing() -> None:
    ages = []
    for text in ("2026-11-21T08:59:58Z", "2026-11-21T09:00:05Z", "yesterday", None):
        item = thing("Pod", "a", metadata={"creationTimestamp": text})
        ages.append(statuses([item], NOW)[0].pods[0].seconds)
    assert ages == [2, 0, 0, 0]


@pytest.mark.parametrize(
    ("item", "name"),
    [
        (thing("Deployment", "chat", apiVersion="apps/v1"), "deployment.v1.apps/chat"),
        (thing("Service", "chat"), "service/chat"),
        (
            thing("LeaderWorkerSet", "r1", apiVersion="leaderworkerset.x-k8s.io/v1"),
            "leaderworkerset.v1.leaderworkerset.x-k8s.io/r1",
        ),
        (thing("Pod", "a", metadata={"ownerReferences": [{"kind": "ReplicaSet"}]}), ""),
        (thing("Pod", "a", metadata={"ownerReferences": []}), "pod/a"),
        (thing("Pod", "a", apiVersion=None), ""),
        (thing("Pod", "a", metadata={"name": 5}), ""),
        ({"apiVersion": "v1", "metadata": {"name": "a"}}, ""),
        (None, ""),
    ],
)
def test_an_object_is_named_for_kubectl_unless_a_controller_owns_it(item: Any, name: str) -> None:
    assert reference_of(item) == name


def test_logs_are_those_of_the_first_container_of_an_engines_pod() -> None:
    assert engine_of(pod()) == "engine"
    labels = {"app.kubernetes.io/component": "webui"}
    page = thing("Pod", "page", metadata={"labels": labels}, spec={"containers": [{"name": "x"}]})
    assert engine_of(page) == ""
    assert engine_of({**pod(), "kind": "Deployment"}) == ""
    assert engine_of({**pod(), "spec": {"containers": []}}) == ""
    assert engine_of(None) == ""


def test_every_kind_of_object_that_is_rendered_is_read_and_deleted() -> None:
    """A kind that is not listed stays in the cluster when its deployment is deleted."""
    texts = [path.read_text(encoding="utf-8") for path in goldens()]
    kinds = set()
    head = re.compile(r"^apiVersion: (\S+)\nkind: (\S+)$", re.MULTILINE)
    for api, kind in head.findall("\n".join(texts)):
        plural = {"Ingress": "ingresses"}.get(kind, f"{kind.lower()}s")
        group = api.rpartition("/")[0]
        kinds.add(f"{plural}.{group}" if group else plural)
    # pods are those of their controllers
    assert {*CORE, *OPTIONAL} == {*kinds, "pods"}
    # what a cluster may lack has a group of its own, and only ingresses have one of every cluster's
    assert [each for each in CORE if each.count(".") > 1] == ["ingresses.networking.k8s.io"]
    assert min(each.count(".") for each in OPTIONAL) > 1
