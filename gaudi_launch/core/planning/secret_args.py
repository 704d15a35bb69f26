"""Secrets in options after ``--``: moved into the engine's variables, or refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.redact_values import reveals_secret
from gaudi_launch.core.planning.engine_args import EngineArgs, engine_args
from gaudi_launch.core.planning.engine_argument import Argument
from gaudi_launch.core.planning.option_table import UNKNOWN, UPSTREAM, option_table
from gaudi_launch.core.planning.request import Request

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
    secret = secrets_in(args.user)
    for argument in args.user:
        option = argument.option
        if option.secret and len(argument.values) == 1:
            environment[option.variable] = argument.value
            continue
        if into_file and argument in secret and _fits_file(argument, args):
            entries[_key(argument)] = argument.value
            continue
        _refuse(argument, secret)
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
    secret = secrets_in(args.every)
    for argument in args.every:
        _refuse(argument, secret)


def secrets_in(arguments: Sequence[Argument]) -> dict[Argument, str]:
    """Return the arguments that reveal a secret, each with its option's name.

    A value too many belongs to the option before it, whose value may be the name of the secret.
    """
    found: dict[Argument, str] = {}
    before = Argument("", ())
    for argument in arguments:
        words, option = argument.words, argument
        if argument.positional:
            words, option = (*before.values[-1:], *words), before
        if reveals_secret(words):
            found[argument] = option.shown
        before = argument
    return found


def _refuse(argument: Argument, secret: Mapping[Argument, str]) -> None:
    option = argument.option
    if option.secret and argument.values:
        raise LaunchError(
            "plan.secret_several", ExitCode.USAGE, option=option.name, variable=option.variable
        )
    if argument in secret:
        raise LaunchError("plan.secret_argument", ExitCode.USAGE, option=secret[argument])
