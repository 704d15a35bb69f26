"""The record of a started stack: its services, and hashes of their settings.

A folder each under the state folder; ``down`` removes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.paths import state_dir
from gaudi_launch.core.models.folder_lock import hold
from gaudi_launch.core.services.state import store
from gaudi_launch.core.services.state.service_files import plain
from gaudi_launch.extensions.stack.stack_file import StackFile, StackModel

_log = logging.getLogger(__name__)

_FILE = "stack.json"


@dataclass(frozen=True)
class StackRecord:
    """A stack that was started from ``path``.

    ``services`` maps the name of each service, the gateway's first, to the hash of its settings;
    ``models`` maps it to the model's name ("" for the gateway).
    """

    name: str
    path: str
    services: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)


def stacks_dir() -> Path:
    return state_dir() / "stacks"


def hash_of(settings: object) -> str:
    """Return the hash of settings that JSON can write."""
    content = json.dumps(settings, sort_keys=True, default=str)
    return "sha256:" + hashlib.sha256(content.encode()).hexdigest()


def engine_hash(model: StackModel) -> str:
    """Return the hash of what an engine of this model is started with."""
    settings = asdict(model)
    # where it is in the file and what it waits for changes nothing that runs
    for name in ("line", "after", "replicas", "balance"):
        del settings[name]
    return hash_of(settings)


def gateway_hash(stack: StackFile) -> str:
    """Return the hash of the gateway's settings and of the models behind it."""
    routes = [(model.names, model.balance) for model in stack.models]
    return hash_of([asdict(stack.gateway), routes])


def record_of(stack: StackFile, engines: Mapping[str, Sequence[str]]) -> StackRecord:
    """Return the record of a stack with these services of each model."""
    services = {stack.gateway_service: gateway_hash(stack)}
    models = {stack.gateway_service: ""}
    for model in stack.models:
        for name in engines[model.name]:
            services[name] = engine_hash(model)
            models[name] = model.name
    return StackRecord(stack.name, str(stack.path.absolute()), services, models)


def engine_names(
    stack: StackFile, record: StackRecord | None, alive: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return the names of the services of each model, as many as it has replicas.

    Those of the record with the same settings stay, running ones first. A new version next to a
    running one gets another name.
    """
    kept = {model.name: _same_settings(model, record, alive) for model in stack.models}
    taken = {name for names in kept.values() for name in names}
    taken.update(name for name in alive if record is not None and name in record.services)
    found = {}
    for model in stack.models:
        names = list(kept[model.name][: model.replicas])
        unused = (name for name in _possible(stack, model) if name not in taken)
        while len(names) < model.replicas:
            names.append(next(unused))
        found[model.name] = tuple(names)
    return found


def _same_settings(
    model: StackModel, record: StackRecord | None, alive: Collection[str]
) -> tuple[str, ...]:
    """Return the recorded services with a model's settings, running ones first."""
    if record is None:
        return ()
    settings = engine_hash(model)
    found = [name for name, hashed in record.services.items() if hashed == settings]
    mine = [name for name in found if record.models.get(name) == model.name]
    return tuple(sorted(mine, key=lambda name: name not in alive))


def _possible(stack: StackFile, model: StackModel) -> Iterator[str]:
    """Yield names for a model's services: of its replicas, then of new versions."""
    others = {name for each in stack.models for name in stack.services_of(each)}
    own = stack.services_of(model)
    yield from own
    for number in itertools.count(2):
        name = f"{own[0]}.v{number}"
        if name not in others:
            yield name


def read_record(name: str) -> StackRecord | None:
    """Return the record of a stack, None without one."""
    if not store.is_name(name):
        return None
    document = store.read(stacks_dir() / name, _FILE)
    if document is None:
        return None
    return StackRecord(
        name=name,
        path=plain(str(document.get("path", ""))),
        services=_texts(document.get("services")),
        models=_texts(document.get("models")),
    )


def _texts(value: object) -> dict[str, str]:
    return {plain(str(key)): plain(str(each)) for key, each in mapping(value).items()}


def write_record(record: StackRecord) -> None:
    """Replace the record. Raises LaunchError (FAILED) where it cannot be written."""
    folder = stacks_dir() / record.name
    if not store.write(folder, _FILE, record):
        raise LaunchError(
            "serve.state_folder", ExitCode.FAILED, path=str(folder), why=os.strerror(28)
        )


def records() -> tuple[StackRecord, ...]:
    """Return the records of all stacks, by name."""
    try:
        names = sorted(entry.name for entry in os.scandir(stacks_dir()) if entry.is_dir())
    except OSError as error:
        _log.debug("no stacks are listed: %s", error)
        return ()
    found = (read_record(name) for name in names)
    return tuple(record for record in found if record is not None)


@contextlib.contextmanager
def held(name: str) -> Iterator[None]:
    """Lock a stack while it is changed.

    A folder without a record is removed at the end. The rest of a killed command is waited for.
    Raises LaunchError (FAILED) where another process changes the stack, or without a state folder.
    """
    folder = store.make_private(stacks_dir() / name)
    with hold(folder, "stack"):
        try:
            yield
        finally:
            if not (folder / _FILE).is_file():
                shutil.rmtree(folder, ignore_errors=True)
                with contextlib.suppress(OSError):
                    # only where no other stack exists
                    folder.parent.rmdir()


def forget(name: str) -> None:
    """Remove the record of a stack."""
    (stacks_dir() / name / _FILE).unlink(missing_ok=True)
