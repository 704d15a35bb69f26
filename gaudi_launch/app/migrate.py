"""The use case of ``gaudi-launch migrate``: convert a start script's command.

It also lists what would differ.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import message, text
from gaudi_launch.optional import mapped

if TYPE_CHECKING:
    from gaudi_launch.host.hardware import Host
    from gaudi_launch.messages import Message
    from gaudi_launch.models.model import Model
    from gaudi_launch.planning.plan import Plan, Setting
    from gaudi_launch.planning.request import Request

# a Gaudi2 server with eight OAM cards, for which the scripts were written
_STAND_IN = "simulated:hls2"
_FLAGS = (
    ("cards", "-n"),
    ("modules", "-m"),
    ("host", "-u"),
    ("port", "-p"),
    ("dtype", "-d"),
    ("input_range", "-i"),
    ("output_range", "-o"),
    ("max_num_batched_tokens", "-t"),
    ("max_model_len", "-l"),
    ("max_num_seqs", "-b"),
    ("scheduler_steps", "-e"),
    ("max_prefill_seqs", "--max-prefill-seqs"),
    ("padding_limit", "--padding-limit"),
    ("memory_utilization", "--memory-utilization"),
    ("max_capture_len", "--max-capture-len"),
    ("quant_config", "--quant-config"),
    ("cache_dir", "-c"),
    ("reduce", "-r"),
    ("skip_warmup", "-s"),
    ("profile", "-f"),
    ("no_zero_padding", "-z"),
    ("no_fused_sdpa", "-a"),
    ("inc_fp8", "-q"),
    ("trust_remote_code", "--trust-remote-code"),
)


@dataclass(frozen=True)
class SettingDifference:
    """A setting that --tuning auto changes; a value of None: it is not set."""

    name: str
    reference: str | None
    ours: str | None
    reason: str


@dataclass(frozen=True)
class Migration:
    """The old command as ours.

    ``reference`` is its plan in reference tuning, on the machine ``host``.
    """

    release: str
    command: tuple[str, ...]
    reference: Plan
    differences: tuple[SettingDifference, ...]
    host: Host
    notes: tuple[Message, ...]


def migrate(words: list[str], release: str | None, machine: str | None) -> Migration:
    """Return a start script's command line as ours.

    Raises LaunchError for one that cannot be read or planned.
    """
    from gaudi_launch.app.unknown_model import unknown_model
    from gaudi_launch.engines.registry import find
    from gaudi_launch.engines.vllm_fork.import_scripts import read_call, request_of
    from gaudi_launch.planning.planner import make_plan
    from gaudi_launch.planning.secret_args import with_secret_moved
    from gaudi_launch.profiles import known_model

    call = read_call(_split(words), release)
    request = request_of(call, dict(os.environ), time.strftime("%Y-%m-%d-%H-%M-%S"))
    request = with_secret_moved(request)
    hidden = _hidden(request, call.variables)
    host, notes = _machine(machine)
    if hidden:
        notes = (*notes, message("migrate.secrets", names=", ".join(hidden)))
    model = known_model(request.model, must_exist=False)
    unknown = unknown_model(request.model, model)
    if unknown is not None:
        notes = (*notes, unknown)
    brings_code = _brings_code(model)
    if brings_code:
        # the scripts always allow it, and this model cannot be loaded without
        request = replace(request, trust_remote_code=True)
    engine = find(request.engine)
    reference = make_plan(request, host, model, engine)
    ours: Plan | LaunchError
    try:
        ours = make_plan(replace(request, tuning="auto"), host, model, engine)
    except LaunchError as error:
        # a refusal by auto is itself the difference
        ours = error
    shown = {name: value for name, value in call.variables.items() if name not in hidden}
    return Migration(
        release=call.release,
        command=tuple(_our_command(request, shown)),
        reference=reference,
        differences=tuple(_differences(reference, ours, brings_code)),
        host=host,
        notes=notes,
    )


def _hidden(request: Request, variables: Mapping[str, str]) -> list[str]:
    """Return the secrets that our command must not show.

    They were moved from an option, or assigned in the old command.
    """
    from gaudi_launch.redact import is_secret_name

    given = set(variables) | set(os.environ)
    moved = {name for name in request.environment if name not in given}
    assigned = {name for name in variables if is_secret_name(name)}
    return sorted(moved | assigned)


def _machine(machine: str | None) -> tuple[Host, tuple[Message, ...]]:
    """Return the machine to plan for.

    A simulated one, with a note, where this machine shows no card.
    """
    from gaudi_launch.app.machine import load

    host = load(machine)
    if machine is not None or host.cards:
        return host, ()
    return load(_STAND_IN), (message("migrate.no_cards", machine=_STAND_IN),)


def _brings_code(model: Model) -> bool | None:
    """Return whether the model includes Python code.

    Its profile answers where no config.json is here.
    """
    from gaudi_launch.profiles import match

    if model.remote_code is not None:
        return model.remote_code
    profile = match(model)
    known = profile.facts.get("remote_code") if profile is not None else None
    return mapped(bool, known)


def _split(words: list[str]) -> list[str]:
    """Return the arguments of a command.

    One quoted string is split as a shell splits it, nothing is run.
    """
    if len(words) != 1:
        return words
    try:
        # a backslash at a line's end joins lines in scripts and manuals
        return shlex.split(words[0].replace("\\\n", " "))
    except ValueError as error:
        raise LaunchError(
            "migrate.quoting", ExitCode.USAGE, found=words[0][:200], why=str(error)
        ) from None


def _our_command(request: Request, variables: Mapping[str, str]) -> list[str]:
    """Return our command for the same deployment.

    It has the variables that preceded the old one.
    """
    assigned = [f"{name}={value}" for name, value in variables.items()]
    words = [
        *(["env", *assigned] if assigned else []),
        "gaudi-launch",
        "serve",
        "--engine",
        request.engine,
    ]
    words += ["-w", request.model]
    for name, flag in _FLAGS:
        value = getattr(request, name)
        if (
            value is None
            or value is False
            or (name == "cards" and value == 1 and request.modules is None)
        ):
            continue
        words.append(flag)
        if name.removesuffix("_range") in request.open_ranges:
            words.append(str(value[0]))
        elif isinstance(value, tuple):
            words.append(",".join(str(item) for item in value))
        elif value is not True:
            words.append(str(value))
    return [*words, *(["--", *request.extra] if request.extra else [])]


def _differences(
    reference: Plan, ours: Plan | LaunchError, brings_code: bool | None
) -> list[SettingDifference]:
    """Return the changes by --tuning auto.

    ``brings_code``: whether the model includes Python code, None where unknown.
    """
    if isinstance(ours, LaunchError):
        return [SettingDifference("plan", "", "", str(ours))]
    theirs = {
        (setting.kind, setting.name): setting for setting in reference.settings if setting.sent
    }
    mine = {(setting.kind, setting.name): setting for setting in ours.settings if setting.sent}
    found = []
    for key in [*theirs, *(key for key in mine if key not in theirs)]:
        old, new = theirs.get(key), mine.get(key)
        if old is not None and new is not None and old.value == new.value:
            continue
        reason = new.reason.render() if new is not None else _left_out(key[1], brings_code)
        found.append(SettingDifference(key[1], _value(old), _value(new), reason))
    if reference.placement.cpus != ours.placement.cpus:
        from gaudi_launch.host.cpus import format_cpus

        old_cpus, new_cpus = format_cpus(reference.placement.cpus), format_cpus(ours.placement.cpus)
        found.append(SettingDifference("cpus", old_cpus, new_cpus, text("migrate.cpus")))
    return found


def _value(setting: Setting | None) -> str | None:
    return None if setting is None else setting.value or ""


def _left_out(name: str, brings_code: bool | None) -> str:
    """Return why --tuning auto leaves a setting of the scripts out."""
    if name != "--trust-remote-code":
        return text("migrate.left_out")
    if brings_code is None:
        return text("migrate.code_unknown")
    return text("migrate.code_unneeded")
