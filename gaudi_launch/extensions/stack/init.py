"""The file that ``gaudi-launch stack init`` writes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.paths import profiles_dir
from gaudi_launch.core.planning import parse
from gaudi_launch.core.planning.model_name import request_name
from gaudi_launch.core.render.yaml_text import dump
from gaudi_launch.extensions.stack.stack_file import parse_stack
from gaudi_launch.extensions.stack.stack_plan import LOCAL, StackPlan, changes_of, chosen_cards

_log = logging.getLogger(__name__)


def init(
    models: Sequence[str],
    path: Path,
    *,
    port: str = "",
    machine: str | None = None,
    engine: str = "",
    python: str = "",
) -> StackPlan:
    """Write the file of a stack for this machine; return its plan.

    ``engine`` and ``python`` are those of all models; one that is given twice gets two replicas.
    Raises LaunchError: USAGE for an existing file, MACHINE where the cards do not suffice; nothing
    is written then.
    """
    if not models:
        raise LaunchError("stack.init_models", ExitCode.USAGE)
    if path.exists():
        raise LaunchError("stack.exists", ExitCode.USAGE, path=str(path))
    document: dict[str, Any] = {"schema": 1, "gateway": {"host": LOCAL, "port": 8000}}
    if port:
        document["gateway"]["port"] = parse.port("--port", port)
    document["models"] = _entries(models, {"engine": engine, "python": python})
    planned = changes_of(parse_stack(dump(document), path), machine).planned
    by_name = {each.model.name: each for each in planned.services}
    for entry in document["models"]:
        service = by_name[entry["name"]]
        if service.modules:
            entry.setdefault("options", {})["cards"] = len(service.modules)
    planned = _with_cards_left(document, planned, path, machine)
    schema = profiles_dir() / "schema" / "stack.json"
    header = f"# yaml-language-server: $schema={schema}\n# gaudi-launch stack up {path.name}\n"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(header + dump(document))
    except OSError as error:
        raise file_error("stack.not_written", error, path) from None
    return planned


def _with_cards_left(
    document: dict[str, Any], planned: StackPlan, path: Path, machine: str | None
) -> StackPlan:
    """Double the cards of each model in turn, up to those that `plan` chooses.

    Return the plan of the document as it then is.
    """
    models = {each.name: each for each in planned.stack.models}
    entries = [each for each in document["models"] if "cards" in each.get("options", {})]
    fewest = [each["options"]["cards"] for each in entries]
    most = [chosen_cards(planned.stack, models[each["name"]], machine) for each in entries]
    left, grows = len(planned.free), True
    while grows:
        grows = False
        for entry, limit in zip(entries, most, strict=True):
            cards = entry["options"]["cards"]
            needed = cards * entry.get("replicas", 1)
            if 2 * cards <= limit and needed <= left:
                entry["options"]["cards"], left, grows = 2 * cards, left - needed, True
    try:
        return changes_of(parse_stack(dump(document), path), machine).planned
    except LaunchError as error:
        _log.debug("the link groups do not have these sets together: %s", error)
        for entry, cards in zip(entries, fewest, strict=True):
            entry["options"]["cards"] = cards
        return planned


def _entries(models: Sequence[str], options: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return an entry for each model, with the number of times that it is given."""
    found: dict[str, dict[str, Any]] = {}
    given = {key: value for key, value in options.items() if value}
    names: set[str] = set()
    for model in models:
        if model in found:
            found[model]["replicas"] = found[model].get("replicas", 1) + 1
            continue
        base = request_name(model)
        name, number = base, 2
        while name in names:
            name, number = f"{base}-{number}", number + 1
        names.add(name)
        entry: dict[str, Any] = {"name": name, "model": model}
        if given:
            entry["options"] = dict(given)
        found[model] = entry
    return list(found.values())
