"""Read JSON and YAML that others wrote: files, answers of programs and servers.

A document that would break its reader later is refused here, with the place. Refused are more than
64 MiB, more than 64 levels, 50,000 parts of a YAML text, repeated keys, NaN and infinities,
numbers of more than 64 bits, and lone surrogates, which no terminal or file can show.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import paths, plain_json
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message, text

MOST_BYTES = 1 << 26
_MOST_YAML_BYTES = 1 << 20
_MOST_DEPTH = 64
_MOST_NODES = 50_000
_MOST_NUMBER = 2**64


class BadDocument(ValueError):
    """A refused text: what is wrong with it, and its line (0: not known)."""

    def __init__(self, why: Message, line: int = 0) -> None:
        super().__init__(why)
        self.why = why
        self.line = line

    def __str__(self) -> str:
        if not self.line:
            return self.why.render()
        return text("read.line", line=self.line, why=self.why.render())


def read_json(path: Path, most: int = MOST_BYTES, *, as_engine: bool = False) -> Any:
    """Return the document of a file. Raises OSError, and as `parse_json`."""
    with path.open("rb") as file:
        return parse_json(file.read(most + 1), most, as_engine=as_engine)


def standalone(program: str | Path) -> str:
    """Return the text of a program for an interpreter or pod without this package.

    The short reader replaces its import.
    """
    text = Path(program).read_text(encoding="utf-8")
    reader = Path(plain_json.__file__).read_text(encoding="utf-8")
    return text.replace("from gaudi_launch.core.base.plain_json import plain_json\n", reader)


def parse_json(content: str | bytes, most: int = MOST_BYTES, *, as_engine: bool = False) -> Any:
    """Return the document of a JSON content.

    ``as_engine``: as Python's json reads it, which engines use. NaN and infinities are allowed then
    (config.json of Mamba models has them), and of a repeated key the last one counts. Raises
    BadDocument, which is a ValueError.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            name = next(each for each in names if names.count(each) > 1)
            raise BadDocument(message("read.repeated", name=_shown(name)))
        return found

    if len(content) > most:
        raise BadDocument(message("read.large", most=most >> 10))
    try:
        if isinstance(content, bytes):
            content = content.decode("utf-8")
        document = json.loads(content, object_pairs_hook=None if as_engine else once)
    except json.JSONDecodeError as error:
        raise BadDocument(message("read.syntax", why=str(error))) from None
    except UnicodeDecodeError as error:
        raise BadDocument(message("read.bytes", byte=error.start)) from None
    except RecursionError:
        raise BadDocument(message("read.deep", most=_MOST_DEPTH)) from None
    except BadDocument:
        raise
    except ValueError:
        # a number of more than 4,300 digits
        raise BadDocument(message("read.number", place="-")) from None
    _check_values(document, infinite=as_engine)
    return document


def parse_yaml(content: str | bytes) -> Any:
    """Return the document of a YAML content. Raises BadDocument."""
    return parse_yaml_tree(content)[0]


def parse_yaml_tree(content: str | bytes) -> tuple[Any, Any]:
    """Return a YAML document and its nodes for `line_of`. Raises BadDocument."""
    # it takes 0.03 s to import
    import yaml

    if len(content) > _MOST_YAML_BYTES:
        raise BadDocument(message("read.large", most=_MOST_YAML_BYTES >> 10))
    kind = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depth = 0
        # deeper ones overflow the stack of what makes the nodes
        for event in yaml.parse(content, Loader=kind):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _MOST_DEPTH:
                line = getattr(event.start_mark, "line", 0) + 1
                raise BadDocument(message("read.deep", most=_MOST_DEPTH), line)
        loader = kind(content)
        try:
            tree = loader.get_single_node()
            _check_nodes(tree)
            document = None if tree is None else loader.construct_document(tree)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        why = " ".join(str(getattr(error, "problem", None) or "YAML").split())
        # libyaml 0.2.6 has a limit that its scanner meets first
        if "nesting depth" in why:
            raise BadDocument(message("read.deep", most=_MOST_DEPTH), line) from None
        raise BadDocument(message("read.syntax", why=why), line) from None
    except BadDocument:
        raise
    except (ValueError, RecursionError) as error:
        # the 31st of February, bytes that are not content, a number of more than 4,300 digits
        why = " ".join(str(error).split())[:200]
        raise BadDocument(message("read.syntax", why=why)) from None
    _check_values(document, tree)
    return document, tree


def _check_nodes(tree: Any) -> None:
    """Raise BadDocument for a repeated key, and for aliases that expand too far."""
    level = [] if tree is None else [tree]
    count = 0
    for _ in range(_MOST_DEPTH + 1):
        below: list[Any] = []
        for node in level:
            if node.id == "mapping":
                _check_keys(node)
            below.extend(each for _, _, each in _parts(node))
            if count + len(below) > _MOST_NODES:
                raise BadDocument(message("read.aliases"), node.start_mark.line + 1)
        count += len(below)
        level = below
    if level:
        # one that is inside what it stands for
        raise BadDocument(message("read.aliases"), level[0].start_mark.line + 1)


def _check_keys(node: Any) -> None:
    """Raise BadDocument for a repeated key; YAML readers drop the first one."""
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if key.id != "scalar":
            continue
        line = key.start_mark.line + 1
        if key.value in lines:
            first = lines[key.value]
            why = message("read.repeated_line", name=_shown(key.value), first=first)
            raise BadDocument(why, line)
        lines[key.value] = line


def _check_values(document: Any, tree: Any = None, *, infinite: bool = False) -> None:
    """Raise BadDocument for a value that breaks its readers, with its place."""
    level: list[tuple[tuple[Any, ...], Any]] = [((), document)]
    for _ in range(_MOST_DEPTH + 1):
        below: list[tuple[tuple[Any, ...], Any]] = []
        for place, value in level:
            if isinstance(value, dict):
                below.extend(((*place, key), key) for key in value if isinstance(key, str))
                below.extend(((*place, key), each) for key, each in value.items())
            elif isinstance(value, list):
                below.extend(((*place, at), each) for at, each in enumerate(value))
            elif id := _fault(value, infinite):
                shown = ".".join(_shown(str(each)) for each in place) or "-"
                raise BadDocument(message(id, place=shown), line_of(tree, place))
        if not below:
            return
        level = below
    raise BadDocument(message("read.deep", most=_MOST_DEPTH))


def _fault(value: object, infinite: bool) -> str:
    """Return the ID of what is wrong with a value; "" for nothing."""
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= each <= "\udfff" for each in value):
            return "read.surrogate"
    elif isinstance(value, float):
        if not (infinite or math.isfinite(value)):
            return "read.number"
    elif isinstance(value, int) and not -_MOST_NUMBER < value < _MOST_NUMBER:
        return "read.number"
    return ""


def _shown(name: str) -> str:
    """Return a key of a document as an error shows it."""
    return ascii(name[:60])[1:-1]


def line_of(tree: Any, where: Sequence[str | int]) -> int:
    """Return the line of a part, or of what contains it; 0 without a tree."""
    if tree is None:
        return 0
    line = int(tree.start_mark.line) + 1
    node = tree
    for part in where:
        found = next((each for each in _parts(node) if each[0] == part), None)
        if found is None:
            break
        _, start, node = found
        line = int(start.start_mark.line) + 1
    return line


def as_typed(value: Any) -> str | bool | tuple[str, ...]:
    """Return the value of an option as it is typed; a switch stays True or False."""
    if isinstance(value, list):
        return tuple(str(each) for each in value)
    if isinstance(value, bool):
        return value
    return str(value)


def _parts(node: Any) -> list[tuple[Any, Any, Any]]:
    """Return a node's parts: a key or index, the node where it starts, its value."""
    if node.id == "mapping":
        return [(key.value, key, value) for key, value in node.value]
    if node.id == "sequence":
        return [(at, value, value) for at, value in enumerate(node.value)]
    return []


def read_text(path: Path, *, unreadable: str, bad: str) -> str:
    """Return the text of a file of at most 1 MiB.

    Raises LaunchError (USAGE) with these ids: ``unreadable`` has why, ``bad`` the line that is not
    UTF-8, too.
    """
    try:
        if path.stat().st_size > _MOST_YAML_BYTES:
            raise LaunchError(unreadable, ExitCode.USAGE, path=str(path), why="> 1 MiB")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise LaunchError(bad, ExitCode.USAGE, path=str(path), line=line, why="UTF-8") from None
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError(unreadable, ExitCode.USAGE, path=str(path), why=why) from None


def checked_tree(content: str, path: Path, *, bad: str) -> tuple[Any, Any]:
    """Return the document of a YAML file's content, and its nodes for `line_of`.

    Raises LaunchError (USAGE) with the id ``bad``, the file, the line and why.
    """
    try:
        return parse_yaml_tree(content)
    except BadDocument as error:
        line, why = error.line or 1, error.why.render()
        raise LaunchError(bad, ExitCode.USAGE, path=str(path), line=line, why=why) from None


@cache
def shipped(*parts: str) -> Any:
    """Return the document of a file of the profiles that belong to this program."""
    path = paths.profiles_dir().joinpath(*parts)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return json.loads(text)
    import yaml

    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@cache
def beside(module: str) -> Any:
    """Return the JSON document of a module, by the module's ``__file__``."""
    return read_json(Path(module).with_suffix(".json"))
