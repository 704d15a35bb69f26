"""A start script's command line as a Request: what people type today, read as the script reads it.

Letters: getopts of HabanaAI/vllm-fork aice/v1.21.0 and aice/v1.22.0 scripts/start_gaudi_vllm_server.sh, and
deepseek_r1 scripts/quickstart/start_vllm.sh.
"""

from __future__ import annotations

import getopt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.planning import asked
from gaudi_launch.planning.placement import parse_modules
from gaudi_launch.planning.request import Request

LETTERS = {
    "1.21": "hw:n:m:u:p:d:i:o:t:l:b:e:c:r:sfza",
    "1.22": "hw:t:m:a:d:q:x:p:b:g:u:e:l:c:sf",
    "deepseek_r1": "hw:u:p:l:b:c:m:sq",
}
ENGINES = {"1.21": "vllm-fork@1.21", "1.22": "vllm-fork@1.22", "deepseek_r1": "deepseek_r1"}
_SCRIPTS = {"start_vllm.sh": "deepseek_r1"}
_ASSIGNMENT = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*)=(.*)$", re.DOTALL)


@dataclass(frozen=True)
class ScriptCall:
    """A start script with its words. ``folder`` is where the script lies ("" when not said)."""

    release: str
    arguments: tuple[str, ...]
    variables: Mapping[str, str]
    folder: str = ""


def read_call(words: Sequence[str], release: str | None = None) -> ScriptCall:
    """Leave out VAR=value, ``export``, ``env``, ``bash`` and the script's name; tell the release.

    Raises LaunchError when it is no call of a known script.
    """
    if release is not None and release not in LETTERS:
        raise LaunchError("migrate.release", ExitCode.USAGE, found=release, known=", ".join(LETTERS))
    variables: dict[str, str] = {}
    rest = list(words)
    folder = script = ""
    while rest:
        assignment = _ASSIGNMENT.match(rest[0])
        if assignment and not script:
            variables[assignment[1]] = assignment[2]
        elif rest[0] in ("export", "env", "sudo", "nohup", "exec", "bash", "sh", "source", ".", "/bin/bash", "-x"):
            pass
        elif rest[0].endswith(".sh") and not script:
            script = rest[0]
        else:
            break
        rest.pop(0)
    # a shell would have ended the command there
    for stop in (">", "2>&1", "|", "&", "|&", ">>", ";"):
        if stop in rest:
            rest = rest[: rest.index(stop)]
    if script:
        folder, _, name = script.rpartition("/")
        folder = folder or ("/" if script.startswith("/") else ".")
        release = release or _SCRIPTS.get(name)
    return ScriptCall(release or _tell(rest), tuple(rest), variables, folder)


def _tell(arguments: Sequence[str]) -> str:
    """Which release's letters these are: letters that only one has decide, else the one that can read them all."""
    can = []
    for release, letters in LETTERS.items():
        try:
            options, left = getopt.getopt(list(arguments), letters)
        except getopt.GetoptError:
            continue
        if not left and _plausible(release, dict(options)):
            can.append(release)
    if not can:
        raise LaunchError("migrate.unknown", ExitCode.USAGE, found=" ".join(arguments)[:200])
    if len(can) > 1 and "deepseek_r1" in can:
        # start_vllm.sh's few letters are letters of the other scripts too; its models are not
        name = dict(getopt.getopt(list(arguments), LETTERS["deepseek_r1"])[0]).get("-w", "").lower()
        full = "deepseek" in name and "distill" not in name
        can = ["deepseek_r1"] if full else [release for release in can if release != "deepseek_r1"]
    return can[0]


def _plausible(release: str, options: Mapping[str, str]) -> bool:
    """Letters that both have mean other things: 1.22's -t is a number of cards, 1.21's a number of tokens."""
    try:
        request_of(ScriptCall(release, tuple(word for pair in options.items() for word in pair if word), {}))
    except LaunchError:
        return False
    if release == "1.22":
        cards = options.get("-t", "1")
        return cards.isdigit() and int(cards) <= 64 and not {"-n", "-i", "-o", "-r", "-z"} & set(options)
    return True


def request_of(call: ScriptCall, environment: Mapping[str, str] | None = None, stamp: str = "") -> Request:
    """The Request in reference tuning. Raises LaunchError where the script would refuse, or do nonsense."""
    try:
        options, left = getopt.getopt(list(call.arguments), LETTERS[call.release])
    except getopt.GetoptError as error:
        raise LaunchError("migrate.letters", ExitCode.USAGE, release=call.release, why=str(error)) from None
    if left:
        raise LaunchError("migrate.left_over", ExitCode.USAGE, found=" ".join(left), release=call.release)
    given = dict(options)
    if "-w" not in given and call.release != "deepseek_r1":
        raise LaunchError("migrate.no_model", ExitCode.USAGE, release=call.release)
    fields = {"1.21": _fields_1_21, "1.22": _fields_1_22, "deepseek_r1": _fields_deepseek}[call.release](given)
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
        "cards": asked.number("-n", given.get("-n", "1"), 1, 64),
        "modules": _modules(given.get("-m")),
        "host": given.get("-u"),
        "port": _optional(given, "-p", asked.port),
        "dtype": given.get("-d"),
        "input_range": asked.pair("-i", given["-i"]) if "-i" in given else None,
        "output_range": asked.pair("-o", given["-o"]) if "-o" in given else None,
        "max_num_batched_tokens": _optional(given, "-t"),
        "max_model_len": _optional(given, "-l"),
        "max_num_seqs": _optional(given, "-b"),
        "scheduler_steps": _optional(given, "-e"),
        "cache_dir": given.get("-c") or None,
        "reduce": asked.reduce(given["-r"]) if "-r" in given else None,
        "skip_warmup": "-s" in given,
        "profile": "-f" in given,
        "no_zero_padding": "-z" in given,
        "no_fused_sdpa": "-a" in given,
    }


def _fields_1_22(given: Mapping[str, str]) -> dict[str, Any]:
    address = given.get("-a")
    host, port = (address.split(":", 1)[0], address.rsplit(":", 1)[-1]) if address else (None, None)
    return {
        "cards": asked.number("-t", given.get("-t", "1"), 1, 64),
        "modules": _modules(given.get("-m")),
        "host": host or None,
        "port": asked.port("-a", port) if port is not None else None,
        "dtype": given.get("-d"),
        "quant_config": given.get("-q") or None,
        "max_model_len": _optional(given, "-x"),
        "max_prefill_seqs": _optional(given, "-p") if given.get("-p") else None,
        "max_num_seqs": _optional(given, "-b"),
        "max_capture_len": _optional(given, "-g"),
        "memory_utilization": asked.fraction("-u", given["-u"], 0.01, 1.0) if "-u" in given else None,
        "padding_limit": asked.fraction("-l", given["-l"], 0.0, 0.5) if "-l" in given else None,
        "cache_dir": given.get("-c") or None,
        "skip_warmup": "-s" in given,
        "profile": "-f" in given,
        "extra": tuple(given.get("-e", "").split()),
    }


def _fields_deepseek(given: Mapping[str, str]) -> dict[str, Any]:
    return {
        "host": given.get("-u"),
        "port": _optional(given, "-p", asked.port),
        "max_model_len": _optional(given, "-l"),
        "max_num_seqs": _optional(given, "-b"),
        "max_prefill_seqs": _optional(given, "-m"),
        "cache_dir": given.get("-c") or None,
        "skip_warmup": "-s" in given,
        "inc_fp8": "-q" in given,
    }


def _optional(given: Mapping[str, str], flag: str, read: Any = asked.number) -> int | None:
    return int(read(flag, given[flag])) if flag in given else None


def _modules(text: str | None) -> tuple[int, ...] | None:
    return None if text in (None, "", "None") else parse_modules(text or "")
