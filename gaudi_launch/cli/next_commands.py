"""Commands to copy below an error: the next ones, with the user's arguments."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from gaudi_launch.cli.positional import options_end
from gaudi_launch.errors import LaunchError


def next_commands(error: LaunchError, arguments: Sequence[str]) -> list[str]:
    """Return the command lines that follow from an error.

    ``arguments``: the user's, without the program's name.

    >>> from gaudi_launch.errors import ExitCode
    >>> error = LaunchError("serve.no_engine", ExitCode.MACHINE, engine="vllm-gaudi", python="PATH")
    >>> next_commands(error, ["serve", "Qwen/Qwen3-8B", "--", "--seed", "1"])
    ['gaudi-launch setup vllm-gaudi', 'gaudi-launch serve Qwen/Qwen3-8B --in docker -- --seed 1']
    """
    if error.id != "serve.no_engine":
        return []
    setup = ["gaudi-launch", "setup", str(error.text.values["engine"])]
    found = [shlex.join(setup)]
    if arguments[:1] == ["serve"]:
        end = options_end(arguments)
        # --python names an interpreter of this machine, which a container does not have
        kept = _without_python(arguments[:end])
        found.append(shlex.join(["gaudi-launch", *kept, "--in", "docker", *arguments[end:]]))
    return found


def _without_python(arguments: Sequence[str]) -> list[str]:
    found: list[str] = []
    skipped = False
    for word in arguments:
        if skipped or word.startswith("--python="):
            skipped = False
        elif word == "--python":
            skipped = True
        else:
            found.append(word)
    return found
