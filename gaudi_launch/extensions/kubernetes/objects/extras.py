"""Objects around the engines: PVCs, scripts, scaling, monitor, ingress. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.render.monitoring import dashboard, rule_groups
from gaudi_launch.extensions.kubernetes.chart_values import Checksum, Knob, Name
from gaudi_launch.extensions.kubernetes.objects.pod import (
    ONE_NODE,
    claim,
    engine_mounts,
    knob,
    labels,
    manifest,
    pod_metadata,
    scripts_of,
    selector,
)
from gaudi_launch.extensions.kubernetes.options import KubernetesOptions
from gaudi_launch.extensions.kubernetes.target import PORT, ServedModel

METRIC = "gaudi_launch_requests"


def shared_labels(release: Name, component: str) -> dict[str, Any]:
    return {
        "app.kubernetes.io/name": release,
        "app.kubernetes.io/instance": release,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": "gaudi-launch",
    }


def access_mode(cluster: KubernetesOptions, models: Sequence[ServedModel]) -> str:
    """Return the access mode of the PVCs.

    Raises LaunchError (USAGE) where pods on several nodes would wait forever for one PVC.
    """
    many = cluster.many or len(models) > 1
    # models of one release are kept on one node where their PVCs are
    apart = cluster.many if cluster.access_mode == ONE_NODE else many
    if cluster.access_mode in (ONE_NODE, "ReadWriteOncePod") and apart:
        raise LaunchError("kubernetes.access_mode", ExitCode.USAGE, found=cluster.access_mode)
    return cluster.access_mode or ("ReadWriteMany" if many else ONE_NODE)


def storage(
    cluster: KubernetesOptions, models: Sequence[ServedModel], release: Name
) -> list[dict[str, Any]]:
    """Return the PVCs of weights and compiled graphs, and the scripts.

    The weights have no PVC where the user names an existing one.
    """
    mode = access_mode(cluster, models)
    found = []
    if any(engine_mounts(served) for served in models) and not cluster.weights_claim:
        size = sum(served.needs.disk_gib for served in models)
        found.append(_claim(release, "weights", size, mode, cluster))
    recipes = [served for served in models if served.recipe_key]
    if recipes:
        # twice the size: the graphs of the image's next release are stored next to this one's
        size = max(1, sum(2 * served.recipe_mib for served in recipes) // 1024)
        found.append(_claim(release, "recipes", size, mode, cluster))
    scripts = scripts_of(models, cluster)
    if scripts:
        found.append(config_map(release, "scripts", scripts))
    found += [config_map(release, f"plan-{each.key}", each.files) for each in models if each.files]
    return found


def _claim(
    release: Name, use: str, gib: int, mode: str, cluster: KubernetesOptions
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "accessModes": [Knob((use, "accessMode"), mode)],
        "resources": {"requests": {"storage": Knob((use, "size"), f"{gib}Gi")}},
    }
    if cluster.storage_class:
        spec["storageClassName"] = Knob((use, "storageClass"), cluster.storage_class)
    name, labels = claim(release, use), shared_labels(release, "storage")
    return manifest("PersistentVolumeClaim", name, labels, spec=spec)


def config_map(release: Name, use: str, files: Mapping[str, str]) -> dict[str, Any]:
    return manifest("ConfigMap", claim(release, use), shared_labels(release, use), data=dict(files))


def server(
    release: Name, component: str, reads: Mapping[str, Checksum], pod: Mapping[str, Any], port: int
) -> list[dict[str, Any]]:
    """Return the Deployment of one pod without cards, and its Service."""
    name = claim(release, component)
    labels = {**shared_labels(release, component), "app.kubernetes.io/name": name}
    selector = {"app.kubernetes.io/name": name, "app.kubernetes.io/component": component}
    pods = {
        "replicas": 1,
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": selector},
        "template": {"metadata": pod_metadata(labels, reads), "spec": pod},
    }
    reached = {
        "type": "ClusterIP",
        "selector": selector,
        "ports": [{"name": "http", "port": port, "targetPort": "http"}],
    }
    return [
        manifest("Deployment", name, labels, spec=pods),
        manifest("Service", name, labels, spec=reached),
    ]


def budget(served: ServedModel, cluster: KubernetesOptions, release: Name) -> dict[str, Any]:
    """Return a budget that allows as many evictions as an update takes.

    A budget of no evictions would keep a node from ever being drained. All pods of a group count:
    when one is evicted the others go too.
    """
    spec = {"maxUnavailable": cluster.at_once, "selector": {"matchLabels": selector(served)}}
    return manifest("PodDisruptionBudget", served.name, labels(served, release), spec=spec)


def monitor(served: ServedModel, release: Name) -> dict[str, Any]:
    """Return a monitor for the Prometheus operator.

    The metrics then carry the Service's name as ``service``.
    """
    spec = {
        "selector": {"matchLabels": selector(served)},
        "endpoints": [{"port": "http", "path": "/metrics", "interval": "15s"}],
    }
    return manifest("ServiceMonitor", served.name, labels(served, release), spec=spec)


def scaler(
    served: ServedModel, cluster: KubernetesOptions, release: Name, target: Mapping[str, str]
) -> dict[str, Any]:
    """Return scaling on running and waiting requests.

    A pod's target is its number of concurrent requests: a launch takes minutes, so CPU use would
    react too late and is not informative. Never to none, and down slowly.
    """
    # the numbers of opea-project/GenAIInfra@9200b371:helm-charts/common/vllm,
    # horizontal-pod-autoscaler.yaml
    down = {
        "stabilizationWindowSeconds": 180,
        "policies": [{"type": "Percent", "value": 25, "periodSeconds": 90}],
    }
    up = {
        "stabilizationWindowSeconds": 0,
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 90}],
    }
    each = {
        "type": "AverageValue",
        "averageValue": knob(
            served, "requestsPerReplica", str(cluster.requests or served.requests), "text"
        ),
    }
    spec = {
        "scaleTargetRef": {**target, "name": served.name},
        "minReplicas": knob(served, "minReplicas", cluster.replicas, "number"),
        "maxReplicas": knob(served, "maxReplicas", cluster.max_replicas, "number"),
        "behavior": {"scaleDown": down, "scaleUp": up},
        "metrics": [{"type": "Pods", "pods": {"metric": {"name": METRIC}, "target": each}}],
    }
    return manifest("HorizontalPodAutoscaler", served.name, labels(served, release), spec=spec)


def adapter_values(models: Sequence[ServedModel]) -> dict[str, Any]:
    """Return values for the chart of prometheus-adapter.

    It provides the metric that the HorizontalPodAutoscaler reads.
    """
    pairs = sorted({served.metrics for served in models})
    return {
        "rules": {
            "custom": [
                {
                    "seriesQuery": f'{waiting}{{namespace!="",pod!=""}}',
                    "resources": {
                        "overrides": {
                            "namespace": {"resource": "namespace"},
                            "pod": {"resource": "pod"},
                        }
                    },
                    "name": {"as": METRIC},
                    "metricsQuery": f"sum({running}{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)"
                    f" + sum({waiting}{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)",
                }
                for running, waiting in pairs
            ]
        }
    }


def ingress(
    cluster: KubernetesOptions, release: Name, api: Any, page: Any = None, routes: str = "/v1"
) -> dict[str, Any]:
    """Return an Ingress: ``routes`` to the model, the rest to the chat page.

    Without a page, everything goes to the model. Answers are streamed for minutes, which the
    annotations configure in nginx.
    """

    def path(prefix: str, name: Any, port: int) -> dict[str, Any]:
        backend = {"service": {"name": name, "port": {"number": port}}}
        return {"path": prefix, "pathType": "Prefix", "backend": backend}

    paths = [path("/", api, PORT)]
    if page is not None:
        paths = [path(routes, api, PORT), path("/", page, 7860)]
    spec: dict[str, Any] = {}
    if cluster.ingress_class:
        spec["ingressClassName"] = Knob(("ingress", "class"), cluster.ingress_class)
    host = Knob(("ingress", "host"), cluster.ingress_host)
    spec["rules"] = [{"host": host, "http": {"paths": paths}}]
    found = manifest("Ingress", release, shared_labels(release, "ingress"), spec=spec)
    if cluster.ingress_class == "nginx":
        found["metadata"]["annotations"] = {
            "nginx.ingress.kubernetes.io/proxy-buffering": "off",
            "nginx.ingress.kubernetes.io/proxy-read-timeout": "3600",
        }
    return found


# the label by which the Grafana chart's sidecar finds dashboards (grafana/helm-charts:
# charts/grafana/values.yaml)
_DASHBOARD_LABEL = {"grafana_dashboard": "1"}


def monitoring_objects(release: Name) -> list[dict[str, Any]]:
    """Return a PrometheusRule and a ConfigMap with the dashboard."""
    name, labels = claim(release, "alerts"), shared_labels(release, "alerts")
    rules = manifest("PrometheusRule", name, labels, spec=rule_groups())
    made = config_map(
        release, "dashboard", {"gaudi-launch.json": json.dumps(dashboard(), indent=1) + "\n"}
    )
    made["metadata"]["labels"] |= _DASHBOARD_LABEL
    return [rules, made]
