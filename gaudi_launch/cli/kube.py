"""``gaudi-launch kube``: what was rendered for Kubernetes, asked after, read and taken away, through kubectl."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from gaudi_launch.services.kube_status import Status
    from gaudi_launch.services.kubectl import Kubectl

app = typer.Typer(
    no_args_is_help=True, add_completion=False, context_settings={"help_option_names": ["-h", "--help"]}
)

_NAMESPACE = typer.Option("", "-N", "--namespace", metavar="NAME", help="Namespace (default: kubectl's own).")
_KUBECONFIG = typer.Option("", "--kubeconfig", metavar="FILE", help="kubectl's configuration.")
_CONTEXT = typer.Option("", "--context", metavar="NAME", help="Which of its clusters.")
_JSON = typer.Option(False, "--json", help="One JSON object on stdout.")


@app.callback()
def _group() -> None:
    """Ask after what 'render kubernetes' made, read its logs, take it away. kubectl does it, with your rights."""


@app.command()
def status(
    name: str = typer.Argument("", metavar="[NAME]", help="One deployment (default: all of ours)."),
    namespace: str = _NAMESPACE,
    kubeconfig: str = _KUBECONFIG,
    context: str = _CONTEXT,
    as_json: bool = _JSON,
) -> None:
    """Replicas, and each pod with what it waits for: a node, huge pages, its image, its warm-up."""
    from gaudi_launch.cli.output import emit_json

    kubectl = _kubectl(name, namespace, kubeconfig, context)
    found = [one for one, _ in _known(kubectl, name)]
    if as_json:
        emit_json({"schema": 1, "deployments": [each.to_json() for each in found]})
        return
    _show(found)


@app.command()
def logs(
    name: str = typer.Argument(..., metavar="NAME", help="The deployment."),
    namespace: str = _NAMESPACE,
    kubeconfig: str = _KUBECONFIG,
    context: str = _CONTEXT,
    follow: bool = typer.Option(False, "-f", "--follow", help="Go on as lines come."),
    previous: bool = typer.Option(False, "--previous", help="Of the container before the last restart."),
    tail: str = typer.Option("1000", "--tail", metavar="N", help="Last lines of each pod."),
    pod: str = typer.Option("", "--pod", metavar="NAME", help="Only this pod."),
) -> None:
    """Print the engines' logs. '| gaudi-launch why -' explains a failed start."""
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.planning.asked import number
    from gaudi_launch.services.kube_status import engine_of

    lines = number("--tail", tail, 0)
    kubectl = _kubectl(name, namespace, kubeconfig, context)
    _dns("--pod", pod)
    ((_, items),) = _known(kubectl, name)
    engines = {item["metadata"].get("name"): engine for item in items if (engine := engine_of(item))}
    if not engines or (pod and pod not in engines):
        raise LaunchError("kube.no_pod", ExitCode.FAILED, name=pod or name)
    more = [*(["--follow"] if follow else []), *(["--previous"] if previous else [])]
    which = [pod] if pod else [f"--selector={_selector(name)},{_ENGINE}", "--prefix"]
    container = next(iter(engines.values()))
    requests = f"--max-log-requests={max(5, len(engines))}"
    kubectl.show("logs", *which, f"--container={container}", f"--tail={lines}", requests, *more)


_ENGINE = "app.kubernetes.io/component=engine"


@app.command()
def delete(
    name: str = typer.Argument(..., metavar="NAME", help="The deployment."),
    namespace: str = _NAMESPACE,
    kubeconfig: str = _KUBECONFIG,
    context: str = _CONTEXT,
    volumes: bool = typer.Option(False, "--volumes", help="Its claims too: weights and compiled graphs."),
    yes: bool = typer.Option(False, "-y", "--yes", help="Do not ask."),
) -> None:
    """Take a deployment away, object by object, after showing them. Claims stay unless --volumes."""
    import sys

    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.messages import text
    from gaudi_launch.services.kube_status import reference_of

    kubectl = _kubectl(name, namespace, kubeconfig, context)
    ((found, items),) = _known(kubectl, name)
    if found.helm:
        raise LaunchError("kube.helm", ExitCode.USAGE, name=name)
    # pods go with what made them
    kept = {"Pod", *(() if volumes else ("PersistentVolumeClaim",))}
    words = [word for item in items if (word := reference_of(item)) and item.get("kind") not in kept]
    if not words:
        raise LaunchError("kube.nothing", ExitCode.FAILED, name=name)
    for word in words:
        print(word)
    if not yes:
        if not sys.stdin.isatty():
            raise LaunchError("kube.not_asked", ExitCode.USAGE)
        typer.confirm(text("kube.sure", count=len(words)), abort=True, err=True)
    kubectl.show("delete", "--ignore-not-found", *words)


def _kubectl(name: str, namespace: str, kubeconfig: str, context: str) -> Kubectl:
    from gaudi_launch.services.kubectl import find

    _dns("NAME", name)
    _dns("--namespace", namespace)
    return find(namespace, kubeconfig, context)


def _dns(what: str, found: str) -> None:
    """Names become parts of kubectl's words: nothing else may."""
    import re

    from gaudi_launch.errors import ExitCode, LaunchError

    if found and not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", found):
        raise LaunchError("kubernetes.dns", ExitCode.USAGE, option=what, found=found)


def _selector(name: str) -> str:
    from gaudi_launch.services.kube_status import INSTANCE, OURS

    return f"{OURS},{INSTANCE}={name}" if name else OURS


def _known(kubectl: Kubectl, name: str) -> list[tuple[Status, list[dict[str, Any]]]]:
    """Deployments with their objects, of all names without one. Raises LaunchError (FAILED): none of this name.

    Kinds of added controllers may be closed to a user who may see all the rest: that is said, and no failure.
    """
    import sys

    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.messages import text
    from gaudi_launch.services.kube_status import CORE, OPTIONAL, instance_of, statuses

    items: list[dict[str, Any]] = []
    for kinds in (",".join(CORE), *OPTIONAL):
        try:
            document = kubectl.document("get", kinds, f"--selector={_selector(name)}")
        except LaunchError as error:
            if kinds not in OPTIONAL or error.id != "kube.forbidden":
                raise
            print(text("kube.not_seen", kind=kinds), file=sys.stderr)
            continue
        listed = (document or {}).get("items")
        items += [item for item in (listed if isinstance(listed, list) else []) if instance_of(item)]
    found = [one for one in statuses(items) if name in ("", one.name)]
    if name and not found:
        raise LaunchError("kube.nothing", ExitCode.FAILED, name=name)
    return [(one, [item for item in items if instance_of(item) == one.name]) for one in found]


def _show(found: list[Status]) -> None:
    from gaudi_launch.cli.output import console, table
    from gaudi_launch.messages import text

    out = console()
    if not found:
        out.print(text("kube.none"), markup=False)
    for each in found:
        counts = ", ".join(f"{w.kind} {w.name} {w.ready}/{w.wanted}" for w in each.workloads)
        out.print(f"{each.name}: {counts or '-'}", markup=False)
        columns = [text(f"kube.column_{word}") for word in ("pod", "phase", "age", "restarts", "node", "why")]
        rows = [
            (
                pod.name,
                text(f"kube.phase_{pod.phase}"),
                f"{pod.seconds} s",
                str(pod.restarts),
                pod.node or "-",
                pod.why.render() if pod.why else "",
            )
            for pod in each.pods
        ]
        if rows:
            out.print(table("", columns, rows, right=(2, 3)))
