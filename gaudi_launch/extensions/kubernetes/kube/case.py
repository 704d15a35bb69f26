"""The use cases of ``gaudi-launch kube``: status, logs and removal by kubectl.

They concern what was rendered for Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import OptionRecord, switch
from gaudi_launch.core.base.fields import text as option
from gaudi_launch.core.base.json_values import array, mapping
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.planning.parse import number
from gaudi_launch.extensions.kubernetes.kubectl import Kubectl, find
from gaudi_launch.extensions.kubernetes.status import (
    CORE,
    INSTANCE,
    OPTIONAL,
    OURS,
    Status,
    engine_of,
    instance_of,
    reference_of,
    statuses,
)

if TYPE_CHECKING:
    from gaudi_launch.core.launch.report import Reporter

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_ENGINE = "app.kubernetes.io/component=engine"
_LEAST_LOG_REQUESTS = 5


@dataclass(frozen=True)
class LogOptions(OptionRecord):
    """The selected lines of the engines' logs; ``pod`` empty: of all pods."""

    follow: bool = switch("-f", "--follow", help="Follow new lines.")
    previous: bool = switch("--previous", help="Log of the container before the last restart.")
    lines: int = option(
        "--tail",
        metavar="N",
        help="Last lines of each pod.",
        default="1000",
        read=partial(number, least=0),
    )
    pod: str = option("--pod", metavar="NAME", help="Only this pod.")


def status(name: str, access: Kubectl, reporter: Reporter) -> list[Status]:
    """Return one deployment, or all of them without a name. Raises LaunchError."""
    kubectl = _kubectl(name, access)
    return [found for found, _ in _deployments(kubectl, name, reporter)]


def logs(name: str, access: Kubectl, options: LogOptions, reporter: Reporter) -> None:
    """Run kubectl to print the logs of a deployment's engines. Raises LaunchError."""
    kubectl = _kubectl(name, access)
    pod = options.pod
    _check_name("--pod", pod)
    engines: dict[str, str] = {}
    ((_, items),) = _deployments(kubectl, name, reporter)
    for item in items:
        engine = engine_of(item)
        if engine:
            engines[item["metadata"].get("name")] = engine
    if not engines or (pod and pod not in engines):
        raise LaunchError("kube.no_pod", ExitCode.FAILED, name=pod or name)
    arguments = [pod] if pod else [f"--selector={_selector(name)},{_ENGINE}", "--prefix"]
    arguments.append(f"--container={next(iter(engines.values()))}")
    arguments.append(f"--tail={options.lines}")
    arguments.append(f"--max-log-requests={max(_LEAST_LOG_REQUESTS, len(engines))}")
    if options.follow:
        arguments.append("--follow")
    if options.previous:
        arguments.append("--previous")
    kubectl.show("logs", *arguments)


def removal(name: str, access: Kubectl, reporter: Reporter, *, volumes: bool) -> tuple[str, ...]:
    """Return the objects that a removal deletes, as kubectl names them.

    ``volumes``: its PVCs too. Raises LaunchError.
    """
    kubectl = _kubectl(name, access)
    ((found, items),) = _deployments(kubectl, name, reporter)
    if found.helm:
        raise LaunchError("kube.helm", ExitCode.USAGE, name=name)
    # pods are deleted with the objects that created them
    kept = ["Pod"] if volumes else ["Pod", "PersistentVolumeClaim"]
    objects = []
    for item in items:
        reference = reference_of(item)
        if reference and item.get("kind") not in kept:
            objects.append(reference)
    if not objects:
        raise LaunchError("kube.nothing", ExitCode.FAILED, name=name)
    return tuple(objects)


def remove(name: str, access: Kubectl, objects: Iterable[str]) -> None:
    """Delete the objects of a deployment. Raises LaunchError where kubectl fails."""
    _kubectl(name, access).show("delete", "--ignore-not-found", *objects)


def _kubectl(name: str, access: Kubectl) -> Kubectl:

    _check_name("NAME", name)
    _check_name("--namespace", access.namespace)
    return find(access)


def _check_name(option: str, found: str) -> None:
    """Raise LaunchError (USAGE) for an invalid name.

    It becomes part of kubectl's arguments.
    """
    if found and not _NAME.fullmatch(found):
        raise LaunchError("kubernetes.dns", ExitCode.USAGE, option=option, found=found)


def _selector(name: str) -> str:
    return f"{OURS},{INSTANCE}={name}" if name else OURS


def _deployments(
    kubectl: Kubectl, name: str, reporter: Reporter
) -> list[tuple[Status, list[dict[str, Any]]]]:
    """Return the deployments of a name, or all without one, with their objects.

    Kinds of added controllers may be forbidden to a user who may see all others: that is reported,
    and is not a failure. Raises LaunchError (FAILED) where none has this name.
    """
    items = [item for item in _objects(kubectl, name, reporter) if instance_of(item)]
    found = [one for one in statuses(items) if name in ("", one.name)]
    if name and not found:
        raise LaunchError("kube.nothing", ExitCode.FAILED, name=name)
    return [(one, [item for item in items if instance_of(item) == one.name]) for one in found]


def _objects(kubectl: Kubectl, name: str, reporter: Reporter) -> Iterator[dict[str, Any]]:
    """Yield the objects of a deployment, or of all without a name."""
    for kinds in (",".join(CORE), *OPTIONAL):
        try:
            document = kubectl.document("get", kinds, f"--selector={_selector(name)}")
        except LaunchError as error:
            if kinds not in OPTIONAL or error.id != "kube.forbidden":
                raise
            reporter.say(text("kube.not_seen", kind=kinds))
            continue
        yield from array(mapping(document).get("items"))
