"""Plans as Kubernetes objects: plain YAML or a Helm chart.

Pure: only this package's files are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.render.rendered import Rendered
from gaudi_launch.core.render.yaml_text import documents, dump
from gaudi_launch.extensions.kubernetes.chart_values import Name, TemplateText, plain
from gaudi_launch.extensions.kubernetes.objects.deployment import deployment, service
from gaudi_launch.extensions.kubernetes.objects.extras import (
    access_mode,
    adapter_values,
    budget,
    config_map,
    ingress,
    monitor,
    monitoring_objects,
    scaler,
    storage,
)
from gaudi_launch.extensions.kubernetes.objects.gateway_objects import (
    KEYS_ENTRY,
    gateway_name,
    gateway_objects,
    keys_secret,
    tls_secret,
)
from gaudi_launch.extensions.kubernetes.objects.pod import engine_mounts, places_of, selector
from gaudi_launch.extensions.kubernetes.objects.webui_objects import webui
from gaudi_launch.extensions.kubernetes.options import KubernetesOptions
from gaudi_launch.extensions.kubernetes.schema_check import check
from gaudi_launch.extensions.kubernetes.target import ServedModel

# an object with the key of its model, "" for a shared one
Part = tuple[str, Mapping[str, Any]]


def parts_of(
    models: Sequence[ServedModel], cluster: KubernetesOptions, release: Name
) -> list[Part]:
    """Return every object, in the order in which it may be applied.

    Knobs are still in them.
    """
    found: list[Part] = [("", each) for each in storage(cluster, models, release)]
    if models[0].application:
        found.append(("", config_map(release, "application", models[0].application)))
    places = places_of(models)
    together = len(models) > 1 and not cluster.many
    for served in models:
        own = _objects_of(served, cluster, release, places, together)
        found += [(served.key, each) for each in own]
    return found + [("", each) for each in _around_models(models[0], cluster, release)]


def _objects_of(
    served: ServedModel,
    cluster: KubernetesOptions,
    release: Name,
    places: Mapping[str, str],
    together: bool,
) -> list[Mapping[str, Any]]:
    """Return the objects of one model."""
    main, pods = _main(served, cluster, release, places, together)
    found: list[Mapping[str, Any]] = [main]
    if pods:
        # a RayService creates its Services, and moves its pods itself
        found += [service(served, release, pods), budget(served, cluster, release)]
    if cluster.autoscale:
        target = {name: main[name] for name in ("apiVersion", "kind")}
        found.append(scaler(served, cluster, release, target))
    if cluster.monitor:
        found.append(monitor(served, release))
    return found


def _around_models(
    first: ServedModel, cluster: KubernetesOptions, release: Name
) -> list[Mapping[str, Any]]:
    """Return what all models share: gateway, chat page, monitoring, ingress."""
    found: list[Mapping[str, Any]] = []
    style, path = "chat", "/v1"
    if first.serve and not first.application:
        style, path = "infer", "/infer"
    if cluster.gateway is not None:
        found += gateway_objects(cluster.gateway, release)
    api, page = _api(first, cluster, release), None
    if cluster.webui:
        found += webui(cluster, release, api, first.model, style)
        page = Name(release.release, "webui")
    if cluster.monitor:
        found += monitoring_objects(release)
    if cluster.ingress_host:
        found.append(ingress(cluster, release, api, page, path))
    return found


def _api(first: ServedModel, cluster: KubernetesOptions, release: Name) -> Any:
    """Return the Service that clients use: the gateway's or the model's."""
    if cluster.gateway is not None:
        return gateway_name(release)
    if cluster.kind == "rayservice":
        # KubeRay creates it for ready pods
        return TemplateText((first.name, "-serve-svc"))
    return first.name


def _main(
    served: ServedModel,
    cluster: KubernetesOptions,
    release: Name,
    places: Mapping[str, str],
    together: bool,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the object that creates a model's pods, and the labels of ready ones.

    No labels: it has Services itself.
    """
    if cluster.kind == "leaderworkerset":
        from gaudi_launch.extensions.kubernetes.objects.leaderworkerset import (
            leader_worker_set,
            leaders,
        )

        return leader_worker_set(served, cluster, release, places), leaders(served)
    if cluster.kind == "rayservice":
        from gaudi_launch.extensions.kubernetes.objects.rayservice import ray_service

        return ray_service(served, cluster, release, places), {}
    return deployment(served, cluster, release, places, together), selector(served)


def render(models: Sequence[ServedModel], cluster: KubernetesOptions) -> Rendered:
    """Return plain YAML in one file.

    Raises LaunchError for what Kubernetes would refuse.
    """
    release = Name(cluster.release)
    objects = [plain(part) for _, part in parts_of(models, cluster, release)]
    check(objects)
    if cluster.namespace:
        objects = [_in(cluster.namespace, each) for each in objects]
    lines = header(models, cluster, "kubectl apply -f FILE")
    files = {f"{release.plain()}.yaml": documents((dump(each) for each in objects), lines)}
    if cluster.autoscale == "hpa":
        files["prometheus-adapter-values.yaml"] = documents([dump(adapter_values(models))])
    return Rendered(files, notes=notes(models, cluster, release))


def _in(namespace: str, found: Mapping[str, Any]) -> dict[str, Any]:
    metadata = found["metadata"]
    return {**found, "metadata": {"name": metadata["name"], "namespace": namespace, **metadata}}


def header(models: Sequence[ServedModel], cluster: KubernetesOptions, how: str) -> list[str]:
    """Return comment lines of a file: its content and ``how`` to use it.

    They are in English, as the other texts of the files are.
    """
    lines = [f"Made by gaudi-launch render kubernetes. Apply with: {how}"]
    waits = ""
    if cluster.node_count > 1:
        waits = "the other pods, "
    for served in models:
        needs = served.needs
        lines.append(
            f"{served.model}: a pod has {needs.cards} x {needs.resource}, {needs.cpus} CPUs and"
            f" {needs.memory_mib // 1024} GiB; its start may take {needs.start_seconds} s"
            f" ({waits}weights, then warm-up)."
        )
    if cluster.kind == "rayservice":
        lines.append(
            "One replica a pod, scaled by Ray: needs the KubeRay operator (v1.1 or newer)."
        )
    if cluster.kind == "leaderworkerset":
        lines.append(
            f"Groups of {cluster.node_count} pods, one per node: needs the LeaderWorkerSet "
            "controller (v0.6 or newer)."
        )
    return lines


def notes(
    models: Sequence[ServedModel], cluster: KubernetesOptions, release: Name
) -> tuple[Message, ...]:
    """Return the assumptions of the files, and what the user has to do."""
    found: list[Message] = []
    places = places_of(models)
    claim = cluster.weights_claim or Name(release.release, "weights").plain()
    for served in models:
        found += served.needs.notes
        folders = [mount for mount in engine_mounts(served) if not mount.fill]
        found += [
            message("kubernetes.weights", claim=claim, path=m.source, place=places[m.source])
            for m in folders
        ]
    claims = "PersistentVolumeClaim" in {each["kind"] for each in storage(cluster, models, release)}
    if claims and not cluster.storage_class and access_mode(cluster, models) == "ReadWriteMany":
        found.append(message("kubernetes.many_nodes"))
    if cluster.monitor:
        names = " ".join(served.name.plain() for served in models)
        found.append(message("monitoring.in_cluster"))
        found.append(message("kubernetes.monitor", names=names))
    if cluster.secret_names:
        names = ", ".join(cluster.secret_names)
        found.append(message("kubernetes.secret", secret=cluster.secret, names=names))
    found += _gateway_notes(cluster, release)
    found += _controller_notes(cluster)
    if models[0].example_image:
        found.append(message("kubernetes.neuron_image", image=models[0].container.image))
    return tuple(dict.fromkeys(found))


def _controller_notes(cluster: KubernetesOptions) -> list[Message]:
    """Return what the user does for autoscaling and for groups of pods."""
    found = []
    if cluster.autoscale == "hpa":
        found.append(message("kubernetes.adapter"))
    if cluster.kind == "leaderworkerset":
        found.append(message("kubernetes.experimental", interface=cluster.interface))
        if "RAY_AUTH_TOKEN" not in cluster.secret_names:
            found.append(message("kubernetes.ray_token"))
    if cluster.kind == "rayservice":
        found.append(message("kubernetes.ray_update"))
    return found


def _gateway_notes(cluster: KubernetesOptions, release: Name) -> list[Message]:
    """Return what the user provides for the gateway: image and Secrets."""
    gateway = cluster.gateway
    if gateway is None:
        return []
    found = [message("kubernetes.gateway", name=gateway_name(release).plain())]
    found.append(message("kubernetes.gateway_image", image=gateway.image))
    if gateway.secrets.keys:
        secret = keys_secret(release)
        found.append(message("kubernetes.gateway_keys", secret=secret, entry=KEYS_ENTRY))
    if gateway.secrets.certificate:
        found.append(message("kubernetes.gateway_tls", secret=tls_secret(release)))
    return found
