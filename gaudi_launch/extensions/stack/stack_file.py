"""stack.yaml: models with the options of ``serve``, and their gateway.

The schema is profiles/schema/stack.json. Errors name the line of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.profiles_check import first_problem, schema
from gaudi_launch.core.base.yaml_reader import as_typed, checked_tree, line_of, read_text
from gaudi_launch.core.services.state import store
from gaudi_launch.extensions.stack.gateway.gateway_settings import (
    Balance,
    GatewaySettings,
    RequestLimits,
    Tls,
)

_EXTRA = "engine-arguments"


@dataclass(frozen=True)
class StackModel:
    """One model of a stack; ``line`` is that of its entry.

    ``name`` is its name in requests. It is started when those of ``after`` answer.
    """

    name: str
    model: str
    line: int = 1
    replicas: int = 1
    aliases: tuple[str, ...] = ()
    balance: Balance = "least-load"
    after: tuple[str, ...] = ()
    restart: str = "on-failure"
    options: Mapping[str, str | bool | tuple[str, ...]] = field(default_factory=dict)
    engine_arguments: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that requests may use, the model's first."""
        return (self.name, *self.aliases)


@dataclass(frozen=True)
class StackFile:
    """A stack as its file describes it; ``lines`` are those of the gateway's entries."""

    path: Path
    name: str
    gateway: GatewaySettings
    models: tuple[StackModel, ...]
    lines: Mapping[str, int]

    @property
    def gateway_service(self) -> str:
        """Return the name of the gateway's service."""
        return f"{self.name}-gateway"

    def services_of(self, model: StackModel) -> tuple[str, ...]:
        """Return the names of a model's services, one for each replica."""
        first = f"{self.name}-{_slug(model.name)}"
        return (first, *(f"{first}-{number}" for number in range(2, model.replicas + 1)))


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:32] or "model"


def read_stack(path: Path) -> StackFile:
    """Return the stack of a file.

    Raises LaunchError (USAGE), with the line of what is wrong.
    """
    return parse_stack(read_text(path, unreadable="stack.unreadable", bad="stack.bad"), path)


def parse_stack(content: str, path: Path) -> StackFile:
    """Return the stack of a text; ``path`` is its file. Raises as `read_stack`."""
    document, tree = checked_tree(content, path, bad="stack.bad")
    _check(path, document, tree)
    gateway: dict[str, Any] = document.get("gateway") or {}
    found = StackFile(
        path=path,
        name=document.get("name") or _slug(path.stem)[:24].rstrip("-._"),
        gateway=_gateway(gateway, path.absolute().parent),
        models=tuple(
            _model(entry, line_of(tree, ("models", number)))
            for number, entry in enumerate(document["models"])
        ),
        lines={
            key: line_of(tree, ("gateway", key))
            for key in ("port", "keys-file", "tls", "users", "trusted-proxies")
        },
    )
    for each in found.gateway.trusted_proxies:
        try:
            ip_network(each, strict=False)
        except ValueError as error:
            line = found.lines["trusted-proxies"]
            raise LaunchError(
                "stack.bad", ExitCode.USAGE, path=str(found.path), line=line, why=str(error)
            ) from None
    _check_names(found)
    _check_order(found)
    return found


def _check(path: Path, document: Any, tree: Any) -> None:
    """Raise LaunchError (USAGE) for the first place that breaks the schema."""
    found = first_problem(document, tree, "stack")
    if found is None:
        return
    problem, line, why = found
    if problem.keyword == "additionalProperties":
        known = ", ".join(_known_at(schema("stack"), problem.path))
        raise LaunchError(
            "stack.unknown_entry",
            ExitCode.USAGE,
            path=str(path),
            line=line,
            found=problem.entry,
            known=known,
        )
    raise LaunchError("stack.bad", ExitCode.USAGE, path=str(path), line=line, why=why)


def _known_at(schema: Mapping[str, Any], path: Sequence[str | int]) -> Iterator[str]:
    """Yield the entries that the schema has at a place of the document."""
    part: Mapping[str, Any] = schema
    for step in path:
        if isinstance(step, int):
            part = part["items"]
            continue
        part = part.get("properties", {}).get(step) or part["additionalProperties"]
    yield from part.get("properties", {})


def _model(entry: Mapping[str, Any], line: int) -> StackModel:
    options = dict(entry.get("options") or {})
    arguments = tuple(options.pop(_EXTRA, ()))
    return StackModel(
        name=entry["name"],
        model=entry["model"],
        line=line,
        replicas=entry.get("replicas", 1),
        aliases=tuple(entry.get("aliases") or ()),
        balance=entry.get("balance", "least-load"),
        after=tuple(entry.get("after") or ()),
        restart=entry.get("restart", "on-failure"),
        options={key: as_typed(value) for key, value in options.items()},
        engine_arguments=arguments,
    )


def _gateway(entry: Mapping[str, Any], folder: Path) -> GatewaySettings:
    """Return the gateway's settings; paths are relative to the file's folder."""
    given: dict[str, Any] = {}
    for key in ("host", "port", "body-mib", "timeout-seconds", "connections"):
        if key in entry:
            given[key.replace("-", "_")] = entry[key]
    given["trusted_proxies"] = tuple(entry.get("trusted-proxies") or ())
    if "keys-file" in entry:
        given["keys_file"] = folder / Path(entry["keys-file"]).expanduser()
    if "tls" in entry:
        files = [folder / Path(entry["tls"][key]).expanduser() for key in ("certificate", "key")]
        given["tls"] = Tls(*files)
    users = entry.get("users") or {}
    return GatewaySettings(
        **given,
        limits=_limits(entry.get("limits") or {}),
        user_limits={user: _limits(limits) for user, limits in users.items()},
    )


def _limits(entry: Mapping[str, Any]) -> RequestLimits:
    return RequestLimits(entry.get("requests-per-minute"), entry.get("concurrent"))


def _check_names(stack: StackFile) -> None:
    """Raise LaunchError (USAGE) where a name or a service's name has two meanings."""
    store.check_name(stack.gateway_service)
    lines: dict[str, int] = {}
    services = {stack.gateway_service}
    for model in stack.models:
        about: dict[str, Any] = {"path": str(stack.path), "line": model.line}
        for name in model.names:
            if name in lines:
                raise LaunchError(
                    "stack.twice", ExitCode.USAGE, **about, name=name, first=lines[name]
                )
            lines[name] = model.line
        for service in stack.services_of(model):
            if service in services:
                raise LaunchError(
                    "stack.same_service", ExitCode.USAGE, **about, name=model.name, service=service
                )
            services.add(service)


def _check_order(stack: StackFile) -> None:
    """Raise LaunchError (USAGE) for an unknown name in ``after``, or a circle."""
    known = [model.name for model in stack.models]
    for model in stack.models:
        for name in model.after:
            if name not in known:
                shown = {"found": name, "known": ", ".join(known)}
                raise LaunchError(
                    "stack.unknown_after",
                    ExitCode.USAGE,
                    path=str(stack.path),
                    line=model.line,
                    **shown,
                )
    start_order(stack)


def start_order(stack: StackFile) -> tuple[tuple[StackModel, ...], ...]:
    """Return the models in groups that are started together.

    Each group is in the order of the file. Raises LaunchError (USAGE) where models
    wait for each other.
    """
    left = list(stack.models)
    done: set[str] = set()
    groups: list[tuple[StackModel, ...]] = []
    while left:
        group = tuple(model for model in left if done.issuperset(model.after))
        if not group:
            names = ", ".join(model.name for model in left)
            raise LaunchError(
                "stack.circle", ExitCode.USAGE, path=str(stack.path), line=left[0].line, names=names
            )
        groups.append(group)
        done.update(model.name for model in group)
        left = [model for model in left if model not in group]
    return tuple(groups)
