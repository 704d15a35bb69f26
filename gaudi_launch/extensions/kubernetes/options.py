"""Options of ``render kubernetes`` in addition to those of a plan.

They become a `KubernetesTarget`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gaudi_launch.core.base.fields import switch, text, values
from gaudi_launch.core.planning.container import IMAGE
from gaudi_launch.core.planning.parse import number
from gaudi_launch.extensions.kubernetes.target import KINDS, KubernetesTarget

if TYPE_CHECKING:
    from gaudi_launch.core.planning.container import Container
    from gaudi_launch.core.planning.engine import Engine
    from gaudi_launch.extensions.kubernetes.target import KubernetesTarget

_WHAT, _SCALE, _STORE, _POD = "What", "Scaling", "Storage and secrets", "Pods and network"


@dataclass(frozen=True)
class KubernetesOptions:
    """The cluster to render for, each value as typed: empty where not given."""

    kind: str = text(
        "--kind",
        help="deployment (default), leaderworkerset or rayservice.",
        panel=_WHAT,
        metavar="KIND",
    )
    accelerator: str = text(
        "--accelerator",
        help="Type of the nodes: gaudi2, gaudi2e, gaudi3, inf2.48xlarge...",
        panel=_WHAT,
        metavar="NAME",
    )
    name: str = text(
        "--name", help="Name of the objects (default: the model's).", panel=_WHAT, metavar="NAME"
    )
    namespace: str = text(
        "--namespace", help="Namespace of the objects.", panel=_WHAT, metavar="NAME"
    )
    image: str = text("--image", help="An image that has the engine.", panel=_WHAT, metavar="IMAGE")
    others: tuple[str, ...] = values(
        "--with", help="Options of one more model (repeat).", panel=_WHAT, metavar="'-w MODEL ...'"
    )
    ray_version: str = text(
        "--ray-version", help="Ray version in the image (rayservice).", panel=_WHAT, metavar="X.Y.Z"
    )
    nodes: str = text(
        "--nodes", help="Nodes per replica (leaderworkerset; default 2).", panel=_WHAT, metavar="N"
    )
    layout: str = text(
        "--layout", help="Split layers over all cards, or by node.", panel=_WHAT, metavar="tp|pp"
    )
    interface: str = text(
        "--interface",
        help="Network interface inside a pod (default eth0).",
        panel=_WHAT,
        metavar="NAME",
    )
    autoscale: str = text(
        "--autoscale", help="Autoscaler for --replicas MIN..MAX.", panel=_SCALE, metavar="hpa"
    )
    monitor: bool = switch("--monitor", help="Write a ServiceMonitor for each model.", panel=_SCALE)
    weights_claim: str = text(
        "--weights-claim",
        help="Existing PVC that contains the weights.",
        panel=_STORE,
        metavar="NAME",
    )
    storage_class: str = text(
        "--storage-class", help="Storage class of the PVCs.", panel=_STORE, metavar="NAME"
    )
    access_mode: str = text(
        "--access-mode",
        help="Access mode of the PVCs: ReadWriteOnce, ReadWriteMany...",
        panel=_STORE,
        metavar="MODE",
    )
    no_recipes: bool = switch(
        "--no-recipes", help="Keep no compiled graphs between launches.", panel=_STORE
    )
    secret: str = text(
        "--secret", help="A Secret and its variables.", panel=_STORE, metavar="NAME[:VARIABLE,...]"
    )
    runtime_class: str = text(
        "--runtime-class",
        help="runtimeClassName, where nodes need one.",
        panel=_POD,
        metavar="NAME",
    )
    hugepages: str = text(
        "--hugepages", help="2 MiB huge pages, in MiB per card.", panel=_POD, metavar="MIB"
    )
    node_selector: tuple[str, ...] = values(
        "--node-selector",
        help="Only nodes with this label (repeat).",
        panel=_POD,
        metavar="KEY=VALUE",
    )
    tolerate: tuple[str, ...] = values(
        "--tolerate", help="A taint that pods tolerate (repeat).", panel=_POD, metavar="KEY"
    )
    webui: bool = switch("--webui", help="Add a Gradio chat page.", panel=_POD)
    webui_image: str = text(
        "--webui-image", help="An image that has gradio.", panel=_POD, metavar="IMAGE"
    )
    ingress_host: str = text(
        "--ingress-host", help="Write an Ingress for this host.", panel=_POD, metavar="HOST"
    )
    ingress_class: str = text(
        "--ingress-class", help="Ingress class: nginx...", panel=_POD, metavar="NAME"
    )
    # options of a plan for Ray on one machine; here they are the cluster's
    replicas: str = ""
    requests: str = ""


MOST_REPLICAS = 10_000
_ACCESS = ("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")
# docs: Kubernetes, Labels and Selectors: an optional DNS prefix, then a name
_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?|")
_DNS = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_RELEASE = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+[A-Za-z0-9.+-]*")
# Linux: IFNAMSIZ, with the closing zero
_INTERFACE = re.compile(r"[A-Za-z0-9_.-]{1,15}")


def to_cluster(
    options: KubernetesOptions, release: str, containers: list[Container]
) -> KubernetesTarget:
    """Return the cluster that these options describe.

    Raises LaunchError (USAGE) for an impossible one.
    """
    from gaudi_launch.core.host.accelerators import instances
    from gaudi_launch.extensions.kubernetes.objects.inferentia import RAY_VERSION

    on_neuron = options.accelerator in instances()
    kind = _kind(options, on_neuron=on_neuron)
    autoscale = _one_of("--autoscale", options.autoscale, ("", "hpa"))
    replicas, most = _replicas(options.replicas or "1")
    _check_scaling(options, autoscale, grows=most > replicas, by_ray=kind == "rayservice")
    _refuse_alone(options, kind)
    layout_of(options, 1)
    secret, names = _secret(options.secret, release, containers)
    _check_names(options)
    return KubernetesTarget(
        release=release,
        kind=kind,
        namespace=options.namespace,
        replicas=replicas,
        max_replicas=most,
        autoscale=autoscale,
        requests=number("--ongoing", options.requests) if options.requests else 0,
        weights_claim=options.weights_claim,
        storage_class=options.storage_class,
        access_mode=_one_of("--access-mode", options.access_mode, ("", *_ACCESS)),
        runtime_class=options.runtime_class,
        secret=secret,
        secret_names=names,
        monitor=options.monitor,
        ingress_host=options.ingress_host,
        ingress_class=options.ingress_class,
        webui=options.webui,
        webui_image=options.webui_image,
        node_selector=dict(_label(word) for word in options.node_selector),
        tolerate=tuple(_key("--tolerate", word) for word in options.tolerate),
        nodes=nodes_of(options),
        ray_version=options.ray_version
        or (RAY_VERSION if on_neuron else ray_engine().identity.version),
        interface=_matching("--interface", options.interface, _INTERFACE, "kubernetes.interface")
        or "eth0",
    )


def ray_engine() -> Engine:
    """Return the engine that makes the Serve config of a RayService."""
    from gaudi_launch.core.engines.registry import find

    return find("ray-serve")


def _kind(options: KubernetesOptions, *, on_neuron: bool) -> str:
    """Return the kind of the workload. Raises LaunchError (USAGE)."""
    usual = "rayservice" if on_neuron else "deployment"
    kind = _one_of("--kind", options.kind or usual, KINDS)
    if kind != "rayservice":
        if on_neuron:
            other = f"--accelerator {options.accelerator}"
            raise _usage("kubernetes.not_with", one=f"--kind {kind}", other=other)
        return kind
    if not on_neuron and not options.image:
        raise _usage("kubernetes.ray_image", ray=ray_engine().identity.version)
    if options.monitor:
        raise _usage("kubernetes.not_with", one="--monitor", other="--kind rayservice")
    return kind


def _check_scaling(
    options: KubernetesOptions, autoscale: str, *, grows: bool, by_ray: bool
) -> None:
    """Refuse an autoscaler without a range of replicas, and the reverse.

    Ray has its own. Raises LaunchError (USAGE).
    """
    if bool(autoscale) != grows and not by_ray:
        raise _usage("kubernetes.needs", one="--autoscale", other="--replicas MIN..MAX")
    if autoscale and by_ray:
        raise _usage("kubernetes.not_with", one="--autoscale", other="--kind rayservice")
    if options.requests and not grows:
        raise _usage("kubernetes.only_with", one="--ongoing", other="--replicas MIN..MAX")


def _check_names(options: KubernetesOptions) -> None:
    """Refuse names that Kubernetes would not accept. Raises LaunchError (USAGE)."""
    _dns("--runtime-class", options.runtime_class)
    _dns("--storage-class", options.storage_class)
    _dns("--weights-claim", options.weights_claim)
    _dns("--ingress-class", options.ingress_class)
    _dns("--ingress-host", options.ingress_host.removeprefix("*."))
    _matching("--namespace", options.namespace, _NAMESPACE, "kubernetes.namespace")
    _matching("--ray-version", options.ray_version, _RELEASE, "kubernetes.release")
    _matching("--image", options.image, IMAGE, "kubernetes.image")
    _matching("--webui-image", options.webui_image, IMAGE, "kubernetes.image")


def _refuse_alone(options: KubernetesOptions, kind: str) -> None:
    """Refuse options that would have no effect. Raises LaunchError (USAGE)."""
    multi_node = kind == "leaderworkerset"
    needed = (
        ("--nodes", options.nodes, "--kind leaderworkerset", multi_node),
        ("--interface", options.interface, "--kind leaderworkerset", multi_node),
        ("--ray-version", options.ray_version, "--kind rayservice", kind == "rayservice"),
        ("--webui-image", options.webui_image, "--webui", options.webui),
        ("--ingress-class", options.ingress_class, "--ingress-host", bool(options.ingress_host)),
    )
    for name, given, other, is_used in needed:
        if given and not is_used:
            raise _usage("kubernetes.only_with", one=name, other=other)


def nodes_of(options: KubernetesOptions) -> int:
    """Return the number of nodes of one replica. Raises LaunchError (USAGE)."""
    if options.kind != "leaderworkerset":
        return 1
    return number("--nodes", options.nodes or "2", 2, 64)


def layout_of(options: KubernetesOptions, cards: int) -> tuple[int | None, int | None]:
    """Return the tensor and pipeline sizes of ``--layout``.

    Return None if they are to be chosen.
    """
    nodes, layout = nodes_of(options), options.layout or "auto"
    if layout != "auto" and nodes == 1:
        raise _usage("kubernetes.only_with", one="--layout", other="--kind leaderworkerset")
    sizes: dict[str, tuple[int | None, int | None]] = {
        "tp": (cards * nodes, 1),
        "pp": (cards, nodes),
        "auto": (None, None),
    }
    return sizes[_one_of("--layout", layout, tuple(sizes))]


def _replicas(text: str) -> tuple[int, int]:
    """Return the fewest and the most of ``N`` or ``MIN..MAX``."""
    least, dots, most = text.partition("..")
    fewest = number("--replicas", least, 1, MOST_REPLICAS)
    return fewest, number("--replicas", most, fewest, MOST_REPLICAS) if dots else fewest


def _usage(id: str, **values: Any) -> Exception:
    from gaudi_launch.core.base.errors import ExitCode, LaunchError

    return LaunchError(id, ExitCode.USAGE, **values)


def _one_of(option: str, found: str, known: tuple[str, ...]) -> str:
    if found not in known:
        raise _usage(
            "kubernetes.one_of", option=option, found=found, known=", ".join(k for k in known if k)
        )
    return found


def _dns(option: str, found: str) -> None:
    if len(found) > 253:
        raise _usage("kubernetes.dns", option=option, found=found)
    _matching(option, found, _DNS, "kubernetes.dns")


def _matching(option: str, found: str, pattern: re.Pattern[str], id: str) -> str:
    """Return the user's value, which is empty or has this form.

    Raises LaunchError (USAGE) with the message ``id`` for another one.
    """
    if found and not pattern.fullmatch(found):
        raise _usage(id, option=option, found=found)
    return found


def _key(option: str, found: str) -> str:
    if not _KEY.fullmatch(found) or len(found) > 253:
        raise _usage("kubernetes.label", option=option, found=found)
    return found


def _label_value(option: str, found: str) -> str:
    if not _VALUE.fullmatch(found) or len(found) > 63:
        raise _usage("kubernetes.label", option=option, found=found)
    return found


def _label(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals:
        raise _usage("kubernetes.label", option="--node-selector", found=word)
    return _key("--node-selector", key), _label_value("--node-selector", value)


def _secret(text: str, release: str, containers: list[Container]) -> tuple[str, tuple[str, ...]]:
    """Return the Secret's name and its variables.

    They are the named ones, else those that the user has exported.
    """
    name, _, given = text.partition(":")
    exported = tuple(
        dict.fromkeys(secret for container in containers for secret in container.secrets)
    )
    if given:
        names = tuple(dict.fromkeys(given.split(",")))
    else:
        names = exported or (("HF_TOKEN",) if name else ())
    for variable in names:
        if not _VARIABLE.fullmatch(variable):
            raise _usage("kubernetes.secret_name", found=variable)
    _dns("--secret", name)
    return name or f"{release}-secrets", names
