"""Plans in files, which are planned again when they are used.

A file has the options, goal, load, engine version and settings.

``--save FILE`` writes one, ``--plan FILE`` reads it. The schema is profiles/schema/plan.json.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.fields import options_of
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.profiles_check import first_problem
from gaudi_launch.core.base.redact_values import redact_arguments, redact_document
from gaudi_launch.core.base.version import VERSION
from gaudi_launch.core.base.yaml_reader import as_typed, checked_tree, read_text
from gaudi_launch.core.engines.entries import entry
from gaudi_launch.core.host.accelerators import product_of
from gaudi_launch.core.host.machine import SIMULATED, named
from gaudi_launch.core.launch.machine import load
from gaudi_launch.core.planning.engine_args import engine_args
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.option_table import UPSTREAM, option_table
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.planning.secret_args import refuse_secret_args
from gaudi_launch.core.predict.load import Load

KIND = "gaudi-launch plan"
_SCHEMA = 1
_EXTRA = "engine-arguments"
# the machine is an entry by itself; a forced plan is not forced again
_NOT_SAVED = ("machine", "plan_file", "extra", "force")
# they follow from the cards, which are compared by themselves, and from this host's folders
_OF_HOST = ("HABANA_VISIBLE_MODULES", "HABANA_VISIBLE_DEVICES", "PT_HPU_RECIPE_CACHE_CONFIG")
_MOST_LISTED = 8
# --machine: this one, whatever the file says
THIS_MACHINE = ""


@dataclass(frozen=True)
class SavedTraffic:
    """The load for ``bench``, each value as typed; "" where there is none."""

    input: str = ""
    output: str = ""
    rate: str = ""
    concurrency: str = ""
    trace: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the values that there are, by name."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name)
        }


@dataclass(frozen=True)
class SavedPlan:
    """A plan in a file: ``engine`` is its exact name, ``cards`` are module IDs."""

    path: str
    options: LaunchOptions
    engine: str
    goal: str = ""
    cards: tuple[int, ...] = ()
    url: str = ""
    settings: Mapping[str, str | None] | None = None
    traffic: SavedTraffic = SavedTraffic()
    hash: str = ""


@dataclass(frozen=True)
class ComparedPlan:
    """A saved plan with the options by which it is planned again."""

    saved: SavedPlan
    options: LaunchOptions

    @classmethod
    def of(cls, options: LaunchOptions) -> ComparedPlan | None:
        """Return the comparison of merged options; None without --plan."""
        if options.plan_file is None:
            return None
        return cls(read(Path(options.plan_file)), options)

    def differences(self, plan: Plan) -> tuple[Message, ...]:
        """Return how the plan differs from the saved one."""
        return differences(self.saved, self.options, plan)


def traffic_of(options: LaunchOptions, load: Load | None) -> SavedTraffic:
    """Return the load that a plan was predicted for.

    The given ranges, and as many clients as it serves at once.
    """
    if load is None:
        return SavedTraffic(options.text("input_range"), options.text("output_range"))
    return SavedTraffic(
        input=options.text("input_range") or str(load.input_range[1]),
        output=options.text("output_range") or str(load.output_range[1]),
        concurrency=str(load.clients),
    )


def key_of(name: str) -> str:
    """Return a field of LaunchOptions by its key in the file."""
    if name == "model":
        return "model"
    return options_of(LaunchOptions)[name].names[-1].removeprefix("--")


def saved_fields() -> dict[str, str]:
    """Return the fields of LaunchOptions that a file can have, by their keys."""
    names = (field.name for field in fields(LaunchOptions) if field.name not in _NOT_SAVED)
    return {key_of(name): name for name in names}


def _merged_fields() -> dict[str, str]:
    """Return the fields of LaunchOptions that a file fills, by their keys."""
    return {**saved_fields(), "machine": "machine"}


def entries_of(options: LaunchOptions) -> dict[str, Any]:
    """Return the given options by their keys in a file, with the engine's arguments."""
    given: dict[str, Any] = {}
    for key, name in saved_fields().items():
        value = getattr(options, name)
        if not value:
            continue
        if name == "faults":
            value = list(value)
        elif value is not True:
            value = options.text(name)
        given[key] = value
    if options.extra:
        given[_EXTRA] = list(options.extra)
    return given


def hash_of(plan: Plan) -> str:
    """Return the hash of what a plan starts: engine, number of cards, settings."""
    content = [plan.engine.exact, len(plan.placement.modules), sorted(sent_settings(plan).items())]
    return "sha256:" + hashlib.sha256(json.dumps(content).encode()).hexdigest()


def sent_settings(plan: Plan) -> dict[str, str | None]:
    """Return what the engine gets by name.

    Without the user's exported variables, which are not part of a plan's options.
    """
    found: dict[str, str | None] = {}
    for setting in plan.settings:
        if not setting.sent or setting.source == "environment" or setting.name in _OF_HOST:
            continue
        found[setting.name] = redact_document(setting.value, setting.name)
    return found


def write(
    path: Path,
    options: LaunchOptions,
    plan: Plan,
    *,
    goal: str,
    traffic: SavedTraffic,
) -> None:
    """Write a plan. Another saved plan is replaced.

    Raises LaunchError: (USAGE) for a secret in the options or another file at this path, (FAILED)
    where it cannot be written.
    """
    import yaml

    refuse_secret_args(engine_args(table=option_table(UPSTREAM), user=options.extra))
    _check_replaceable(path)
    given = entries_of(absolute_paths(options))
    if not options.cards and not options.modules and plan.placement.modules:
        given["cards"] = str(plan.placement.tensor)
    document: dict[str, Any] = {
        "schema": _SCHEMA,
        "kind": KIND,
        "written_by": VERSION,
        "goal": goal,
        **_machine_of(options),
        "options": given,
        "traffic": traffic.to_json(),
        "engine": plan.engine.exact,
        "cards": list(plan.placement.modules),
        "url": plan.url,
        "settings": sent_settings(plan),
        "hash": hash_of(plan),
    }
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000)
    try:
        path.write_text(f"# gaudi-launch serve --plan {path.name}\n{text}", encoding="utf-8")
    except OSError as error:
        raise file_error("saved.not_written", error, path) from None


def absolute_paths(options: LaunchOptions) -> LaunchOptions:
    """Return the options with absolute paths.

    A service starts again, and a saved plan is read, from any folder.
    """
    model = options.model
    # also of a name that is too long for a folder
    if model and os.path.isdir(Path(model).expanduser()):  # noqa: PTH112
        model = _absolute(model)
    return replace(
        options,
        model=model,
        quant_config=options.quant_config and _absolute(options.quant_config),
        cache_dir=options.cache_dir and _absolute(options.cache_dir),
    )


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def _machine_of(options: LaunchOptions) -> dict[str, str]:
    """Return the entry of the machine; none for this machine."""
    if not options.machine:
        return {}
    machine = named(options.machine)
    if machine.startswith(SIMULATED):
        return {"machine": machine}
    return {"machine": _absolute(machine)}


def check_path(path: Path) -> None:
    """Check, before a long search, that a plan can be written to this path.

    Raises LaunchError as `write` does.
    """
    _check_replaceable(path)
    folder = path.parent
    if not folder.is_dir():
        why = os.strerror(errno.ENOENT)
    elif not os.access(folder, os.W_OK):
        why = os.strerror(errno.EACCES)
    else:
        return
    raise LaunchError("saved.not_written", ExitCode.FAILED, path=str(path), why=why)


def _check_replaceable(path: Path) -> None:
    """Refuse all but a new file and a saved plan. A pipe is not opened: it waits."""
    if not path.exists():
        return
    other = LaunchError("saved.other_file", ExitCode.USAGE, path=str(path))
    if not path.is_file():
        raise other
    try:
        read(path)
    except LaunchError as error:
        raise other from error


def read(path: Path) -> SavedPlan:
    """Return the plan in a file.

    Raises LaunchError (USAGE), with the line where the file is not a saved plan.
    """
    text = read_text(path, unreadable="saved.unreadable", bad="saved.bad")
    document, tree = checked_tree(text, path, bad="saved.bad")
    found = first_problem(document, tree, "plan")
    if found is not None:
        _, line, why = found
        raise LaunchError("saved.bad", ExitCode.USAGE, path=str(path), line=line, why=why)
    options = dict(document["options"])
    extra = tuple(options.pop(_EXTRA, ()))
    known = saved_fields()
    given: dict[str, Any] = {known[key]: as_typed(value) for key, value in options.items()}
    traffic = {name: str(value) for name, value in document.get("traffic", {}).items()}
    return SavedPlan(
        path=str(path),
        options=LaunchOptions(**given, extra=extra, machine=document.get("machine")),
        engine=document["engine"],
        goal=document.get("goal", ""),
        cards=tuple(document.get("cards", ())),
        url=document.get("url", ""),
        settings=document.get("settings", {}),
        traffic=SavedTraffic(**traffic),
        hash=document["hash"],
    )


def merged(options: LaunchOptions) -> LaunchOptions:
    """Return the options of the file of ``--plan`` with the given ones, which win.

    Unchanged without a file, and for options that were merged. Raises as `read`.
    """
    if options.plan_file is None:
        return options
    saved = read(Path(options.plan_file)).options
    changes: dict[str, Any] = {}
    for name in _merged_fields().values():
        value, given = getattr(saved, name), getattr(options, name)
        if value and not given and given != THIS_MACHINE:
            changes[name] = value
    # -n and -m name cards in two ways
    if options.modules:
        changes.pop("cards", None)
    if options.cards and options.cards != saved.cards:
        changes.pop("modules", None)
    if options.extra[: len(saved.extra)] != saved.extra:
        changes["extra"] = (*saved.extra, *options.extra)
    return replace(options, **changes)


def on_this_machine(options: LaunchOptions) -> LaunchOptions:
    """Return merged options for what starts here, on cards of the file's type.

    Simulated cards keep their machine. Raises LaunchError (MACHINE) where this machine has other
    cards than the file's.
    """
    made_for = options.machine
    if not made_for or entry(options.engine or "").machine or own_part(options).machine:
        return options
    wanted, found = (product_of(load(each)) for each in (made_for, None))
    if wanted != found:
        raise LaunchError(
            "saved.other_machine",
            ExitCode.MACHINE,
            path=options.plan_file,
            machine=made_for,
            wanted=wanted,
            found=found or "-",
            model=options.model,
        )
    return replace(options, machine=THIS_MACHINE)


def own_part(options: LaunchOptions) -> LaunchOptions:
    """Return merged options without those of the file that they name."""
    if options.plan_file is None:
        return options
    saved = read(Path(options.plan_file)).options
    changes: dict[str, Any] = {}
    for name in _merged_fields().values():
        if getattr(options, name) == getattr(saved, name):
            changes[name] = getattr(LaunchOptions(), name)
    if options.extra[: len(saved.extra)] == saved.extra:
        changes["extra"] = options.extra[len(saved.extra) :]
    return replace(options, **changes)


def differences(saved: SavedPlan, options: LaunchOptions, plan: Plan) -> tuple[Message, ...]:
    """Return how a plan differs from the saved one, nothing where it is the same."""
    file = Path(saved.path).name
    found: list[Message] = []
    for key, name in _merged_fields().items():
        now, before = getattr(options, name), getattr(saved.options, name)
        if not now or now == before:
            continue
        id = "saved.other_option" if before else "saved.more_option"
        shown = f"--{key}" if now is True else f"--{key} {options.text(name)}"
        found.append(message(id, file=file, option=shown, saved=saved.options.text(name)))
    added = options.extra[len(saved.options.extra) :]
    if added:
        found.append(
            message("saved.more_arguments", file=file, arguments=" ".join(redact_arguments(added)))
        )
    if plan.engine.exact != saved.engine:
        found.append(
            message("saved.other_engine", file=file, now=plan.engine.exact, saved=saved.engine)
        )
    modules = plan.placement.modules
    if modules != saved.cards:
        words = {"now": _list(modules), "saved": _list(saved.cards)}
        id = "saved.other_number"
        if len(modules) == len(saved.cards):
            id = "saved.other_cards"
        found.append(message(id, file=file, **words))
    changed = _changed(saved.settings or {}, sent_settings(plan))
    if changed:
        shown = ", ".join(changed[:_MOST_LISTED])
        more = len(changed) - _MOST_LISTED
        id = "saved.settings_more" if more > 0 else "saved.settings"
        found.append(message(id, file=file, settings=shown, more=more))
    return tuple(found)


def _changed(before: Mapping[str, str | None], now: Mapping[str, str | None]) -> list[str]:
    """Return each setting with another value: ``name old -> new``."""
    found: list[str] = []
    for name in (*before, *(name for name in now if name not in before)):
        if name in before and name in now and _same(before[name], now[name]):
            continue
        old = _shown(before[name]) if name in before else "-"
        new = _shown(now[name]) if name in now else "-"
        found.append(f"{name} {old} -> {new}")
    return found


def _same(one: str | None, other: str | None) -> bool:
    """Report whether two values are alike; a file may be in another folder."""
    if one is None or other is None or not (one.startswith("/") and other.startswith("/")):
        return one == other
    return Path(one).name == Path(other).name


def _shown(value: str | None) -> str:
    return "on" if value is None else value


def _list(modules: tuple[int, ...]) -> str:
    return ",".join(map(str, modules)) or "-"
