"""Objects around the engines: PVCs, scripts, scaling, monitor, ingress. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.kubernetes.chart_values import Knob, Name, TemplateText
from gaudi_launch.kubernetes.objects.pod import (
    ONE_NODE,
    claim,
    engine_mounts,
    knob,
    labels,
    scripts_of,
    selector,
)
from gaudi_launch.kubernetes.target import PORT, KubernetesTarget, ServedModel

METRIC = "gaudi_launch_requests"


def shared_labels(release: Name, component: str) -> dict[str, Any]:
    return {
        "app.kubernetes.io/name": release,
        "app.kubernetes.io/instance": release,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": "gaudi-launch",
    }


def access_mode(cluster: KubernetesTarget, models: Sequence[ServedModel]) -> str:
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
    cluster: KubernetesTarget, models: Sequence[ServedModel], release: Name
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
    release: Name, use: str, gib: int, mode: str, cluster: KubernetesTarget
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "accessModes": [Knob((use, "accessMode"), mode)],
        "resources": {"requests": {"storage": Knob((use, "size"), f"{gib}Gi")}},
    }
    if cluster.storage_class:
        spec["storageClassName"] = Knob((use, "storageClass"), cluster.storage_class)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim(release, use), "labels": shared_labels(release, "storage")},
        "spec": spec,
    }


def config_map(release: Name, use: str, files: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": claim(release, use), "labels": shared_labels(release, use)},
        "data": dict(files),
    }


def budget(served: ServedModel, cluster: KubernetesTarget, release: Name) -> dict[str, Any]:
    """Return a budget that allows as many evictions as an update takes.

    A budget of no evictions would keep a node from ever being drained. All pods of a group count:
    when one is evicted the others go too.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": served.name, "labels": labels(served, release)},
        "spec": {"maxUnavailable": cluster.at_once, "selector": {"matchLabels": selector(served)}},
    }


def monitor(served: ServedModel, release: Name) -> dict[str, Any]:
    """Return a monitor for the Prometheus operator.

    The metrics then carry the Service's name as ``service``.
    """
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {"name": served.name, "labels": labels(served, release)},
        "spec": {
            "selector": {"matchLabels": selector(served)},
            "endpoints": [{"port": "http", "path": "/metrics", "interval": "15s"}],
        },
    }


def scaler(
    served: ServedModel, cluster: KubernetesTarget, release: Name, target: Mapping[str, str]
) -> dict[str, Any]:
    """Return scaling on running and waiting requests.

    A pod's target is its number of concurrent requests: a launch takes minutes, so CPU use would
    react too late and is not informative. Never to none, and down slowly.
    """
    least = knob(served, "minReplicas", cluster.replicas, "number")
    most = knob(served, "maxReplicas", cluster.max_replicas, "number")
    metadata = {"name": served.name, "labels": labels(served, release)}
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
    behavior = {"scaleDown": down, "scaleUp": up}
    if cluster.autoscale == "keda":
        running, waiting = served.metrics
        ask = TemplateText(
            (
                f'sum({running}{{service="',
                served.name,
                f'"}}) + sum({waiting}{{service="',
                served.name,
                '"})',
            )
        )
        trigger = {
            "type": "prometheus",
            "metadata": {
                "serverAddress": Knob(("prometheus",), cluster.prometheus),
                "query": ask,
                "threshold": knob(
                    served, "requestsPerReplica", str(cluster.requests or served.requests), "text"
                ),
            },
        }
        return {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "metadata": metadata,
            "spec": {
                "scaleTargetRef": {**target, "name": served.name},
                "pollingInterval": 30,
                "cooldownPeriod": 300,
                "minReplicaCount": least,
                "maxReplicaCount": most,
                "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
                "triggers": [trigger],
            },
        }
    each = {
        "type": "AverageValue",
        "averageValue": knob(
            served, "requestsPerReplica", str(cluster.requests or served.requests), "text"
        ),
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": {
            "scaleTargetRef": {**target, "name": served.name},
            "minReplicas": least,
            "maxReplicas": most,
            "behavior": behavior,
            "metrics": [{"type": "Pods", "pods": {"metric": {"name": METRIC}, "target": each}}],
        },
    }


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
    cluster: KubernetesTarget, release: Name, api: Any, page: Any = None, routes: str = "/v1"
) -> dict[str, Any]:
    """Return an Ingress: ``routes`` to the model, the rest to the chat page.

    Without a page, everything goes to the model. Answers are streamed for minutes, which the
    annotations configure in nginx.
    """

    def path(prefix: str, name: Any, port: int) -> dict[str, Any]:
        backend = {"service": {"name": name, "port": {"number": port}}}
        return {"path": prefix, "pathType": "Prefix", "backend": backend}

    if page is None:
        paths = [path("/", api, PORT)]
    else:
        paths = [path(routes, api, PORT), path("/", page, 7860)]
    metadata: dict[str, Any] = {"name": release, "labels": shared_labels(release, "ingress")}
    if cluster.ingress_class == "nginx":
        metadata["annotations"] = {
            "nginx.ingress.kubernetes.io/proxy-buffering": "off",
            "nginx.ingress.kubernetes.io/proxy-read-timeout": "3600",
        }
    if cluster.ingress_class:
        chosen = {"ingressClassName": Knob(("ingress", "class"), cluster.ingress_class)}
    else:
        chosen = {}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": metadata,
        "spec": {
            **chosen,
            "rules": [
                {"host": Knob(("ingress", "host"), cluster.ingress_host), "http": {"paths": paths}}
            ],
        },
    }
