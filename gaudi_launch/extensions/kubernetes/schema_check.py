"""Check objects against the API servers' schemas.

They are checked before a file is written, without a cluster. The schemas (profiles/kubernetes) are
closed: a key that the API does not know is refused here, where kubectl would drop it or a server
reject it. Further rules cover what no schema has: references inside a pod, names, labels,
selectors, and resources that must be equal in requests and limits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from gaudi_launch.core.base import json_schema
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.reader import shipped_json

# docs: Kubernetes, Object Names and IDs; Labels and Selectors
NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?([KMGTPE]i|[kMGTPEm])?")


@cache
def schemas() -> dict[str, Any]:
    """Return the document of profiles/kubernetes/schemas.json.

    It has ``kinds`` by "API kind", and ``$defs``.
    """
    found: dict[str, Any] = shipped_json("kubernetes", "schemas.json")
    return found


def check(objects: Sequence[Mapping[str, Any]]) -> None:
    """Raise LaunchError (FAILED) with the first problem of these objects.

    It is an internal error; no file is written then.
    """
    seen: set[tuple[str, str]] = set()
    for found in objects:
        for where, what in problems(found):
            name = f"{found.get('kind')} {found.get('metadata', {}).get('name')}"
            raise LaunchError(
                "kubernetes.not_valid", ExitCode.FAILED, object=name, where=where, what=what
            )
        identity = (str(found["kind"]), str(found["metadata"]["name"]))
        if identity in seen:
            raise LaunchError("kubernetes.twice", ExitCode.USAGE, object=" ".join(identity))
        seen.add(identity)


def problems(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the problems of one object: place and English text.

    The texts are for developers of a target.
    """
    kind = f"{found.get('apiVersion')} {found.get('kind')}"
    schema = schemas()["kinds"].get(kind)
    if schema is None:
        yield "kind", f"unknown: {kind}"
        return
    yield from _by_schema(found, schema)
    yield from _by_rule(found)


def _by_schema(found: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for problem in json_schema.problems(found, {**schema, "$defs": schemas()["$defs"]}):
        where = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem.path
        )
        if problem.keyword == "additionalProperties":
            yield f"{where}.{problem.entry}", "unknown key"
        elif problem.keyword == "required":
            yield f"{where}.{problem.entry}", "missing"
        else:
            yield where, problem.text


def _by_rule(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    name = found["metadata"].get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > 63:
        yield "metadata.name", f"{name!r} is not a DNS label"
    yield from _labels(found["metadata"].get("labels", {}), "metadata.labels")
    spec = found.get("spec", {})
    selector = None
    if isinstance(spec, Mapping):
        selector = spec.get("selector", {}).get("matchLabels")
    if selector and "template" in spec:
        labels = spec["template"]["metadata"]["labels"]
        if any(labels.get(key) != value for key, value in selector.items()):
            yield "spec.selector", "does not select the pods of its template"
    for where, pod in pods_of(found):
        yield from _pod(pod, where)


def pods_of(found: Any, where: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every pod spec in an object."""
    if isinstance(found, Mapping):
        if "containers" in found:
            yield where, found
        for name, part in found.items():
            yield from pods_of(part, f"{where}.{name}")
    elif isinstance(found, (list, tuple)):
        for at, part in enumerate(found):
            yield from pods_of(part, f"{where}[{at}]")


def _labels(labels: Mapping[str, Any], where: str) -> Iterator[tuple[str, str]]:
    for key, value in labels.items():
        if not isinstance(value, str) or len(value) > 63 or not _LABEL.fullmatch(value):
            yield f"{where}.{key}", f"{value!r} is not a label value"


def _pod(pod: Mapping[str, Any], where: str) -> Iterator[tuple[str, str]]:
    volumes = {volume["name"] for volume in pod.get("volumes", ())}
    names: set[str] = set()
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        name = container["name"]
        if name in names:
            yield f"{where}.{name}", "two containers of one name"
        names.add(name)
        for fault in (*_container(container, volumes), *_resources(container.get("resources", {}))):
            yield f"{where}.{name}", fault


def _container(container: Mapping[str, Any], volumes: Collection[str]) -> Iterator[str]:
    """Yield the faults of a container's mounts, probes and variables."""
    for mount in container.get("volumeMounts", ()):
        if mount["name"] not in volumes:
            yield f"mounts {mount['name']!r}, which is not a volume of the pod"
    if "livenessProbe" in container and "startupProbe" not in container:
        yield "a livenessProbe without a startupProbe kills a long warm-up"
    variables = Counter(entry["name"] for entry in container.get("env", ()))
    for name in sorted(name for name, count in variables.items() if count > 1):
        yield f"two values for the variable {name}"


def _resources(resources: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of a container's requests and limits."""
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    for name, amount in (*requests.items(), *limits.items()):
        if not _QUANTITY.fullmatch(str(amount)):
            yield f"{name}: {amount!r} is not a quantity"
    # kubernetes pkg/apis/core/validation: a request for huge pages is a multiple of the page size
    pages = str(limits.get("hugepages-2Mi", "0Mi"))
    if not pages.endswith("Mi") or int(pages[:-2]) % 2:
        yield f"hugepages-2Mi: {pages!r} is not a multiple of the page size"
    # docs: Kubernetes, Manage HugePages; Schedule extended resources: both are never overcommitted
    exact = {name for name in {*requests, *limits} if "/" in name or name.startswith("hugepages-")}
    for name in sorted(exact):
        if requests.get(name) != limits.get(name):
            yield f"{name} differs in requests and limits"
