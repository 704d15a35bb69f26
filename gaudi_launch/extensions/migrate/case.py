"""Convert the command of a start script or of an engine to ours.

It also lists what would differ.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message, text
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.base.redact import redact_text
from gaudi_launch.core.base.redact_values import is_secret_variable, redact_arguments
from gaudi_launch.core.base.yaml_reader import parse_yaml
from gaudi_launch.core.engines.known_versions import versions
from gaudi_launch.core.engines.needed_release import image_versions, releases_of
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.engines.version_facts import names_of, plain_option
from gaudi_launch.core.host.cpus import format_cpus
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.launch.machine import load
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning import parse
from gaudi_launch.core.planning.engine_argument import Argument, read_words
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.model_name import name_warning
from gaudi_launch.core.planning.passthrough import OWN_OPTIONS, with_own_words
from gaudi_launch.core.planning.plan import Plan, Setting
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.profiles import match
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.secret_args import secrets_in, with_secret_moved
from gaudi_launch.extensions.migrate.import_scripts import read_call, request_of
from gaudi_launch.extensions.migrate.start_command import (
    StartCommand,
    for_people,
    read_compose,
    read_start,
    split_shell,
    without_secrets,
)

# a Gaudi2 server with eight OAM cards, for which the scripts were written
_STAND_IN = "simulated:hls2"
# options that our command names itself, or that do not come from another one
_NAMED = ("model", "engine", "python", "tuning", "force", "extra")


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

    ``release`` is that of its start script, or the engine of another command. ``plan`` is made on
    the machine ``host``: that of a script (``scripted``) in reference tuning, another's as we would
    start it.
    """

    release: str
    scripted: bool
    command: tuple[str, ...]
    plan: Plan
    differences: tuple[SettingDifference, ...]
    host: Host
    notes: tuple[Message, ...]


def migrate(
    words: list[str], release: str | None, machine: str | None, engine: str | None = None
) -> Migration:
    """Return the command line of a start script or of an engine as ours.

    ``engine`` is that of our command where it is not the old one's. Raises LaunchError for one that
    cannot be read or planned.
    """
    start = _engine_start(words) if release is None else None
    if start is not None:
        converted = _converted(start, engine)
        request, unread = _moved(converted.request, engine or converted.request.engine)
        host, model, notes = _surroundings(request.model, machine)
        old = [
            Setting(each.shown, each.text, "option", "flag", message("plan.passed"))
            for each in converted.arguments
        ]
        notes = (*converted.notes, *unread, *notes)
        return _planned(request, (host, model, notes), old, converted.variables)
    return _of_script(_split(words), release, machine, engine)


def _moved(request: Request, name: str) -> tuple[Request, tuple[Message, ...]]:
    """Return the request for another engine, and a note on options that it lacks."""
    lacks, without = find(name).lacks, Request(request.model)
    dropped: dict[str, str] = {}
    if request.extra and find(request.engine).in_container != find(name).in_container:
        # TGI's options are no other engine's
        dropped["extra"] = shlex.join(request.extra)
    for field, option in request.options_given():
        lacking = [each for each in option.names if each in lacks]
        if lacking:
            dropped[field] = lacking[0]
    changes = {each: getattr(without, each) for each in dropped}
    found = replace(request, **{**changes, "engine": name, "tuning": "auto"})
    notes = (message("migrate.unread", names=", ".join(dropped.values())),) if dropped else ()
    return found, notes


def _of_script(
    words: list[str], release: str | None, machine: str | None, moved_to: str | None
) -> Migration:
    call = read_call(words, release)
    request = request_of(call, dict(os.environ), time.strftime("%Y-%m-%d-%H-%M-%S"))
    request = with_secret_moved(request)
    host, model, notes = _surroundings(request.model, machine)
    hidden = _hidden(request, call.variables)
    if hidden:
        notes = (message("migrate.secrets", names=", ".join(hidden)), *notes)
    brings_code = _brings_code(model)
    if brings_code:
        # the scripts always allow it, and this model cannot be loaded without
        request = replace(request, trust_remote_code=True)
    engine = find(request.engine)
    # an engine that is left behind need not know the model
    reference = make_plan(replace(request, force=moved_to is not None), host, model, engine)
    shown = {name: value for name, value in call.variables.items() if name not in hidden}
    if moved_to is not None:
        cards = len(reference.placement.modules)
        request, unread = _moved(replace(request, cards=cards), moved_to)
        place = (host, model, (*notes, *unread))
        return _planned(request, place, reference.settings, shown, brings_code)
    ours: Plan | LaunchError
    try:
        ours = make_plan(replace(request, tuning="auto"), host, model, engine)
    except LaunchError as error:
        # a refusal by auto is itself the difference
        ours = error
    old, cpus = reference.settings, reference.placement.cpus
    differences = _differences(old, ours, brings_code, cpus)
    command = tuple(redact_arguments(_our_command(request, shown)))
    return Migration(call.release, True, command, reference, tuple(differences), host, notes)


def _surroundings(name: str, machine: str | None) -> tuple[Host, Model, tuple[Message, ...]]:
    """Return the machine to plan for, the model, and notes on both."""
    host, notes = _machine(machine)
    model = known_model(name, must_exist=False)
    return host, model, (*notes, *name_warning(name, model))


_IMAGE_VERSION = re.compile(r"(?:vllm-|:)v?(\d+\.\d+\.\d+)")
# TGI's options that are ours, each with the field of the request and vLLM's name for it
_OF_TGI = {
    "--num-shard": "--tensor-parallel-size",
    "--hostname": "--host",
    "--max-input-length": "--max-input-tokens",
}
# of the images with vLLM (vllm-project/vllm-gaudi@v0.26.0:.cd/templates/template_vllm_server.sh)
_OF_VLLM = {
    "MODEL": "--model",
    "TENSOR_PARALLEL_SIZE": "--tensor-parallel-size",
    "MAX_MODEL_LEN": "--max-model-len",
    "MAX_NUM_SEQS": "--max-num-seqs",
    "GPU_MEM_UTILIZATION": "--gpu-memory-utilization",
}
# a compose file or a Kubernetes manifest, of one or several documents
_CONTAINERS, _DOCUMENT = re.compile(r"(?:services|containers):"), re.compile(r"(?m)^---")
# vllm/entrypoints/openai/cli_args.py
_VLLM_PORT = 8000
_MODEL = ("--model", "--model-id", "--model-tag")


def _engine_start(words: list[str]) -> StartCommand | None:
    """Return the start command of an engine in a text or a file."""
    known = dict(os.environ)
    text = "".join(words[-1:]).removeprefix("bash ") if words[:-1] in ([], ["bash"]) else ""
    try:
        if text.endswith((".sh", ".yml", ".yaml")) and Path(text).is_file():
            text = Path(text).read_text(encoding="utf-8")
            words = [text]
        if _CONTAINERS.search(text):
            documents = map(parse_yaml, _DOCUMENT.split(text))
            found = (read_compose(each, known) for each in documents)
            return next(filter(None, found), None)
        return read_start(_split(words), known)
    except (ValueError, OSError) as error:
        raise LaunchError(
            "migrate.quoting",
            ExitCode.USAGE,
            found=redact_text(text)[:200],
            why=str(error).split("\n")[0],
        ) from None


@dataclass(frozen=True)
class ConvertedStart:
    """An engine's command as a request, with its arguments and notes on the rest.

    ``variables`` are those of the command without secrets.
    """

    request: Request
    arguments: tuple[Argument, ...]
    variables: Mapping[str, str]
    notes: tuple[Message, ...]


def serve_words(text: str) -> tuple[list[str], ConvertedStart] | None:
    """Return an engine's command as arguments of serve; None for another text."""
    start = _engine_start([text])
    if start is None:
        return None
    converted = _converted(start)
    words = _our_command(converted.request, {})
    return words[words.index("serve") + 1 :], converted


def _with_variables(start: StartCommand) -> None:
    """Make options of the variables of an image.

    Each option of TGI has one (launcher/src/main.rs); vLLM's images read theirs without arguments.
    """
    if start.engine == "vllm" and not start.words:
        for name, spelled in _OF_VLLM.items():
            if name in start.variables:
                start.words += [spelled, start.variables.pop(name)]
        start.words += shlex.split(start.variables.pop("EXTRA_ARGS", ""))
    if start.engine != "tgi":
        return
    table = find("tgi").option_table
    for name in [*start.variables]:
        option = table.spellings.get("--" + name.lower().replace("_", "-"))
        if option is not None and option.name not in start.words:
            value = start.variables.pop(name)
            start.words += [option.name] if option.count == "0" else [option.name, value]


def _converted(start: StartCommand, moved_to: str | None = None) -> ConvertedStart:
    _with_variables(start)
    engine, arguments, unread = _engine_of(start, moved_to)
    unread = [*without_secrets(start.unread), *unread]
    named: list[Argument] = []
    passed: list[Argument] = []
    before = ""
    for each in arguments:
        is_model = each.positional or each.name in _MODEL
        readable = "$" not in "".join(each.words)
        if is_model and readable and not named:
            named.append(each)
        elif is_model or not readable:
            unread.append(shlex.join(without_secrets((before, *each.words))[1:]))
        elif each.name != "--sharded":
            passed.append(each)
        before = each.words[-1]
    request = _requested(start, engine, _model_of(start, named), passed)
    hidden = _hidden(request, start.variables)
    notes = []
    for id, names in (
        ("migrate.secrets", hidden),
        ("migrate.container", start.container),
        ("migrate.unread", unread),
    ):
        if names:
            notes.append(message(id, names=redact_text(", ".join(names))))
    shown = {name: value for name, value in start.variables.items() if name not in hidden}
    secret = secrets_in(arguments)
    stated = [each for each in (*named, *passed) if not each.option.secret and each not in secret]
    return ConvertedStart(request, tuple(stated), shown, tuple(notes))


def _model_of(start: StartCommand, named: Sequence[Argument]) -> str:
    """Return the model that a command names. Raises LaunchError (USAGE) without one."""
    model = start.path(named[0].value or named[0].name) if named else ""
    if not model or "$" in model or model.endswith(".sh"):
        found = for_people(start.words) or start.image or start.engine
        raise LaunchError("migrate.model", ExitCode.USAGE, found=found)
    return model


def _requested(start: StartCommand, engine: str, model: str, passed: Sequence[Argument]) -> Request:
    """Return the request of a command with these arguments."""
    variables = {**os.environ, **start.variables}
    every = tuple(word for each in passed for word in each.words)
    request = Request(model=model, engine=engine, environment=variables, extra=every)
    request = with_own_words(request, find(engine).identity, ())
    address, _, published = start.address.rpartition(":")
    port = parse.port("-p", published) if published else request.port
    if port is None and start.engine == "vllm":
        port = _VLLM_PORT
    request = replace(
        request,
        cards=request.cards or 1,
        port=port,
        host=address or request.host,
        extra=tuple(w for each in passed if each.name not in OWN_OPTIONS for w in each.words),
    )
    return with_secret_moved(request)


def _planned(
    request: Request,
    place: tuple[Host, Model, tuple[Message, ...]],
    old: Sequence[Setting],
    variables: Mapping[str, str],
    brings_code: bool | None = None,
) -> Migration:
    """Return a command that is not a script's, with what differs from before."""
    host, model, notes = place
    plan = make_plan(request, host, model, find(request.engine))
    command = tuple(redact_arguments(_our_command(request, variables)))
    differences = tuple(_differences(old, plan, brings_code, plan.placement.cpus))
    return Migration(request.engine, False, command, plan, differences, host, notes)


def _engine_of(start: StartCommand, moved_to: str | None) -> tuple[str, list[Argument], list[str]]:
    """Return the engine of a command, its arguments, and those that it does not know.

    Of several releases it is the newest of those with the fewest unknown ones.
    """
    stated = _IMAGE_VERSION.search(start.image)
    version = stated[1] if stated is not None else ""
    newest = releases_of("vllm-gaudi")
    if start.engine == "tgi":
        known = {each.version for each in image_versions() if each.engine == "tgi"}
        names = [f"tgi@{version}" if version in known else find("tgi").identity.exact]
    elif moved_to is not None and find(moved_to).identity.name != "tgi":
        # what that engine does not know is left out
        names = [find(moved_to).identity.exact]
    elif f"vllm-gaudi@{version}" in newest:
        names = [f"vllm-gaudi@{version}"]
    else:
        names = [newest[0], "vllm-fork@1.22", "vllm-fork@1.21"]
    read = [(name, *_read_by(name, start)) for name in names]
    return min(read, key=lambda each: len(each[2]))


def _read_by(name: str, start: StartCommand) -> tuple[list[Argument], list[str]]:
    """Return the arguments of a command that a release knows, and the others."""
    table = find(name).option_table
    facts = next((names_of(each).options for each in versions() if each.label == name), {})
    known, unknown = [], []
    for each in read_words(tuple(start.words), table):
        spelled = plain_option(each.name) in facts if facts else each.name in table.spellings
        if each.positional or spelled or each.name in _MODEL:
            known.append(_renamed(each))
        else:
            unknown.append(shlex.join(each.words))
    return known, unknown


def _renamed(argument: Argument) -> Argument:
    name = _OF_TGI.get(argument.name)
    if name is None:
        return argument
    return replace(argument, name=name, words=(name, *argument.values))


def _hidden(request: Request, variables: Mapping[str, str]) -> list[str]:
    """Return the secrets that our command must not show.

    They were moved from an option, or assigned in the old command.
    """
    given = set(variables) | set(os.environ)
    moved = {name for name in request.environment if name not in given}
    assigned = {name for name, value in variables.items() if is_secret_variable(name, value)}
    return sorted(moved | assigned)


def _machine(machine: str | None) -> tuple[Host, tuple[Message, ...]]:
    """Return the machine to plan for.

    A simulated one, with a note, where this machine shows no card.
    """
    host = load(machine)
    if machine is not None or host.cards:
        return host, ()
    return load(_STAND_IN), (message("migrate.no_cards", machine=_STAND_IN),)


def _brings_code(model: Model) -> bool | None:
    """Return whether the model includes Python code.

    Its profile answers where no config.json is here.
    """
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
        return split_shell(words[0])
    except ValueError as error:
        raise LaunchError(
            "migrate.quoting", ExitCode.USAGE, found=redact_text(words[0])[:200], why=str(error)
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
    one_card = request.cards == 1 and request.modules is None and request.tuning == "reference"
    for name, option in request.options_given():
        if name in _NAMED or (name == "cards" and one_card):
            continue
        words.append(option.names[0])
        if not option.switch:
            words.append(request.text(name))
    return [*words, *(["--", *request.extra] if request.extra else [])]


def _differences(
    old_settings: Sequence[Setting],
    ours: Plan | LaunchError,
    brings_code: bool | None,
    cpus: Sequence[int],
) -> list[SettingDifference]:
    """Return the changes by --tuning auto.

    ``brings_code``: whether the model includes Python code, None where unknown.
    """
    if isinstance(ours, LaunchError):
        return [SettingDifference("plan", "", "", str(ours))]
    theirs = {(setting.kind, setting.name): setting for setting in old_settings if setting.sent}
    mine = {(setting.kind, setting.name): setting for setting in ours.settings if setting.sent}
    found = []
    for key in [*theirs, *(key for key in mine if key not in theirs)]:
        old, new = theirs.get(key), mine.get(key)
        if old is not None and new is not None and old.value == new.value:
            continue
        reason = new.reason.render() if new is not None else _left_out(key[1], brings_code)
        found.append(SettingDifference(key[1], _value(old), _value(new), reason))
    if tuple(cpus) != tuple(ours.placement.cpus):
        old_cpus, new_cpus = format_cpus(cpus), format_cpus(ours.placement.cpus)
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
