"""The pod of one engine, for Deployment, LeaderWorkerSet and RayService. Pure."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.reader import standalone
from gaudi_launch.core.engines.docker_command import SCALE_OUT_CAPABILITIES
from gaudi_launch.core.planning.container import IMAGE_DATA, Container, Mount
from gaudi_launch.core.render.plan_container import HUB_FOLDERS
from gaudi_launch.extensions.kubernetes.chart_values import Checksum, Knob, Name
from gaudi_launch.extensions.kubernetes.options import KubernetesOptions
from gaudi_launch.extensions.kubernetes.target import ServedModel

ONE_NODE = "ReadWriteOnce"
RECIPE_VARIABLE = "PT_HPU_RECIPE_CACHE_CONFIG"
RECIPES, KEPT, SCRIPTS = "/var/cache/recipes", "/mnt/recipes", "/opt/gaudi-launch"
PLAN_FILES = "/opt/gaudi-launch-plan"
HUB_HOME = "/models/huggingface"
_PROBE_SECONDS = 10
# the kubelet's default for "not requested"; the longest drain of our pods (TGI: 90 s)
_GRACE_SECONDS = 120
_DRAIN_SECONDS = 10  # until every proxy has taken the pod out of the Service (assumed)


# the API in which each kind of object is written
_API = {
    **dict.fromkeys(("ConfigMap", "PersistentVolumeClaim", "Service"), "v1"),
    **dict.fromkeys(("PrometheusRule", "ServiceMonitor"), "monitoring.coreos.com/v1"),
    "Deployment": "apps/v1",
    "HorizontalPodAutoscaler": "autoscaling/v2",
    "Ingress": "networking.k8s.io/v1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
    "RayService": "ray.io/v1",
}


def manifest(kind: str, name: Any, labels: Mapping[str, Any], **parts: Any) -> dict[str, Any]:
    """Return an object of its kind: metadata, then `parts` (mostly a spec)."""
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": _API[kind], "kind": kind, "metadata": metadata, **parts}


def labels(served: ServedModel, release: Name | str, component: str = "engine") -> dict[str, Any]:
    """Return the labels of a model's objects.

    ``kube status`` finds them by the instance.
    """
    return {
        "app.kubernetes.io/name": served.name,
        "app.kubernetes.io/instance": release,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": "gaudi-launch",
    }


def selector(served: ServedModel) -> dict[str, Any]:
    return {"app.kubernetes.io/name": served.name, "app.kubernetes.io/component": "engine"}


def literal(text: str) -> str:
    """Return a text that Kubernetes does not change.

    It replaces $(NAME) in arguments and variables, and halves $$.

    >>> literal("$(HOME) costs 5$"), literal("5$")
    ('$$(HOME) costs 5$$', '5$')
    """
    if "$(" in text or "$$" in text:
        return text.replace("$", "$$")
    return text


def port_of(container: Container) -> int:
    """Return the port on which the engine listens inside its pod."""
    if not container.ports:
        return 8000
    return container.ports[0][1]


def knob(served: ServedModel, name: str, default: Any, form: Any = "block") -> Knob:
    return Knob(("models", served.key, name), default, form)


def engine_container(
    served: ServedModel, cluster: KubernetesOptions, places: Mapping[str, str]
) -> dict[str, Any]:
    """Return the container of the engine.

    ``places`` gives the path of each mount in the weights' PVC.
    """
    container, port = served.container, port_of(served.container)
    words: dict[str, Any] = {}
    if container.entry:
        words = {"command": list(container.entry)}
    path = {"path": container.health, "port": "http"}
    # docs: Docker Installation requires --cap-add=sys_nice; nothing else of the host is needed
    # within a link group
    capabilities = ["SYS_NICE"]
    if container.scale_out:
        capabilities += SCALE_OUT_CAPABILITIES
    tries = math.ceil(served.needs.start_seconds / _PROBE_SECONDS)
    probe = {"httpGet": path, "periodSeconds": _PROBE_SECONDS, "timeoutSeconds": 5}
    return {
        "name": "engine",
        "image": knob(served, "image", container.image, "text"),
        **words,
        "args": [literal(word) for word in container.argv],
        "env": env_of(served, cluster),
        "ports": [{"name": "http", "containerPort": port}],
        "resources": served.needs.resources(),
        "securityContext": {"capabilities": {"add": capabilities}},
        "volumeMounts": mounts_of(served, places),
        # the engine refuses connections until it is warm; only the startup probe runs until then
        "startupProbe": {**probe, "failureThreshold": tries},
        "readinessProbe": {**probe, "periodSeconds": 5, "failureThreshold": 3},
        # HabanaAI/vllm-fork@17a7946f:scripts/vllm-multi-model-chart gives an engine two minutes,
        # too
        "livenessProbe": {**probe, "failureThreshold": 12},
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(_DRAIN_SECONDS)]}}},
    }


def env_of(served: ServedModel, cluster: KubernetesOptions) -> list[Any]:
    """Return the variables; secrets by reference.

    Those that only the pod knows come first, so that others may use them.
    """
    elsewhere = (*served.env_from, *cluster.secret_names)
    values = {
        name: literal(value)
        for name, value in served.container.env.items()
        if name not in elsewhere
    }
    if values.get(RECIPE_VARIABLE):
        values[RECIPE_VARIABLE] = RECIPES + "," + values[RECIPE_VARIABLE].partition(",")[2]
    if (
        any(mount.source == HUB_HOME for mount in engine_mounts(served))
        and "HF_HOME" not in elsewhere
    ):
        values["HF_HOME"] = HUB_HOME
    known = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in served.env_from.items()
    ]
    hidden = [from_secret(cluster, name) for name in cluster.secret_names]
    planned = [{"name": name, "value": value} for name, value in sorted(values.items())]
    return [*known, *planned, *hidden]


def from_secret(cluster: KubernetesOptions, name: str) -> dict[str, Any]:
    """Return a variable whose value is an entry of the user's Secret."""
    entry = {"name": Knob(("secret",), cluster.secret), "key": name}
    return {"name": name, "valueFrom": {"secretKeyRef": entry}}


def engine_mounts(served: ServedModel) -> list[Mount]:
    """Return the engine's mounts in the weights' PVC.

    For a model from a hub also the folder where it is stored, if the engine has none for that. The
    recipe cache has a separate one.
    """
    recipe = served.container.env.get(RECIPE_VARIABLE, "").split(",")[0]
    ours = {f"{PLAN_FILES}/{name}" for name in served.files}
    mounts = [
        mount
        for mount in served.container.mounts
        if mount.source != recipe and mount.source not in ours
    ]
    # a name of a hub, not a folder
    if not served.model.startswith("/") and not _keeps_models(served.container):
        mounts.append(Mount(HUB_HOME, HUB_HOME, fill=True))
    return mounts


def _keeps_models(container: Container) -> bool:
    """Return True if the engine has a folder for what it fetches.

    A variable names it, or the image has one.
    """
    named = any(name in container.env for name in HUB_FOLDERS)
    return named or any(
        mount.target in (IMAGE_DATA, f"{IMAGE_DATA}/hub") for mount in container.mounts
    )


def places_of(models: Sequence[ServedModel]) -> dict[str, str]:
    """Return the place of each mounted path in the PVC.

    It is the path's last part, or the absolute path where two share that. Raises LaunchError
    (USAGE) for a path that Kubernetes cannot mount.
    """
    sources = sorted({mount.source for served in models for mount in engine_mounts(served)})
    names = [PurePosixPath(source).name for source in sources]
    for source in sources:
        if ":" in source or posixpath.normpath(source) != source or source == "/" or "$" in source:
            raise LaunchError("kubernetes.path", ExitCode.USAGE, path=source)
    return {
        source: name if names.count(name) == 1 else source.lstrip("/")
        for source, name in zip(sources, names, strict=True)
    }


def mounts_of(served: ServedModel, places: Mapping[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"name": "shm", "mountPath": "/dev/shm"}]
    for mount in engine_mounts(served):
        entry: dict[str, Any] = {
            "name": "weights",
            "mountPath": mount.target,
            "subPath": places[mount.source],
        }
        if mount.read_only:
            entry["readOnly"] = True
        found.append(entry)
    if served.recipe_key:
        found.append({"name": "recipes", "mountPath": RECIPES})
    if served.files:
        found.append({"name": "plan", "mountPath": PLAN_FILES, "readOnly": True})
    return found


def recipe_containers(served: ServedModel) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return (init containers, sidecars) that bring and keep the compiled graphs."""
    if not served.recipe_key:
        return [], []
    url = f"http://127.0.0.1:{port_of(served.container)}{served.container.health}"
    shared: dict[str, Any] = {
        "image": knob(served, "image", served.container.image, "text"),
        "volumeMounts": [
            {"name": "recipes", "mountPath": RECIPES},
            {"name": "kept-recipes", "mountPath": KEPT, "subPath": served.recipe_key},
            {"name": "scripts", "mountPath": SCRIPTS, "readOnly": True},
        ],
    }

    def container(step: str, *words: str, **amounts: str) -> dict[str, Any]:
        return {
            "name": f"{step}-recipes",
            "command": ["python3", f"{SCRIPTS}/keep_recipes.py", step, *words],
            **shared,
            "resources": {"requests": amounts, "limits": amounts},
        }

    # the resources of an init container return to the engine: it may use them
    bring = container("bring", KEPT, RECIPES, cpu="2", memory="1Gi")
    return [bring], [container("keep", RECIPES, KEPT, url, cpu="200m", memory="512Mi")]


def volumes_of(
    served: ServedModel, cluster: KubernetesOptions, release: Name
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{served.needs.shm_mib}Mi"}}
    ]
    if engine_mounts(served):
        found.append(
            {
                "name": "weights",
                "persistentVolumeClaim": {"claimName": weights_claim(cluster, release)},
            }
        )
    if served.recipe_key:
        found += [
            {
                "name": "recipes",
                "emptyDir": {"sizeLimit": f"{math.ceil(served.recipe_mib * 1.25)}Mi"},
            },
            {
                "name": "kept-recipes",
                "persistentVolumeClaim": {"claimName": claim(release, "recipes")},
            },
        ]
    for volume, read in config_maps(served, cluster).items():
        found.append({"name": volume, "configMap": {"name": claim(release, read.suffix)}})
    return found


def config_maps(served: ServedModel, cluster: KubernetesOptions) -> dict[str, Checksum]:
    """Return the ConfigMaps that a model's pods read, by volume."""
    found: dict[str, Checksum] = {}
    if served.files:
        found["plan"] = Checksum(f"plan-{served.key}", served.files)
    scripts = scripts_of([served], cluster)
    if scripts:
        found["scripts"] = Checksum("scripts", scripts)
    return found


def pod_metadata(
    labels: Mapping[str, Any], reads: Mapping[str, Checksum], more: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the metadata of a pod with these labels.

    The pod is recreated when a ConfigMap that it ``reads`` changes.
    """
    annotations = {**(more or {}), **{f"checksum/{volume}": read for volume, read in reads.items()}}
    found: dict[str, Any] = {"labels": dict(labels)}
    if annotations:
        found["annotations"] = annotations
    return found


def scripts_of(models: Sequence[ServedModel], cluster: KubernetesOptions) -> dict[str, str]:
    """Return the scripts that run in the engine's image, by name."""
    names = []
    if any(served.recipe_key for served in models):
        names.append("keep_recipes.py")
    if cluster.kind == "leaderworkerset":
        names.append("multi_node.py")
    return {name: script(name) for name in names}


def claim(release: Name, suffix: str) -> Name:
    return Name(release.release, suffix)


def weights_claim(cluster: KubernetesOptions, release: Name) -> Any:
    if cluster.weights_claim:
        return Knob(("weights", "claim"), cluster.weights_claim)
    return claim(release, "weights")


def pod_spec(
    served: ServedModel,
    cluster: KubernetesOptions,
    release: Name,
    containers: Sequence[Mapping[str, Any]],
    first: Sequence[Mapping[str, Any]] = (),
    together: bool = False,
) -> dict[str, Any]:
    """Return a pod of these containers.

    ``together``: preferably on the node where the release has engines already, and only there where
    their PVCs can be used on one node.
    """
    labels = (label.partition("=") for label in cluster.node_selector)
    chosen = {**served.selector, **{key: value for key, _, value in labels}}
    spec: dict[str, Any] = {}
    if cluster.runtime_class:
        spec["runtimeClassName"] = Knob(("runtimeClassName",), cluster.runtime_class)
    spec |= {
        # a Service called vllm would set VLLM_PORT=tcp://..., which the engine reads as its own
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "nodeSelector": knob(served, "nodeSelector", chosen),
        "tolerations": knob(served, "tolerations", tolerations(served, cluster)),
    }
    if together:
        # not in the chat page's pod: it may run on a node without cards
        same = {"app.kubernetes.io/instance": release, "app.kubernetes.io/component": "engine"}
        term = {"labelSelector": {"matchLabels": same}, "topologyKey": "kubernetes.io/hostname"}
        wish: dict[str, Any] = {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "podAffinityTerm": term}
            ]
        }
        if cluster.access_mode == ONE_NODE:
            wish = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        spec["affinity"] = {"podAffinity": wish}
    if first:
        spec["initContainers"] = list(first)
    spec["containers"] = list(containers)
    spec["volumes"] = volumes_of(served, cluster, release)
    return spec


def tolerations(served: ServedModel, cluster: KubernetesOptions) -> list[dict[str, str]]:
    """Return tolerations of the cards' taint and of those that the user names.

    The former is harmless where nodes have no taint.
    """
    names = dict.fromkeys(cluster.tolerate)
    if served.needs.cards:
        names = dict.fromkeys((served.needs.resource, *cluster.tolerate))
    return [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in names]


def script(name: str) -> str:
    """Return the text of one of the scripts that run inside a pod."""
    return standalone(Path(__file__).parents[1] / "pods" / name)


def replicas_of(served: ServedModel, cluster: KubernetesOptions) -> dict[str, Knob]:
    """Return the number of replicas as a part of a spec; a scaler sets it itself."""
    if cluster.autoscale:
        return {}
    return {"replicas": knob(served, "replicas", cluster.replicas, "number")}
