"""Read a start script's command line as a Request, as the script reads it.

Letters: getopts of HabanaAI/vllm-fork aice/v1.21.0 and aice/v1.22.0
scripts/start_gaudi_vllm_server.sh, and deepseek_r1 scripts/quickstart/start_vllm.sh.
"""

from __future__ import annotations

import contextlib
import getopt
import itertools
import posixpath
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.redact import redact_text
from gaudi_launch.core.planning import parse, parse_ranges
from gaudi_launch.core.planning.request import Request
from gaudi_launch.extensions.migrate.start_command import ASSIGNMENT, ends_command, for_people

LETTERS = {
    "1.21": "hw:n:m:u:p:d:i:o:t:l:b:e:c:r:sfza",
    "1.22": "hw:t:m:a:d:q:x:p:b:g:u:e:l:c:sf",
    "deepseek_r1": "hw:u:p:l:b:c:m:sq",
}
ENGINES = {"1.21": "vllm-fork@1.21", "1.22": "vllm-fork@1.22", "deepseek_r1": "deepseek_r1"}
_SCRIPTS = {"start_vllm.sh": "deepseek_r1", "start_gaudi_vllm_server.sh": None}
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class ScriptCall:
    """A start script with its arguments.

    ``folder`` is the script's folder ("" when not given).
    """

    release: str
    arguments: tuple[str, ...]
    variables: Mapping[str, str]
    folder: str = ""


_BEFORE_SCRIPT = {
    *("export", "env", "sudo", "nohup", "exec"),
    *("bash", "sh", "source", ".", "/bin/bash", "-x"),
}


def read_call(words: Sequence[str], release: str | None = None) -> ScriptCall:
    """Return the call without VAR=value, ``export``, ``env``, ``bash`` and script.

    Also determine the release. Raises LaunchError when it is not a call of a known script.
    """
    if release is not None and release not in LETTERS:
        raise LaunchError(
            "migrate.release", ExitCode.USAGE, found=release, known=", ".join(LETTERS)
        )
    variables: dict[str, str] = {}
    rest = list(words)
    folder = script = name = ""
    while rest and not script:
        assignment = ASSIGNMENT.match(rest[0])
        if assignment:
            variables[assignment[1]] = assignment[2]
        elif rest[0].endswith(".sh"):
            script = rest[0]
        elif rest[0] not in _BEFORE_SCRIPT and not ends_command(rest[0]):
            break
        rest.pop(0)
    rest = list(itertools.takewhile(lambda word: not ends_command(word), rest))
    if script:
        folder, name = posixpath.dirname(script) or ".", posixpath.basename(script)
        release = release or _SCRIPTS.get(name)
    if release is None and not rest and name not in _SCRIPTS:
        raise LaunchError("migrate.unknown", ExitCode.USAGE, found=for_people(words))
    return ScriptCall(release or _tell(rest, name), tuple(rest), variables, folder)


def _tell(arguments: Sequence[str], script: str) -> str:
    """Return the release of these options.

    It is the first release that can read them all, where several can.
    """
    can: dict[str, dict[str, str]] = {}
    for release, letters in LETTERS.items():
        with contextlib.suppress(getopt.GetoptError):
            options, left = getopt.getopt(list(arguments), letters)
            if not left:
                can[release] = dict(options)
    if script:
        can.pop("deepseek_r1", None)
    if not can:
        raise LaunchError("migrate.unknown", ExitCode.USAGE, found=for_people(arguments))
    first = next(iter(can))
    if "deepseek_r1" in can:
        # the options of start_vllm.sh are also options of the other scripts; its models differ
        folder = can["deepseek_r1"].get("-w", "").lower()
        if "deepseek" in folder and "distill" not in folder:
            return "deepseek_r1"
        return first
    # -t is a number of cards in 1.22, of tokens in 1.21
    few = map(str, range(1, 65))
    if {"1.21", "1.22"} <= set(can) and can["1.22"].get("-t", "") in few:
        return "1.22"
    return first


def request_of(
    call: ScriptCall, environment: Mapping[str, str] | None = None, stamp: str = ""
) -> Request:
    """Return the Request in reference tuning.

    Raises LaunchError where the script would refuse, or misread the arguments.
    """
    try:
        options, left = getopt.getopt(list(call.arguments), LETTERS[call.release])
    except getopt.GetoptError as error:
        raise LaunchError(
            "migrate.letters", ExitCode.USAGE, release=call.release, why=str(error)
        ) from None
    if left:
        raise LaunchError(
            "migrate.left_over",
            ExitCode.USAGE,
            found=for_people(left),
            release=call.release,
        )
    given = dict(options)
    if "-h" in given:
        raise LaunchError("migrate.only_help", ExitCode.USAGE)
    if "-w" not in given and call.release != "deepseek_r1":
        raise LaunchError("migrate.no_model", ExitCode.USAGE, release=call.release)
    fields = _FIELDS[call.release](given)
    model = given.get("-w") or "/data/hf_models/DeepSeek-R1-Gaudi"
    return Request(
        model=model,
        engine=ENGINES[call.release],
        tuning="reference",
        scripts_dir=call.folder or None,
        environment={**(environment or {}), **call.variables},
        stamp=stamp,
        **fields,
    )


def _fields_1_21(given: Mapping[str, str]) -> dict[str, Any]:
    return {
        "cards": parse.number("-n", given.get("-n", "1"), 1, 64),
        "modules": _modules(given.get("-m")),
        "host": given.get("-u"),
        "port": _optional(given, "-p", parse.port),
        "dtype": given.get("-d"),
        "input_range": _optional(given, "-i", partial(parse_ranges.pair, short=False)),
        "output_range": _optional(given, "-o", partial(parse_ranges.pair, short=False)),
        "max_num_batched_tokens": _optional(given, "-t", parse.number),
        "max_model_len": _optional(given, "-l", parse.number),
        "max_num_seqs": _optional(given, "-b", parse.number),
        "scheduler_steps": _optional(given, "-e", parse.number),
        "cache_dir": given.get("-c") or None,
        "reduce": _optional(given, "-r", partial(parse_ranges.reduce, short=False)),
        "skip_warmup": "-s" in given,
        "profile": "-f" in given,
        "no_zero_padding": "-z" in given,
        "no_fused_sdpa": "-a" in given,
    }


def _fields_1_22(given: Mapping[str, str]) -> dict[str, Any]:
    # the manual's "-p ''" (no limit) leaves the option without its value; the engine's "no limit"
    # is -b
    prefill = None
    if given.get("-p"):
        prefill = parse.number("-p", given["-p"])
    elif "-p" in given:
        prefill = _optional(given, "-b", parse.number) or 128
    address = given.get("-a", "")
    port = None
    if port_text := address.rsplit(":", 1)[-1]:
        port = parse.port("-a", port_text)
    return {
        "cards": parse.number("-t", given.get("-t", "1"), 1, 64),
        "modules": _modules(given.get("-m")),
        "host": address.split(":", 1)[0] or None,
        "port": port,
        "dtype": given.get("-d"),
        "quant_config": given.get("-q") or None,
        "max_model_len": _optional(given, "-x", parse.number),
        "max_prefill_seqs": prefill,
        "max_num_seqs": _optional(given, "-b", parse.number),
        "max_capture_len": _optional(given, "-g", parse.number),
        "memory_utilization": _optional(
            given, "-u", partial(parse_ranges.fraction, least=0.01, most=1)
        ),
        "padding_limit": _optional(
            given, "-l", partial(parse_ranges.fraction, least=0.0, most=0.5, strict=True)
        ),
        "cache_dir": given.get("-c") or None,
        "skip_warmup": "-s" in given,
        "profile": "-f" in given,
        "extra": _words(given.get("-e", "")),
    }


def _fields_deepseek(given: Mapping[str, str]) -> dict[str, Any]:
    return {
        "host": given.get("-u"),
        "port": _optional(given, "-p", parse.port),
        "max_model_len": _optional(given, "-l", parse.number),
        "max_num_seqs": _optional(given, "-b", parse.number),
        "max_prefill_seqs": _optional(given, "-m", parse.number),
        "cache_dir": given.get("-c"),
        "skip_warmup": "-s" in given,
        "inc_fp8": "-q" in given,
    }


_FIELDS = {"1.21": _fields_1_21, "1.22": _fields_1_22, "deepseek_r1": _fields_deepseek}


def _optional(
    given: Mapping[str, str], flag: str, read: Callable[[str, str], _Value]
) -> _Value | None:
    """Return an option's value as ``read`` reads it; None where it is not given."""
    if flag not in given:
        return None
    return read(flag, given[flag])


def _words(text: str) -> tuple[str, ...]:
    """Return the arguments of -e; the script's eval removes one layer of quotes."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise LaunchError(
            "migrate.quoting", ExitCode.USAGE, found=redact_text(text)[:200], why=str(error)
        ) from None


def _modules(text: str | None) -> tuple[int, ...] | None:
    if not text or text == "None":
        return None
    return parse.parse_modules(text)
