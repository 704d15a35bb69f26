"""Read YAML that users wrote, and the profiles that belong to this program.

Refused is what `core.base.reader` refuses, more than 1 MiB, and 50,000 parts of a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import paths
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.base.reader import MOST_DEPTH, BadDocument, check_values, shown_name

_MOST_YAML_BYTES = 1 << 20
_MOST_NODES = 50_000


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
            if depth > MOST_DEPTH:
                line = getattr(event.start_mark, "line", 0) + 1
                raise BadDocument(message("read.deep", most=MOST_DEPTH), line)
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
            raise BadDocument(message("read.deep", most=MOST_DEPTH), line) from None
        raise BadDocument(message("read.syntax", why=why), line) from None
    except BadDocument:
        raise
    except (ValueError, RecursionError) as error:
        # the 31st of February, bytes that are not content, a number of more than 4,300 digits
        why = " ".join(str(error).split())[:200]
        raise BadDocument(message("read.syntax", why=why)) from None
    check_values(document, partial(line_of, tree))
    return document, tree


def _check_nodes(tree: Any) -> None:
    """Raise BadDocument for a repeated key, and for aliases that expand too far."""
    level = [] if tree is None else [tree]
    count = 0
    for _ in range(MOST_DEPTH + 1):
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
            why = message("read.repeated_line", name=shown_name(key.value), first=first)
            raise BadDocument(why, line)
        lines[key.value] = line


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
    """Return the document of a YAML file of the profiles that belong to this program."""
    import yaml

    text = paths.profiles_dir().joinpath(*parts).read_text(encoding="utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
