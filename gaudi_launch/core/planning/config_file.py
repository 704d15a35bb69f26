"""The user's ``--config FILE`` after ``--``: options in a YAML file.

The engine reads it, and puts them before all others, so the command line wins (vllm-project/vllm
0.32.0: vllm/utils/argparse_utils.py, FlexibleArgumentParser._pull_args_from_config and
load_config_file). The plan treats them as the user's options: an option of this program with
another value is left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.reader import BadDocument
from gaudi_launch.core.base.redact_values import reveals_secret
from gaudi_launch.core.base.yaml_reader import parse_yaml
from gaudi_launch.core.planning.engine_args import EngineArgs, engine_args
from gaudi_launch.core.planning.option_table import OptionTable
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.secret_args import CONFIG, SECRET_FILE

_ENDINGS = (".yaml", ".yml")


def named_file(args: EngineArgs) -> str | None:
    """Return the file that the user names; None without one.

    Raises LaunchError (USAGE) for a form that the engine stops on or ignores.
    """
    given = args.given(CONFIG)
    if not given:
        return None
    path = given[-1].value
    if path == SECRET_FILE:
        return None
    if len(given) > 1 or not path:
        raise LaunchError("plan.config_one", ExitCode.USAGE, option=CONFIG)
    if given[0].attached:
        raise LaunchError(
            "plan.config_attached", ExitCode.USAGE, found=given[0].words[0], path=path
        )
    if not path.endswith(_ENDINGS):
        raise LaunchError("plan.config_ending", ExitCode.USAGE, path=path)
    return path


def with_file(request: Request, path: str, text: str) -> Request:
    """Return the request with the options of this file.

    Raises LaunchError (USAGE) for text that is not a mapping.

    A secret that the engine also reads from a variable becomes that one, so that the launcher can
    ask the server.
    """
    words: list[str] = []
    environment = dict(request.environment)
    try:
        document = parse_yaml(text)
    except BadDocument as error:
        raise LaunchError("plan.config_text", ExitCode.USAGE, path=path, why=str(error)) from None
    if not isinstance(document, dict):
        raise LaunchError(
            "plan.config_mapping", ExitCode.USAGE, path=path, found=type(document).__name__
        )
    for key, value in document.items():
        option = _words(str(key), value, request.options)
        if not option:
            continue
        argument = engine_args(table=request.options, user=option).user[0]
        if argument.option.secret:
            environment[argument.option.variable] = argument.value
        if argument.option.secret or reveals_secret(argument.words):
            option = [option[0], hidden(path)]
        words += option
    return replace(request, file_words=tuple(words), environment=environment)


def hidden(path: str) -> str:
    """Return what a plan shows instead of a secret in a file."""
    return f"<in {path}>"


def _words(key: str, value: Any, table: OptionTable) -> Sequence[str]:
    """Return the arguments that the engine makes of one entry."""
    name = f"--{key}"
    if value is True:
        return [name]
    if value is False:
        off = f"--no-{key}"
        if off.replace("_", "-") not in table.spellings:
            return []
        return [off]
    if value == []:
        return []
    if isinstance(value, list):
        return [name, *map(str, value)]
    if isinstance(value, dict):
        return [name, json.dumps(value, default=str)]
    return [name, str(value)]
