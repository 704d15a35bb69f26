"""Plans as Kubernetes objects: plain YAML, a kustomization, or a Helm chart. Pure: no file is read but our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gaudi_launch.messages import Message, message
from gaudi_launch.render import leaderworkerset as lws
from gaudi_launch.render.knobs import Name, plain
from gaudi_launch.render.kubernetes_check import check
from gaudi_launch.render.kubernetes_deployment import deployment, service
from gaudi_launch.render.kubernetes_extras import adapter_values, budget, ingress, monitor, scaler, storage
from gaudi_launch.render.kubernetes_pod import engine_mounts, places_of, selector
from gaudi_launch.render.kubernetes_records import Cluster, Served
from gaudi_launch.render.kubernetes_webui import webui
from gaudi_launch.render.records import Rendered
from gaudi_launch.render.yaml_text import documents, dump

# an object with the key of the model it belongs to, "" for what all share
Part = tuple[str, Mapping[str, Any]]


def parts_of(models: Sequence[Served], cluster: Cluster, release: Name) -> list[Part]:
    """Every object, in the order in which it may be applied; knobs are still in it."""
    found: list[Part] = [("", each) for each in storage(cluster, models, release)]
    places = places_of(models)
    for served in models:
        if cluster.kind == "leaderworkerset":
            main: dict[str, Any] = lws.leader_worker_set(served, cluster, release, places)
            pods = lws.leaders(served)
        else:
            main = deployment(served, cluster, release, places, together=len(models) > 1 and not cluster.many)
            pods = selector(served)
        target = {name: main[name] for name in ("apiVersion", "kind")}
        extra = [service(served, release, pods)]
        extra.append(budget(served, release, pods))
        if cluster.scaled:
            extra.append(scaler(served, cluster, release, target))
        if cluster.monitor:
            extra.append(monitor(served, release))
        found += [(served.key, each) for each in (main, *extra)]
    page = None
    if cluster.webui:
        found += [("", each) for each in webui(cluster, release, models[0].name, models[0].model)]
        page = Name(release.release, "webui")
    if cluster.ingress_host:
        found.append(("", ingress(cluster, release, models[0].name, page)))
    return found


def render(models: Sequence[Served], cluster: Cluster, *, kustomize: bool = False) -> Rendered:
    """Plain YAML in one file; with ``kustomize`` also a kustomization that names it.

    Raises LaunchError for what Kubernetes would refuse.
    """
    release = Name(cluster.release)
    objects = [plain(part) for _, part in parts_of(models, cluster, release)]
    check(objects)
    if cluster.namespace:
        objects = [_in(cluster.namespace, each) for each in objects]
    file = f"{release.plain()}.yaml"
    files = {file: documents((dump(each) for each in objects), header(models, cluster))}
    if kustomize:
        entry: dict[str, Any] = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
        if cluster.namespace:
            entry["namespace"] = cluster.namespace
        files["kustomization.yaml"] = dump({**entry, "resources": [file]})
    if cluster.autoscale == "hpa":
        files["prometheus-adapter-values.yaml"] = documents([dump(adapter_values(models))])
    return Rendered(files, notes=notes(models, cluster, release))


def _in(namespace: str, found: Mapping[str, Any]) -> dict[str, Any]:
    metadata = found["metadata"]
    return {**found, "metadata": {"name": metadata["name"], "namespace": namespace, **metadata}}


def header(models: Sequence[Served], cluster: Cluster, how: str = "kubectl apply -f FILE") -> list[str]:
    """Comment lines of a file: what it is and ``how`` to use it. English, as all of such a file is."""
    lines = [f"Made by gaudi-launch render kubernetes. Apply with: {how}"]
    for served in models:
        needs = served.needs
        lines.append(
            f"{served.model}: {needs.cards} cards, {needs.cpus} CPUs, {needs.memory_mib // 1024} GiB a pod;"
            f" its start may take {needs.start_seconds} s (weights, then warm-up)."
        )
    if cluster.kind == "leaderworkerset":
        lines.append(
            f"Groups of {cluster.nodes} pods, one a node: needs the LeaderWorkerSet controller (v0.6 or newer)."
        )
    return lines


def notes(models: Sequence[Served], cluster: Cluster, release: Name) -> tuple[Message, ...]:
    """What the files assume and what the user has to do."""
    found: list[Message] = []
    places = places_of(models)
    claim = cluster.weights_claim or Name(release.release, "weights").plain()
    for served in models:
        found += served.needs.notes
        folders = [mount for mount in engine_mounts(served) if mount.read_only]
        found += [
            message("kubernetes.weights", claim=claim, path=m.source, place=places[m.source]) for m in folders
        ]
    if cluster.secret_names:
        names = ", ".join(cluster.secret_names)
        found.append(message("kubernetes.secret", secret=cluster.secret, names=names))
    if cluster.autoscale == "hpa":
        found.append(message("kubernetes.adapter"))
    if cluster.kind == "leaderworkerset":
        found.append(message("kubernetes.experimental", interface=cluster.interface))
    return tuple(dict.fromkeys(found))
