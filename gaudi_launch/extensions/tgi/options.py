"""Options, variables and model types of TGI on Gaudi, by image version.

Source: huggingface/text-generation-inference, tags v3.2.3 and v3.3.5: launcher/src/main.rs (Args),
and every ``os.environ`` and ``os.getenv`` of backends/gaudi/server; the extension's variables from
sywangyi/vllm-hpu-extension@bmax_fix, which the 3.3.x images install.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.reader import beside
from gaudi_launch.core.planning.engine_args import Argument, engine_args
from gaudi_launch.core.planning.option_table import UNKNOWN, EngineOption, OptionTable

# 3.3.5 to 3.3.7 have the same Gaudi server: its code last changed before 3.3.5 (24c2bff6)
PAGED_VERSIONS = ("3.3.3", "3.3.4", "3.3.5", "3.3.6", "3.3.7")
VERSIONS = ("3.2.3", *PAGED_VERSIONS)
LATEST = "3.3.5"
IMAGE = "ghcr.io/huggingface/text-generation-inference:{version}-gaudi"

FLAG, WHOLE, NUMBER, TEXT = "flag", "whole", "number", "text"
# what an error shows as the values of a kind
_FORMS = {WHOLE: "0 - 9999999999", NUMBER: "1.5"}
# "kinds" and "choices": launcher/src/main.rs; of the key-value types fp8_e5m2 is an error on Gaudi
# (layers/attention/kv_cache.py), and `-p` names two options, so it is no short form ("short").
# "ours": options that ours decide, or that cannot work, with the reason to show.
# "variables": "none" are documented for some image, but read by none of these (3.2.1 read the first
# two, the old tgi-gaudi router the others).
# "least": of variables that are read as integers and used in our arithmetic.
# "types": models/__init__.py get_model of v3.3.5, where nothing falls back to transformers; v3.2.3
# takes every causal model of transformers, and of the vision models "padded_vision".
# "divided_kv": key-value heads are divided between the cards and never repeated
# (flash_llama_modeling.py, which also serves the next three types, flash_mistral, flash_qwen2 and
# flash_qwen3_modeling.py of v3.3.5); qwen3_moe repeats them
_DATA = beside(__file__)
OPTIONS: Mapping[str, str | tuple[str, ...]] = {
    **{name: kind for kind, names in _DATA["kinds"].items() for name in names},
    **{name: tuple(values) for name, values in _DATA["choices"].items()},
}
TABLE = OptionTable(
    "tgi",
    tuple(
        EngineOption(
            name,
            count="0" if kind == FLAG else "1",
            aliases=(_DATA["short"][name],) if name in _DATA["short"] else (),
        )
        for name, kind in OPTIONS.items()
    ),
)
_LATER = {"--prometheus-port": "3.3.0"}
_VARIABLES: Mapping[str, Sequence[str]] = _DATA["variables"]
# read as text and used as a number in 3.3.x (flash_causal_lm.py, warmup): a TypeError in the middle
# of the warm-up
BREAKS_PAGED = "VLLM_DECODE_BLOCK_BUCKET_STEP"
_MOST = 100_000

_TYPES = {name: frozenset(types) for name, types in _DATA["types"].items()}
PAGED_TYPES, VISION_TYPES = _TYPES["paged"], _TYPES["vision"]
DIVIDED_KV_TYPES, PADDED_VISION_TYPES = _TYPES["divided_kv"], _TYPES["padded_vision"]
_GET_MODEL = "backends/gaudi/server/text_generation_server/models/__init__.py get_model"
# the source of either list, by `paged`
TYPES_SOURCE = {
    True: f"huggingface/text-generation-inference@8d029d2f (v3.3.5): {_GET_MODEL}",
    False: f"huggingface/text-generation-inference@a1f3ebe1 (v3.2.3): {_GET_MODEL}",
}


def paged(version: str) -> bool:
    """Return True if this version has the paged server (3.3.3 and later).

    Others have the padded one.
    """
    return version in PAGED_VERSIONS


def types_of(version: str) -> frozenset[str]:
    """Return the model types of an image's list."""
    if not paged(version):
        return PADDED_VISION_TYPES
    if version == "3.3.3":
        return PAGED_TYPES - _TYPES["since_3_3_4"]
    return PAGED_TYPES


def read_by(version: str) -> frozenset[str]:
    """Return the variables that a user may set for this version."""
    own = "paged" if paged(version) else "padded"
    return frozenset((*_VARIABLES["every"], *_VARIABLES[own]))


def unread_by(version: str) -> tuple[str, ...]:
    """Return variables of other versions, which this one silently ignores."""
    mine = read_by(version)
    others = [name for key in ("none", "padded", "paged") for name in _VARIABLES[key]]
    return tuple(name for name in (*others, BREAKS_PAGED) if name not in mine)


def check_variable(name: str, value: str) -> None:
    """Raise LaunchError (USAGE) for a number that the server would stop on."""
    least = _DATA["least"].get(name)
    if least is None:
        return
    if not (
        value.isascii() and value.isdigit() and len(value) < 10 and least <= int(value) <= _MOST
    ):
        raise LaunchError(
            "plan.number", ExitCode.USAGE, flag=name, found=value, least=least, most=_MOST
        )


def read_words(words: Sequence[str], version: str, force: bool = False) -> dict[str, str | None]:
    """Return the launcher options after ``--`` by their long names.

    The last of a repeated one counts, because the launcher would stop on the second.

    Raises LaunchError (USAGE): an option that our own ones decide, that this version does not have
    (unless forced), a missing or wrong value.
    """
    found: dict[str, str | None] = {}
    for argument in engine_args(table=TABLE, user=words).user:
        name = _exact_name(argument)
        _check_name(name, version, force)
        kind = OPTIONS.get(name)
        bare = not argument.values and not argument.attached
        if bare and (kind is None or kind == FLAG):
            found[name] = None
            continue
        if kind == FLAG or not _is_taken(argument.value, kind):
            values = {"found": argument.value, "wanted": _wanted(kind)}
            raise LaunchError("tgi.value", ExitCode.USAGE, option=name, **values)
        found[name] = argument.value
    return found


def _exact_name(argument: Argument) -> str:
    """Return the long name of an option as the launcher reads it.

    clap knows no abbreviation and no ``_``.
    """
    word = argument.words[0]
    if argument.option is not UNKNOWN and not word.startswith("--"):
        return argument.name
    if argument.positional:
        return word
    return word.partition("=")[0]


def _check_name(name: str, version: str, force: bool) -> None:
    if name in _DATA["ours"]:
        raise LaunchError("plan.own_option", ExitCode.USAGE, option=name, ours=_DATA["ours"][name])
    if name == "--api-key":
        raise LaunchError("tgi.api_key", ExitCode.USAGE)
    known = name in OPTIONS and not (name in _LATER and version == "3.2.3")
    if not known and not (force and name.startswith("--")):
        raise LaunchError("tgi.no_option", ExitCode.USAGE, option=name, version=version)


def _is_taken(value: str, kind: str | tuple[str, ...] | None) -> bool:
    """Return True if the launcher takes a value of this kind; None is any text."""
    if isinstance(kind, tuple):
        return value in kind
    if kind == WHOLE:
        return value.isascii() and value.isdigit() and len(value) < 11
    if kind == NUMBER:
        parts = value.split(".")
        digits = all(part.isascii() and part.isdigit() for part in parts)
        return digits and len(parts) < 3 and len(value) < 20
    # the image's entry point passes its arguments on unquoted: one with a space would arrive as two
    unsafe = any(letter.isspace() or letter in "*?[" for letter in value)
    return bool(value) and not value.startswith("-") and not unsafe


def _wanted(kind: str | tuple[str, ...] | None) -> str:
    """Return what the launcher takes, for an error."""
    if isinstance(kind, tuple):
        return " | ".join(kind)
    if kind == FLAG:
        return text("tgi.no_value")
    if kind in _FORMS:
        return _FORMS[kind]
    return text("tgi.plain_value")
