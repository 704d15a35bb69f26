"""The options that a short help shows; ``--help-all`` shows the others too."""

from __future__ import annotations

from typing import Any

_SHAPE = ("-n", "-l", "-i", "-o", "-d")
_RENDER = (*_SHAPE, "--engine", "--machine", "-p")

_FIRST: dict[str, tuple[str, ...]] = {
    "serve": (*_SHAPE, "--engine", "-p", "--name", "--detach", "--in"),
    "plan": (*_SHAPE, "-b", "--engine", "--machine", "--all", "--json"),
    "warmup": (*_SHAPE, "--trace", "--graphs", "--machine", "--list", "--json"),
    "recommend": (
        "--for",
        "--ttft",
        "--tpot",
        "--rate",
        "-i",
        "-o",
        "-d",
        "--accelerator",
        "--machine",
        "--json",
    ),
    "bench": (
        "--trace",
        "--rate",
        "--concurrency",
        "--requests",
        "-i",
        "-o",
        "--model",
        "--save",
        "--json",
    ),
    "render script": (*_RENDER, "--to"),
    "render docker": (*_RENDER, "--image", "--to"),
    "render compose": (*_RENDER, "--image", "--to"),
    "render ray-serve": (*_SHAPE, "--replicas", "--machine", "--stack", "--check", "--to"),
    "render quadlet": (*_RENDER, "--image", "--to"),
    "render systemd": (*_RENDER, "--user", "--to"),
    "render kubernetes": (
        "--kind",
        "--image",
        "-n",
        "-l",
        "-i",
        "-o",
        "--weights-claim",
        "--namespace",
        "--helm",
        "--to",
    ),
    "cluster plan": ("--hosts", "--inventory", "--name", *_SHAPE, "--enter", "--json"),
    "cluster up": ("--hosts", "--inventory", "--name", *_SHAPE, "--enter", "--dry-run"),
    "cache adopt": ("-c", *_SHAPE, "-b", "--engine", "--machine", "--json"),
}


def first_options(path: str) -> tuple[str, ...]:
    """Return the spellings of the options that matter most for a command.

    none: its help shows all.
    """
    return _FIRST.get(path, ())


def path_of(context: Any) -> str:
    """Return a command's name without the program's: ``cache list``.

    Return "" for the program.
    """
    names: list[str] = []
    # not `command_path`, which reads the parameters that this is needed for
    while context.parent is not None:
        names.insert(0, str(context.info_name))
        context = context.parent
    return " ".join(names)
