"""Options of ``render kubernetes`` in addition to those of a plan."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import switch, text, values
from gaudi_launch.core.planning.container import IMAGE, Container
from gaudi_launch.core.planning.parse import number

if TYPE_CHECKING:
    from gaudi_launch.core.planning.engine import Engine
    from gaudi_launch.core.render.gateway import GatewayFiles

# of the image for Inferentia (objects/inferentia.py)
_NEURON_RAY = "2.22.0"
KINDS = ("deployment", "leaderworkerset", "rayservice")
_WHAT, _SCALE, _STORE, _POD = "What", "Scaling", "Storage and secrets", "Pods and network"


@dataclass(frozen=True)
class KubernetesOptions:
    """The cluster to render for, each value as typed: empty where not given.

    `completed` checks them and fills what follows from them.
    """

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
    # of options of a plan for Ray on one machine; here they are the cluster's
    replicas: int = 1
    max_replicas: int = 1
    requests: int = 0  # a replica's target before one more starts; 0: its concurrent requests
    release: str = ""
    secret_names: tuple[str, ...] = ()
    gateway: GatewayFiles | None = None

    @property
    def node_count(self) -> int:
        """Return the number of nodes of one replica. Raises LaunchError (USAGE)."""
        if self.kind != "leaderworkerset":
            return 1
        return number("--nodes", self.nodes or "2", 2, 64)

    @property
    def hugepages_mib(self) -> int | None:
        """Return the MiB per card, None where not given.

        Raises LaunchError (USAGE) for a value that is not a multiple of 2 MiB.
        """
        if not self.hugepages:
            return None
        found = number("--hugepages", self.hugepages, 0, 1 << 20)
        if found % 2:
            raise _usage("kubernetes.hugepages_odd", found=found, below=found - 1, above=found + 1)
        return found

    @property
    def at_once(self) -> int:
        """Return how many replicas may be unavailable during an update.

        A thousand, one after the other, take weeks (a tenth: assumed).
        """
        return max(1, self.replicas // 10)

    @property
    def many(self) -> bool:
        """Return True if pods on several nodes may use one PVC."""
        return max(self.replicas, self.max_replicas) > 1 or self.node_count > 1


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


def completed(
    options: KubernetesOptions, release: str, containers: list[Container]
) -> KubernetesOptions:
    """Return the options with what follows from them: kind, Secret, Ray's version.

    Raises LaunchError (USAGE) for an impossible cluster.
    """
    from gaudi_launch.core.host.accelerators import instances

    on_neuron = options.accelerator in instances()
    kind = _kind(options, on_neuron=on_neuron)
    _check_scaling(options, by_ray=kind == "rayservice")
    # others would have no effect
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
    layout_of(options, 1)
    secret, names = _secret(options.secret, release, containers)
    _check_names(options)
    _one_of("--access-mode", options.access_mode, ("", *_ACCESS))
    for label in options.node_selector:
        _check_label(label)
    for key in options.tolerate:
        _check_key("--tolerate", key)
    usual_ray = _NEURON_RAY if on_neuron else ray_engine().identity.version
    return replace(
        options,
        release=release,
        kind=kind,
        secret=secret,
        secret_names=names,
        ray_version=options.ray_version or usual_ray,
        interface=options.interface or "eth0",
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


def _check_scaling(options: KubernetesOptions, *, by_ray: bool) -> None:
    """Refuse an autoscaler without a range of replicas, and the reverse.

    Ray has its own. Raises LaunchError (USAGE).
    """
    autoscale = _one_of("--autoscale", options.autoscale, ("", "hpa"))
    grows = options.max_replicas > options.replicas
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
    _matching("--interface", options.interface, _INTERFACE, "kubernetes.interface")


def layout_of(options: KubernetesOptions, cards: int) -> tuple[int | None, int | None]:
    """Return the tensor and pipeline sizes of ``--layout``.

    Return None if they are to be chosen.
    """
    nodes, layout = options.node_count, options.layout or "auto"
    if layout != "auto" and nodes == 1:
        raise _usage("kubernetes.only_with", one="--layout", other="--kind leaderworkerset")
    sizes: dict[str, tuple[int | None, int | None]] = {
        "tp": (cards * nodes, 1),
        "pp": (cards, nodes),
        "auto": (None, None),
    }
    return sizes[_one_of("--layout", layout, tuple(sizes))]


def _usage(id: str, **values: Any) -> Exception:
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


def _check_key(option: str, found: str) -> None:
    if not _KEY.fullmatch(found) or len(found) > 253:
        raise _usage("kubernetes.label", option=option, found=found)


def _check_label(label: str) -> None:
    key, equals, value = label.partition("=")
    if not equals:
        raise _usage("kubernetes.label", option="--node-selector", found=label)
    _check_key("--node-selector", key)
    if not _VALUE.fullmatch(value) or len(value) > 63:
        raise _usage("kubernetes.label", option="--node-selector", found=value)


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
