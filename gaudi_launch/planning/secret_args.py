"""Secrets in options after ``--``: moved into the engine's variables, or refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.planning.engine_args import Argument, EngineArgs, engine_args
from gaudi_launch.planning.option_table import UNKNOWN, UPSTREAM, option_table
from gaudi_launch.planning.request import Request
from gaudi_launch.reader import parse_json
from gaudi_launch.redact import has_broken_secret

# assumed: names of secrets in options and in the keys of JSON options; "eos_token" and "max_tokens"
# are not secrets
_NAME = re.compile(
    r"(^|_)(password|passwd|passphrase|secret|secret_key|secret_access_key|api_key|apikey|private_key|access_token"
    r"|auth_token|hf_token|session_token|credentials?)$|^token$",
    re.IGNORECASE,
)
# the password of a URL
_LOGIN = re.compile(r"://[^/\s:@]{0,200}:[^/\s]{1,200}@")


CONFIG = "--config"
SECRET_FILE = "secret-options.yaml"
"""File in a service's folder from which the engine reads secrets that it reads from no variable."""


def with_secret_moved(request: Request, *, into_file: bool = False) -> Request:
    """Return the request with secret options as variables of the engine.

    Other users can read command lines. vLLM reads VLLM_API_KEY and HF_TOKEN
    (HabanaAI/vllm-fork@aice/v1.22.0:vllm/envs.py, huggingface_hub). ``into_file``: a secret that
    the engine reads from no variable goes into `SECRET_FILE`, which it reads by --config. Raises
    LaunchError (USAGE) for a secret that has neither.
    """
    args = engine_args(table=option_table(UPSTREAM), user=request.extra)
    kept: list[str] = []
    environment = dict(request.environment)
    entries: dict[str, str] = {}
    into_file = into_file and not args.given(CONFIG)
    for argument in args.user:
        option = argument.option
        if option.secret and len(argument.values) == 1:
            environment[option.variable] = argument.value
            continue
        if into_file and has_secret(argument) and _fits_file(argument, args):
            entries[_key(argument)] = argument.value
            continue
        _refuse(argument)
        kept += argument.words
    if len(kept) == len(request.extra):
        return request
    if entries:
        kept += [CONFIG, SECRET_FILE]
    lines = [f"{json.dumps(key)}: {json.dumps(value)}\n" for key, value in entries.items()]
    return replace(
        request, extra=tuple(kept), environment=environment, secret_options="".join(lines)
    )


def is_secret_file(value: str | None) -> bool:
    """Return whether this value of --config is the file that serve writes."""
    return value is not None and PurePath(value).name == SECRET_FILE


def _fits_file(argument: Argument, args: EngineArgs) -> bool:
    """Return whether a file can contain this option.

    It must be known by its long name, and given once with one value.
    """
    option = argument.option
    if option is UNKNOWN or option.secret or len(argument.values) != 1:
        return False
    same = [other for other in args.user if _key(other) == _key(argument)]
    return len(same) == 1 and argument.on


def _key(argument: Argument) -> str:
    """Return an option's name in a config file: ``model-loader-extra-config.key``."""
    name = argument.name.removeprefix("--")
    if argument.key:
        return f"{name}.{argument.key}"
    return name


def refuse_secret_args(args: EngineArgs) -> None:
    """Raise LaunchError (USAGE) for a secret in the value of any option."""
    for argument in args.every:
        _refuse(argument)


def _refuse(argument: Argument) -> None:
    option = argument.option
    if not argument.values:
        return
    if option.secret:
        raise LaunchError(
            "plan.secret_several", ExitCode.USAGE, option=option.name, variable=option.variable
        )
    if has_secret(argument):
        raise LaunchError("plan.secret_argument", ExitCode.USAGE, option=argument.shown)


def has_secret(argument: Argument) -> bool:
    """Return whether a value of this argument is a secret.

    The names of options and keys decide.
    """
    names = [argument.key.rpartition(".")[2]]
    if argument.option is UNKNOWN and not argument.positional:
        names.append(argument.name.lstrip("-"))
    if any(_NAME.search(name.replace("-", "_")) for name in names if name):
        return True
    return any(_LOGIN.search(value) or _in_object(value) for value in argument.values)


def _in_object(value: str) -> bool:
    """Return True if a JSON value has a secret below one of its keys."""
    if not value.lstrip().startswith(("{", "[")):
        return False
    try:
        document = parse_json(value)
    except ValueError:
        return has_broken_secret(value)
    return any(_NAME.search(key.replace("-", "_")) and held for key, held in _entries(document))


def _entries(document: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(document, dict):
        for key, held in document.items():
            yield str(key), held
            yield from _entries(held)
    elif isinstance(document, list):
        for held in document:
            yield from _entries(held)
