"""The options of ``render kubernetes`` beside those of a plan, and how they become a `Cluster`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

import typer

from gaudi_launch.planning.container import IMAGE

if TYPE_CHECKING:
    from gaudi_launch.planning.container import Container
    from gaudi_launch.render.kubernetes_records import Cluster

_WHAT, _SCALE, _STORE, _POD = "What", "Scaling", "Storage and secrets", "Pods and network"


@dataclass(frozen=True)
class _Option:
    """``metavar`` empty: a switch. ``many``: may be given more than once."""

    field: str
    name: str
    metavar: str
    help: str
    panel: str
    many: bool = False

    @property
    def default(self) -> Any:
        return [] if self.many else "" if self.metavar else False

    @property
    def kind(self) -> Any:
        return list[str] if self.many else str if self.metavar else bool


OPTIONS = (
    _Option("kind", "--kind", "KIND", "deployment (default), leaderworkerset or rayservice.", _WHAT),
    _Option("accelerator", "--accelerator", "NAME", "The nodes: gaudi2, gaudi2e, gaudi3, inf2.48xlarge...", _WHAT),
    _Option("name", "--name", "NAME", "Name of the objects (default: the model's).", _WHAT),
    _Option("namespace", "--namespace", "NAME", "Written into each object.", _WHAT),
    _Option("image", "--image", "IMAGE", "An image that has the engine.", _WHAT),
    _Option("others", "--with", "'-w MODEL ...'", "One more model, in its own words (repeat).", _WHAT, True),
    _Option("ray_version", "--ray-version", "X.Y.Z", "Of the Ray in the image (rayservice).", _WHAT),
    _Option("nodes", "--nodes", "N", "Nodes of one replica (leaderworkerset; default 2).", _WHAT),
    _Option("layout", "--layout", "tp|pp", "Layers cut over all cards, or dealt to nodes.", _WHAT),
    _Option("interface", "--interface", "NAME", "Network interface inside a pod (default eth0).", _WHAT),
    _Option("autoscale", "--autoscale", "hpa|keda", "Who scales --replicas MIN..MAX.", _SCALE),
    _Option("prometheus", "--prometheus", "URL", "The Prometheus that KEDA asks.", _SCALE),
    _Option("monitor", "--monitor", "", "A ServiceMonitor for each model.", _SCALE),
    _Option("weights_claim", "--weights-claim", "NAME", "A claim that holds the weights already.", _STORE),
    _Option("storage_class", "--storage-class", "NAME", "Of the claims.", _STORE),
    _Option("access_mode", "--access-mode", "MODE", "Of the claims: ReadWriteOnce, ReadWriteMany...", _STORE),
    _Option("no_recipes", "--no-recipes", "", "Keep no compiled graphs between starts.", _STORE),
    _Option("secret", "--secret", "NAME[:VARIABLE,...]", "A Secret, and which variables are in it.", _STORE),
    _Option("runtime_class", "--runtime-class", "NAME", "runtimeClassName, where nodes need one.", _POD),
    _Option("hugepages", "--hugepages", "MIB", "2 MiB huge pages, in MiB a card.", _POD),
    _Option("node_selector", "--node-selector", "KEY=VALUE", "Only nodes with this label (repeat).", _POD, True),
    _Option("tolerate", "--tolerate", "KEY", "A taint that pods may stand (repeat).", _POD, True),
    _Option("webui", "--webui", "", "A Gradio chat page.", _POD),
    _Option("webui_image", "--webui-image", "IMAGE", "An image that has gradio.", _POD),
    _Option("ingress_host", "--ingress-host", "HOST", "An Ingress for this host.", _POD),
    _Option("ingress_class", "--ingress-class", "NAME", "Its class: nginx...", _POD),
)
MOST_REPLICAS = 10_000
_ACCESS = ("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")
# docs: Kubernetes, Labels and Selectors: an optional DNS prefix, then a name
_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?|")
_DNS = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_URL = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")
_RELEASE = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+[A-Za-z0-9.+-]*")
# Linux: IFNAMSIZ, with the closing zero
_INTERFACE = re.compile(r"[A-Za-z0-9_.-]{1,15}")


def of_the_cluster(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command these options; it gets them as ``wished``, a dict."""
    parameters = [
        Parameter(
            option.field,
            Parameter.KEYWORD_ONLY,
            default=typer.Option(
                option.default,
                option.name,
                help=option.help,
                rich_help_panel=option.panel,
                metavar=option.metavar or None,
            ),
            annotation=option.kind,
        )
        for option in OPTIONS
    ]
    names = {option.field for option in OPTIONS}
    own = [p for p in signature(command, eval_str=True).parameters.values() if p.name != "wished"]

    def run(**values: Any) -> Any:
        wished = {name: values.pop(name) for name in names}
        return command(wished=wished, **values)

    asked = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in own]
    run.__name__ = command.__name__
    run.__doc__ = command.__doc__
    run.__signature__ = signature(command).replace(parameters=[*asked, *parameters])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in [*asked, *parameters]}
    return run


def to_cluster(wished: dict[str, Any], release: str, containers: list[Container]) -> Cluster:
    """The cluster that these options describe; ``replicas`` and ``requests`` stand beside them, in words.

    Raises LaunchError (USAGE) for what cannot be.
    """
    from gaudi_launch.engines.ray_serve import VERSION as RAY
    from gaudi_launch.host.accelerators import instances
    from gaudi_launch.planning.asked import number
    from gaudi_launch.render.kubernetes_records import KINDS, Cluster
    from gaudi_launch.render.neuron import RAY_VERSION

    on_neuron = wished["accelerator"] in instances()
    kind = _one_of("--kind", wished["kind"] or ("rayservice" if on_neuron else "deployment"), KINDS)
    if on_neuron and kind != "rayservice":
        raise _usage("kubernetes.not_with", one=f"--kind {kind}", other=f"--accelerator {wished['accelerator']}")
    if kind == "rayservice" and not on_neuron and not wished["image"]:
        raise _usage("kubernetes.ray_image", ray=RAY)
    if kind == "rayservice" and wished["monitor"]:
        raise _usage("kubernetes.not_with", one="--monitor", other="--kind rayservice")
    autoscale = _one_of("--autoscale", wished["autoscale"], ("", "hpa", "keda"))
    replicas, most = _replicas(wished["replicas"] or "1")
    scales_itself = kind == "rayservice"  # Ray's own autoscaler
    if bool(autoscale) != (most > replicas) and not scales_itself:
        raise _usage("kubernetes.needs", one="--autoscale", other="--replicas MIN..MAX")
    if autoscale == "keda" and not wished["prometheus"]:
        raise _usage("kubernetes.needs", one="--autoscale keda", other="--prometheus")
    if autoscale and scales_itself:
        raise _usage("kubernetes.not_with", one="--autoscale", other="--kind rayservice")
    if wished["requests"] and most == replicas:
        raise _usage("kubernetes.only_with", one="--ongoing", other="--replicas MIN..MAX")
    _refuse_alone(wished, kind, autoscale)
    layout_of(wished, 1)
    secret, names = _secret(wished["secret"], release, containers)
    for name in ("runtime_class", "storage_class", "weights_claim", "ingress_class"):
        _dns("--" + name.replace("_", "-"), wished[name])
    _dns("--ingress-host", wished["ingress_host"].removeprefix("*."))
    _matching("--namespace", wished["namespace"], _NAMESPACE, "kubernetes.namespace")
    _matching("--prometheus", wished["prometheus"], _URL, "kubernetes.url")
    _matching("--ray-version", wished["ray_version"], _RELEASE, "kubernetes.release")
    for name in ("image", "webui_image"):
        _matching("--" + name.replace("_", "-"), wished[name], IMAGE, "kubernetes.image")
    return Cluster(
        release=release,
        kind=kind,
        namespace=wished["namespace"],
        replicas=replicas,
        max_replicas=most,
        autoscale=autoscale,
        requests=number("--ongoing", wished["requests"]) if wished["requests"] else 0,
        prometheus=wished["prometheus"],
        weights_claim=wished["weights_claim"],
        storage_class=wished["storage_class"],
        access_mode=_one_of("--access-mode", wished["access_mode"], ("", *_ACCESS)),
        runtime_class=wished["runtime_class"],
        secret=secret,
        secret_names=names,
        monitor=wished["monitor"],
        ingress_host=wished["ingress_host"],
        ingress_class=wished["ingress_class"],
        webui=wished["webui"],
        webui_image=wished["webui_image"],
        node_selector=dict(_label(word) for word in wished["node_selector"]),
        tolerate=tuple(_key("--tolerate", word) for word in wished["tolerate"]),
        nodes=nodes_of(wished),
        ray_version=wished["ray_version"] or (RAY_VERSION if on_neuron else RAY),
        interface=_matching("--interface", wished["interface"], _INTERFACE, "kubernetes.interface") or "eth0",
    )


def _refuse_alone(wished: dict[str, Any], kind: str, autoscale: str) -> None:
    """Options that would be read and then not used. Raises LaunchError (USAGE)."""
    needed = (
        ("nodes", "--kind leaderworkerset", kind == "leaderworkerset"),
        ("interface", "--kind leaderworkerset", kind == "leaderworkerset"),
        ("ray_version", "--kind rayservice", kind == "rayservice"),
        ("prometheus", "--autoscale keda", autoscale == "keda"),
        ("webui_image", "--webui", wished["webui"]),
        ("ingress_class", "--ingress-host", wished["ingress_host"]),
    )
    for field, other, there in needed:
        if wished[field] and not there:
            raise _usage("kubernetes.only_with", one="--" + field.replace("_", "-"), other=other)


def nodes_of(wished: dict[str, Any]) -> int:
    """Nodes of one replica. Raises LaunchError (USAGE)."""
    from gaudi_launch.planning.asked import number

    return number("--nodes", wished["nodes"] or "2", 2, 64) if wished["kind"] == "leaderworkerset" else 1


def layout_of(wished: dict[str, Any], cards: int) -> dict[str, int | None]:
    """Tensor and pipeline sizes that the user asked for by ``--layout``; none: ours to choose."""
    nodes, layout = nodes_of(wished), wished["layout"] or "auto"
    if layout != "auto" and nodes == 1:
        raise _usage("kubernetes.only_with", one="--layout", other="--kind leaderworkerset")
    sizes = {"tp": (cards * nodes, 1), "pp": (cards, nodes), "auto": (None, None)}
    tensor, pipeline = sizes[_one_of("--layout", layout, tuple(sizes))]
    return {"tensor": tensor, "pipeline": pipeline}


def _replicas(text: str) -> tuple[int, int]:
    """The fewest and the most of ``N`` or ``MIN..MAX``."""
    from gaudi_launch.planning.asked import number

    least, dots, most = text.partition("..")
    fewest = number("--replicas", least, 1, MOST_REPLICAS)
    return fewest, number("--replicas", most, fewest, MOST_REPLICAS) if dots else fewest


def _usage(id: str, **values: Any) -> Exception:
    from gaudi_launch.errors import ExitCode, LaunchError

    return LaunchError(id, ExitCode.USAGE, **values)


def _one_of(option: str, found: str, known: tuple[str, ...]) -> str:
    if found not in known:
        raise _usage("kubernetes.one_of", option=option, found=found, known=", ".join(k for k in known if k))
    return found


def _dns(option: str, found: str) -> None:
    if len(found) > 253:
        raise _usage("kubernetes.dns", option=option, found=found)
    _matching(option, found, _DNS, "kubernetes.dns")


def _matching(option: str, found: str, pattern: re.Pattern[str], id: str) -> str:
    """The user's word, of this form if there is one. Raises LaunchError (USAGE) with the sentence ``id``."""
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
    """The Secret's name and its variables: those named, else those that the user has exported."""
    name, _, given = text.partition(":")
    exported = tuple(dict.fromkeys(secret for container in containers for secret in container.secrets))
    names = tuple(dict.fromkeys(given.split(","))) if given else exported or (("HF_TOKEN",) if name else ())
    for variable in names:
        if not _VARIABLE.fullmatch(variable):
            raise _usage("kubernetes.secret_name", found=variable)
    _dns("--secret", name)
    return name or f"{release}-secrets", names
