"""Read an engine's command as users have it: plain, in docker, in a file.

Nothing is run. A shell variable is replaced where its value is known.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from gaudi_launch.core.base.json_values import array, mapping
from gaudi_launch.core.base.redact import redact_text
from gaudi_launch.core.base.redact_values import redact_arguments
from gaudi_launch.core.planning.engine_argument import Argument, read_words
from gaudi_launch.core.planning.option_table import EngineOption, OptionTable

ASSIGNMENT = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*)=(.*)$", re.DOTALL)
# a shell ends the command there; `split_shell` makes each a separate argument
_OPERATORS = ";&|<>\n"
# a joined line, one that begins with an option, a comment, the number of a redirected stream
_JOINED = re.compile(r"\\[ \t\r]*\n|\n(?=\s*-)|(?<!\S)#(?=[ \t!]).*|(?<!\S)[12](?=>)")
_BEFORE = {"export", "env", "sudo", "nohup", "exec", "time", "bash", "sh", "/bin/bash", "/bin/sh"}
_SHELL = ("-c", "-lc", "-ec")
_CONTAINERS = ("docker", "podman", "nerdctl")
# docker run: its options without a value, and those that are read here; the others have one
# (docker/cli: cli/command/container/opts.go)
_DOCKER = OptionTable(
    "docker",
    (
        *(EngineOption(name, count="0") for name in ("--rm", "--init", "--privileged", "-P")),
        EngineOption("--detach", count="0", aliases=("-d",)),
        EngineOption("--interactive", count="0", aliases=("-i",)),
        EngineOption("--tty", count="0", aliases=("-t",)),
        *(EngineOption(name, count="0") for name in ("--read-only", "--publish-all", "-q")),
        EngineOption("--env", aliases=("-e",)),
        EngineOption("--volume", aliases=("-v",)),
        EngineOption("--publish", aliases=("-p",)),
    ),
)
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)(?::?-(?P<default>[^}]*))?\}|(?P<plain>\w+))")
_PUBLISHED = re.compile(r"(?:[\w.]+:)?\d{1,5}:\d{1,5}(?:/tcp)?")
_MODELS = {"--model": "vllm", "--model-id": "tgi"}
_PROGRAMS = {"text-generation-launcher": "tgi", "api_server.py": "vllm"}
_TGI = re.compile(r"text-generation-inference|tgi")


def split_shell(text: str) -> list[str]:
    """Return the arguments of a shell's text. Raises ValueError."""
    text = _JOINED.sub(" ", text.replace("$(pwd)", "$PWD"))
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    return list(lexer)


def for_people(words: Sequence[str]) -> str:
    """Return the begin of a command without secrets."""
    return redact_text(" ".join(without_secrets(("", *words))[1:]))[:200]


def without_secrets(words: Sequence[str]) -> list[str]:
    """Return arguments without those behind the name of a secret.

    `redact_text` finds others.
    """
    return [*words[:1], *(redact_arguments(pair)[1] for pair in pairwise(words))]


def ends_command(word: str) -> bool:
    """Return True for an operator of the shell."""
    return word != "" and not word.strip(_OPERATORS)


@dataclass
class StartCommand:
    """The parts of an engine's command.

    ``engine`` is "vllm" or "tgi" ("": none was found), ``words`` are its arguments. ``mounts`` are
    folders of the host by their path in the container. ``container`` are the options that only the
    container needs, ``unread`` the arguments that have no meaning here.
    """

    known: Mapping[str, str]
    engine: str = ""
    words: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    image: str = ""
    name: str = ""
    address: str = ""
    mounts: dict[str, str] = field(default_factory=dict)
    container: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def read(self, words: Sequence[str]) -> None:
        """Read arguments up to the engine's program, and the engine's."""
        rest = list(words)
        while rest:
            word = rest.pop(0)
            assignment, program = ASSIGNMENT.match(word), self._program(word, rest)
            if assignment is not None:
                self.variables[assignment[1]] = self._expanded(assignment[2])
            elif word in _SHELL and rest:
                rest = [*split_shell(rest[0]), *rest[1:]]
            elif PurePosixPath(word).name in _CONTAINERS and "run" in rest[:2]:
                return self._run(rest[rest.index("run") + 1 :])
            elif program is not None:
                return self._engine(*program)
            elif word not in _BEFORE and not ends_command(word):
                self.unread.append(word)

    def _program(self, word: str, rest: list[str]) -> tuple[str, list[str]] | None:
        """Return the engine that an argument starts, and the engine's arguments."""
        name, option = PurePosixPath(word).name, word.partition("=")[0]
        if name == "vllm" and rest[:1] == ["serve"]:
            return "vllm", rest[1:]
        if name.startswith("python") and rest[:1] == ["-m"] and "vllm." in "".join(rest[1:2]):
            return "vllm", rest[3 if rest[2:3] == ["serve"] else 2 :]
        if name in _PROGRAMS:
            return _PROGRAMS[name], rest
        if option in _MODELS and (self._of_image or not self.image):
            return self._of_image or _MODELS[option], [word, *rest]
        return None

    @property
    def _of_image(self) -> str:
        if _TGI.search(self.image):
            return "tgi"
        return "vllm" if "vllm" in self.image else ""

    def path(self, inside: str) -> str:
        """Return a path of the container as the host's."""
        for mounted, folder in self.mounts.items():
            if inside == mounted or inside.startswith(mounted.rstrip("/") + "/"):
                return folder.rstrip("/") + inside[len(mounted.rstrip("/")) :]
        return inside

    def _expanded(self, text: str) -> str:
        known = {**self.known, **self.variables}

        def value(found: re.Match[str]) -> str:
            return known.get(found["braced"] or found["plain"]) or found["default"] or found[0]

        return _VARIABLE.sub(value, text)

    def _engine(self, engine: str, words: Sequence[str]) -> None:
        self.engine = engine
        for word in words:
            if ends_command(word):
                break
            self.words.append(self._expanded(word))

    def _run(self, words: list[str]) -> None:
        """Read the options of docker run, and the program in the image."""
        program: list[str] = []
        rest = list(words)
        for argument in read_words(tuple(words), _DOCKER):
            if argument.positional:
                break
            del rest[: len(argument.words)]
            if argument.name == "--entrypoint":
                program = shlex.split(argument.value)
            else:
                self._option(argument, self._expanded(argument.value))
        if not rest:
            return
        self.image = self._expanded(rest[0])
        rest = [*program, *rest[1:]]
        # an option first: all are arguments of the image's own program
        if not self._of_image or not "".join(rest[:1]).startswith("-"):
            self.read(rest)
        if not self.engine and self._of_image:
            self.unread = [word for word in self.unread if word not in rest]
            self._engine(self._of_image, rest[rest[:1] == ["serve"] :])

    def _option(self, argument: Argument, value: str) -> None:
        name = argument.name
        if name == "--env":
            self._variable(*value.split("=", 1))
        elif name == "--name":
            self.name = value
        elif name == "--publish" and _PUBLISHED.fullmatch(value):
            self.address = value.rpartition(":")[0]
        elif name in ("--env-file", "--publish"):
            self.unread.append(" ".join(argument.words))
        else:
            if name == "--volume":
                folder, inside = (*value.split(":"), "")[:2]
                self.mounts[inside] = folder
            self.container.append(" ".join(argument.words))

    def _variable(self, name: str, value: str | None = None) -> None:
        if name == "HABANA_VISIBLE_DEVICES":
            # it has indices, which a reboot changes; -m has module IDs
            place = self.container if value == "all" else self.unread
            place.append(f"{name}={value or ''}")
        elif value is not None and "$" in value:
            self.unread.append(f"{name}={value}")
        elif value is not None:
            self.variables[name] = value


def read_start(words: Sequence[str], known: Mapping[str, str]) -> StartCommand | None:
    """Return the start command of an engine; None where no engine is in it.

    ``known`` are variables with their values.
    """
    found = StartCommand(known)
    found.read(words)
    return found if found.engine else None


def read_compose(document: Any, known: Mapping[str, str]) -> StartCommand | None:
    """Return the first engine of a compose file or a manifest; others are unread."""
    kind, services = "services", mapping(mapping(document).get("services"))
    if not services:
        kind, services = "containers", dict(_containers(document))
    for name, service in services.items():
        found = read_start(tuple(_docker_run(str(name), mapping(service))), known)
        if found is not None:
            found.unread += [f"{kind}.{other}" for other in services if other != name]
            return found
    return None


def _containers(node: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the containers of a Kubernetes manifest as services of a compose file."""
    for key, part in mapping(node).items():
        if key != "containers":
            yield from _containers(part)
            continue
        for container in map(mapping, array(part)):
            variables = map(mapping, array(container.get("env")))
            yield (
                str(container.get("name")),
                {
                    "image": container.get("image"),
                    "entrypoint": container.get("command"),
                    "command": container.get("args"),
                    "environment": {
                        each.get("name"): each["value"] for each in variables if "value" in each
                    },
                },
            )


def _docker_run(name: str, service: Mapping[str, Any]) -> Iterator[str]:
    """Yield a service as the arguments of docker run."""
    yield from ("docker", "run", "--name", str(service.get("container_name") or name))
    for key, option in (("environment", "-e"), ("volumes", "-v"), ("ports", "-p")):
        values = service.get(key) or ()
        if isinstance(values, Mapping):
            # YAML's true is the text of the file in a variable
            values = [
                f"{each}={str(value).lower() if isinstance(value, bool) else value}"
                for each, value in values.items()
            ]
        for value in values if isinstance(values, (list, tuple)) else [values]:
            yield from (option, str(value))
    read = ("container_name", "environment", "volumes", "ports", "image", "command", "entrypoint")
    for key in service:
        if key not in read:
            yield f"--{key}={service[key]}"
    if service.get("entrypoint"):
        yield f"--entrypoint={shlex.join(_arguments(service['entrypoint']))}"
    yield str(service.get("image") or "-")
    yield from _arguments(service.get("command"))


def _arguments(value: object) -> list[str]:
    if isinstance(value, str):
        return shlex.split(value)
    return [str(each) for each in value] if isinstance(value, list) else []
