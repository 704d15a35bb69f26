"""Pass-through engine options (after ``--``) that override planner inputs.

The arguments keep their place after ours, where the last one counts. What a plan computes from them
(cards, buckets, memory, the address to query) must be the same as what the engine will do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import options_of
from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.base.yaml_reader import shipped
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.engine_args import EngineArgs
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.option_table import option_table
from gaudi_launch.core.planning.parse import number
from gaudi_launch.core.planning.plan import EngineIdentity, Overridden, Setting
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.secret_args import CONFIG, is_secret_file

# the engine determines the length itself (upstream's human_readable_int_or_auto)
_ITS_OWN = ("auto", "-1")
STAGES, COPIES = "--pipeline-parallel-size", "--data-parallel-size"
_MOST_PARTS = 64
EXPERTS = "--enable-expert-parallel"
# vllm/config/parallel.py __post_init__: read where no option gives the copies
_VARIABLES_APART = {"VLLM_DP_SIZE": "1", "VLLM_DP_RANK": "0", "VLLM_DP_RANK_LOCAL": "0"}
_LAUNCHED = ("--distributed-executor-backend", "external_launcher")
# the engine's options of a layout that one of our options decides
HOSTS = {
    "--tensor-parallel-size": "--tensor-parallel",
    STAGES: "--pipeline-parallel",
    COPIES: "--data-parallel",
}
REPLICAS = {STAGES: "-n", COPIES: "--replicas"}


@dataclass(frozen=True)
class _Word:
    field: str
    names: tuple[str, ...]
    flag: str
    read: Callable[[str, str], Any]


@cache
def marks() -> Mapping[str, Mapping[str, str | None]]:
    """Return the options by mark.

    Each has the value that changes nothing, None for none.
    """
    document = shipped("engines", "options", "marks.yaml")
    return {
        mark: {str(name): mapped(str, value) for name, value in mapping(document[mark]).items()}
        for mark in ("modelled", "without_effect", "not_modelled", "apart")
    }


def _on(name: str, text: str) -> bool:
    return True


def _text(name: str, text: str) -> str:
    if not text:
        raise LaunchError("plan.no_value", ExitCode.USAGE, option=name)
    return text


# the engine's options by the field of our option that means the same
_ENGINE_NAMES = {
    "max_model_len": ("--max-model-len",),
    "max_num_batched_tokens": ("--max-num-batched-tokens",),
    "max_num_seqs": ("--max-num-seqs",),
    "max_prefill_seqs": ("--max-num-prefill-seqs",),
    "cards": ("--tensor-parallel-size", "-tp"),
    "port": ("--port",),
    "host": ("--host",),
    "served_name": ("--served-model-name",),
    "trust_remote_code": ("--trust-remote-code",),
}


def _words() -> Iterator[_Word]:
    ours = options_of(LaunchOptions)
    for field, names in _ENGINE_NAMES.items():
        option = ours[field]
        read = option.read or _text
        if option.switch:
            read = _on
        yield _Word(field, names, option.names[0], read)


_WORDS = tuple(_words())
# the options that a field of the request replaces, in every spelling
OWN_OPTIONS = frozenset(name for word in _WORDS for name in word.names)


def written(args: EngineArgs, flag: str, *names: str) -> str:
    """Return our option, or the engine's where the user wrote that.

    ``names`` are the engine's for an option that no field of the request replaces.
    """
    known = names or next(word.names for word in _WORDS if word.flag == flag)
    return next((name for name in known if args.has(name)), flag)


def parallel_sizes(args: EngineArgs) -> tuple[int, int]:
    """Return the pipeline stages of the model, and its copies by data parallelism.

    Each stage of each copy uses separate cards. Raises LaunchError (USAGE).
    """
    stages, copies = (args.last(name) or "1" for name in (STAGES, COPIES))
    return number(STAGES, stages, 1, _MOST_PARTS), number(COPIES, copies, 1, _MOST_PARTS)


def with_options(request: Request, identity: EngineIdentity) -> Request:
    """Return the request with the option table of its engine.

    Its arguments after ``--`` are read by this table.
    """
    return replace(request, options=option_table(identity.options))


def with_user_args(settings: Sequence[Setting], args: EngineArgs) -> tuple[Setting, ...]:
    """Return the settings with our options replaced by the user's.

    Also return what they overrode. Settings that include the user's part already are not changed.
    """
    own = {argument.name: argument for argument in (*args.file, *args.user)}
    written = {argument.name for argument in args.user}
    shown: dict[str, Setting] = {}
    for name, argument in own.items():
        listed, value = name, None
        if not argument.positional:
            listed, value = args.in_force(name)
        reason = _reason(name, value, name in written)
        shown[name] = Setting(listed, value, "option", "flag", reason)
    merged: list[Setting] = []
    places: dict[str, int] = {}
    for setting in settings:
        name = _option_name(args, setting)
        if name not in shown:
            merged.append(setting)
        elif name in places:
            merged[places[name]] = over(merged[places[name]], setting)
        else:
            places[name] = len(merged)
            merged.append(over(shown[name], setting))
    return (*merged, *(setting for name, setting in shown.items() if name not in places))


def _option_name(args: EngineArgs, setting: Setting) -> str:
    """Return the canonical name of an option, "" for a variable."""
    if setting.kind != "option":
        return ""
    return args.canonical(setting.name)


def _reason(name: str, value: str | None, is_written: bool) -> Message:
    if name == CONFIG and is_secret_file(value):
        return message("plan.secret_file")
    if is_written:
        return message("plan.passed")
    return message("plan.passed_file")


def over(winner: Setting, loser: Setting) -> Setting:
    """Return the winner, with the loser's value as overridden.

    A loser with the same value lost nothing.
    """
    beaten = [*winner.beaten]
    if not _same(winner, loser):
        beaten.append(Overridden(loser.name if loser.value is None else loser.value, loser.source))
    beaten += [each for each in loser.beaten if each.value != winner.value and each not in beaten]
    return replace(winner, beaten=tuple(beaten))


def _same(one: Setting, other: Setting) -> bool:
    """Return True if two settings of an option are equal in any spelling.

    Spellings are, for example, 16K and 16384.
    """
    if one.value is None or other.value is None:
        return (one.name, one.value) == (other.name.replace("_", "-"), other.value)
    word = next((word for word in _WORDS if one.name in word.names), None)
    if word is None or one.value == other.value:
        return one.value == other.value
    try:
        return bool(word.read(one.name, one.value) == word.read(one.name, other.value))
    except LaunchError:
        return False


def overruled_flags(proposed: Sequence[Setting], request: Request) -> tuple[str, ...]:
    """Return our options whose values the user's part replaces.

    Those that the request names already are left out.
    """
    args, found = request.args, []
    replaced: set[str] = set()
    if request.tuning == "auto":
        replaced = {name for word in _WORDS for name in word.names}
    written = {argument.name for argument in (*args.file, *args.user)}
    for setting in proposed:
        name = _option_name(args, setting)
        if setting.source != "flag" or name not in written or name in replaced:
            continue
        shown, value = args.in_force(name)
        if not _same(replace(setting, name=shown, value=value), setting):
            found.append(str(dict(setting.reason.values).get("flag", setting.name)))
    return tuple(dict.fromkeys(found))


def sent_options(settings: Sequence[Setting]) -> list[tuple[str, str | None]]:
    """Return the options that are sent to the engine, as name and value."""
    return [
        (setting.name, setting.value)
        for setting in settings
        if setting.kind == "option" and setting.sent
    ]


def with_own_words(request: Request, identity: EngineIdentity, lacks: Collection[str]) -> Request:
    """Return the request as changed by the arguments after ``--``.

    ``lacks`` are our options that this engine does not support.

    Raises LaunchError (USAGE) for a value that the engine would stop on, and for another model.
    """
    request = with_options(request, identity)
    args = request.args
    if args.has("--model"):
        raise LaunchError("plan.own_option", ExitCode.USAGE, option="--model", ours="-w")
    changed: dict[str, Any] = {}
    overruled = []
    for word in _WORDS:
        given = args.given(*word.names)
        if not given or word.flag in lacks:
            continue
        text = given[-1].value
        if word.field == "max_model_len" and text in _ITS_OWN:
            continue
        value = word.read(given[-1].shown, text)
        if getattr(request, word.field) not in (None, value):
            overruled.append(word.flag)
        changed[word.field] = value
    return replace(request, **changed, overruled=tuple(overruled))


def has_parts(args: EngineArgs) -> bool:
    """Return True if an option names stages, copies or parts of an engine."""
    named = any(argument.name in marks()["apart"] for argument in args.every)
    return named or parallel_sizes(args) != (1, 1)


def refuse_parts_apart(request: Request) -> None:
    """Raise LaunchError (USAGE) for parts of an engine that are started one by one.

    A plan starts all parts of an engine, by the options of `parallel_sizes`.
    """
    args = request.args
    if COPIES not in args.table.spellings:
        return
    _, copies = parallel_sizes(args)
    alone = {**marks()["apart"], "--data-parallel-size-local": str(copies)}
    for argument in args.every:
        name, text = argument.name, argument.value
        apart = name in alone and argument.on and text != alone[name]
        if apart or (name, text) == _LAUNCHED:
            raise LaunchError("plan.more_cards", ExitCode.USAGE, found=f"{name} {text}".strip())
    for name, text in _VARIABLES_APART.items():
        exported = request.environment.get(name) or text
        if exported != text:
            raise LaunchError("plan.more_cards", ExitCode.USAGE, found=f"{name}={exported}")


def refuse_no_experts(args: EngineArgs, model: Model) -> None:
    """Raise LaunchError (USAGE) where a model has no experts to divide.

    vllm/config/model.py _verify_with_expert_parallelism ends with a ValueError. An empty value
    turns it off (deepseek_r1).
    """
    given = args.given(EXPERTS)
    if model.moe is False and given and given[-1].on and given[-1].text != "":
        raise LaunchError("plan.no_experts", ExitCode.USAGE, option=EXPERTS, model=model.name)


def refuse_layout(args: EngineArgs, layout: Mapping[str, str]) -> None:
    """Raise LaunchError (USAGE) for sizes that our options decide.

    ``layout`` is `HOSTS` or `REPLICAS`: Ray is started with the number of HPUs that they give.
    """
    for option, ours in layout.items():
        if args.has(option):
            raise LaunchError("plan.own_option", ExitCode.USAGE, option=option, ours=ours)
