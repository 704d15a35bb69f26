"""What no schema holds: objects that name each other do, and the numbers of one fit those of the
next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kubernetes_documents import CASES, R1, TGI, _plain, goldens, objects, rendered

__all__ = ["_plain"]
Object = dict[str, Any]
GAUDI = "habana.ai/gaudi"
MORE = {
    "odd-name": (
        "-w", "/data/my models/模型_V1.0---", "-n", "2", "--engine", "vllm-gaudi", "--accelerator",
        "gaudi3-pcie", "--autoscale", "hpa", "--replicas", "2..1000", "--monitor", "-p", "9000",
        "-u", "127.0.0.1"
    ),
    "all-at-once": (
        *R1, "--kind", "leaderworkerset", "--autoscale", "hpa", "--replicas", "40..1000",
        "--monitor", "--webui", "--ingress-host", "*.example.com", "--secret",
        "hub:HF_TOKEN,VLLM_API_KEY,RAY_AUTH_TOKEN", "--name", "r1"
    ),
    "tgi-in-a-folder": (*TGI, "-n", "8", "--replicas", "3", "--no-recipes", "--webui"),
}  # fmt: skip


def pods_of(found: Object) -> Iterator[tuple[Mapping[str, str], Object]]:
    """(labels, spec) of every pod that an object makes."""
    if "metadata" in found and "containers" in found.get("spec", {}):
        yield found["metadata"].get("labels", {}), found["spec"]
        return
    for part in found.values():
        for inner in part if isinstance(part, list) else [part]:
            if isinstance(inner, dict):
                yield from pods_of(inner)


def selects(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(name) == value for name, value in wanted.items())


def hold(found: list[Object], own_claim: str = "") -> None:
    """Assert every truth of these objects."""
    named = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert len(named) == len(found)
    assert all(re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name) for _, name in named)
    pods = [(each, labels, spec) for each in found for labels, spec in pods_of(each)]
    for each, _, spec in pods:
        _volumes_are_used(spec, named, own_claim)
        for container in spec["containers"]:
            _resources_are_whole(container, spec)
            _a_start_is_waited_for(container, each)
    for each in found:
        if each["kind"] == "Service":
            _one_kind_of_pod_answers(each, pods)
        elif each["kind"] == "PodDisruptionBudget":
            _guards_all_pods_of_one(each, pods)
        elif each["kind"] == "HorizontalPodAutoscaler":
            _scales_what_is_there(each, named)
        elif each["kind"] == "ServiceMonitor":
            services = [o for (kind, _), o in named.items() if kind == "Service"]
            wanted = each["spec"]["selector"]["matchLabels"]
            assert sum(selects(wanted, service["metadata"]["labels"]) for service in services) == 1
        elif each["kind"] == "Ingress":
            _routes_lead_to_ports(each, named)
        elif each["kind"] == "LeaderWorkerSet":
            _workers_find_their_leader(each)


def _guards_all_pods_of_one(
    budget: Object, pods: list[tuple[Object, Mapping[str, str], Object]]
) -> None:
    """Also the workers of a group: one of them gone takes the group along."""
    wanted = budget["spec"]["selector"]["matchLabels"]
    owners = {owner["metadata"]["name"] for owner, labels, _ in pods if selects(wanted, labels)}
    assert owners == {budget["metadata"]["name"]}
    assert all(
        selects(wanted, labels) for owner, labels, _ in pods if owner["metadata"]["name"] in owners
    )


def _volumes_are_used(
    spec: Object, named: Mapping[tuple[str, str], Object], own_claim: str
) -> None:
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    containers = [*spec.get("initContainers", ()), *spec["containers"]]
    assert {mount["name"] for c in containers for mount in c.get("volumeMounts", ())} == set(
        volumes
    )
    for volume in volumes.values():
        if "configMap" in volume:
            assert ("ConfigMap", volume["configMap"]["name"]) in named
        claim = volume.get("persistentVolumeClaim", {}).get("claimName", own_claim)
        assert claim == own_claim or ("PersistentVolumeClaim", claim) in named


def _resources_are_whole(container: Object, spec: Object) -> None:
    limits, requests = (container["resources"][kind] for kind in ("limits", "requests"))
    assert int(limits.get("hugepages-2Mi", "0Mi").removesuffix("Mi")) % 2 == 0
    if GAUDI in limits:
        assert limits == requests
        (shm,) = [volume["emptyDir"] for volume in spec["volumes"] if volume["name"] == "shm"]
        assert shm["medium"] == "Memory"
        assert int(shm["sizeLimit"].removesuffix("Mi")) < int(limits["memory"].removesuffix("Mi"))
        assert "SYS_NICE" in container["securityContext"]["capabilities"]["add"]
    for entry in container.get("env", ()):
        assert not re.search("HABANA_VISIBLE|HLS_MODULE", entry["name"])
        assert "valueFrom" in entry or not re.search("TOKEN$|API_KEY$", entry["name"])


def _a_start_is_waited_for(container: Object, owner: Object) -> None:
    probe = container.get("startupProbe")
    if probe is None:
        assert "livenessProbe" not in container
        return
    seconds = probe["periodSeconds"] * probe["failureThreshold"]
    assert seconds >= 1800
    if owner["kind"] == "Deployment":
        assert owner["spec"]["progressDeadlineSeconds"] > seconds
        # a second set of cards is nobody's
        assert owner["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 0
    names = {port["name"] for port in container["ports"]}
    assert {
        container[kind]["httpGet"]["port"] for kind in ("startupProbe", "readinessProbe")
    } <= names


def _one_kind_of_pod_answers(
    service: Object, pods: list[tuple[Object, Mapping[str, str], Object]]
) -> None:
    (answers,) = [spec for _, labels, spec in pods if selects(service["spec"]["selector"], labels)]
    ports = {
        port["name"]: port["containerPort"]
        for c in answers["containers"]
        for port in c.get("ports", ())
    }
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= set(ports)
    words = answers["containers"][0].get("args", [])
    if "--port" in words:
        assert words[words.index("--port") + 1] == str(ports["http"])
    if "--host" in words:
        assert words[words.index("--host") + 1] == "0.0.0.0"


def _scales_what_is_there(scaler: Object, named: Mapping[tuple[str, str], Object]) -> None:
    target = scaler["spec"]["scaleTargetRef"]
    there = named[target["kind"], target["name"]]
    assert there["apiVersion"] == target["apiVersion"] and "replicas" not in there["spec"]


def _routes_lead_to_ports(ingress: Object, named: Mapping[tuple[str, str], Object]) -> None:
    for rule in ingress["spec"]["rules"]:
        for path in rule["http"]["paths"]:
            backend = path["backend"]["service"]
            service = named.get(("Service", backend["name"]))
            # KubeRay makes the Service of a RayService
            assert service or ("RayService", backend["name"].removesuffix("-serve-svc")) in named
            assert service is None or backend["port"]["number"] in [
                p["port"] for p in service["spec"]["ports"]
            ]


def _workers_find_their_leader(found: Object) -> None:
    group = found["spec"]["leaderWorkerTemplate"]
    leader, worker = (
        group[role]["spec"]["containers"][0] for role in ("leaderTemplate", "workerTemplate")
    )
    assert "$(LWS_GROUP_SIZE)" in leader["command"] and "$(LWS_LEADER_ADDRESS)" in worker["command"]
    assert leader["env"] == worker["env"] and leader["resources"] == worker["resources"]
    names = {entry["name"] for entry in leader["env"]}
    assert {"VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME"} <= names
    assert found["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]["maxSurge"] == 0


@pytest.mark.parametrize("path", goldens(), ids=lambda path: path.stem)
def test_of_every_golden_shape(path: Path) -> None:
    hold(
        objects(path.read_text(encoding="utf-8")),
        "weights" if "--weights-claim" in CASES[path.stem] else "",
    )


@pytest.mark.parametrize("case", MORE)
def test_of_odd_wishes(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    hold(objects(rendered(capsys, *MORE[case])))


def test_a_broken_truth_is_seen() -> None:
    """The assertions themselves: each of these changes breaks one."""
    text = next(path for path in goldens() if path.stem == "deployment-gaudi3-hpa").read_text(
        encoding="utf-8"
    )
    for good, bad in (
        ("targetPort: http", "targetPort: web"),
        ("name: qwen3-8b-weights", "name: other"),
        ("containerPort: 8000", "containerPort: 8001"),
        ("    kind: Deployment\n    name: qwen3-8b", "    kind: Deployment\n    name: other"),
        ("medium: Memory", 'medium: ""'),
        ("maxSurge: 0", "maxSurge: 1"),
    ):
        assert good in text
        with pytest.raises((AssertionError, KeyError, ValueError)):
            hold([found for found in yaml.safe_load_all(text.replace(good, bad, 1)) if found])
