"""Read a YAML file that a user writes, and find the lines of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gaudi_launch.errors import ExitCode, LaunchError

_MOST_BYTES = 1 << 20


def read_text(path: Path, *, unreadable: str, bad: str) -> str:
    """Return the text of a file of at most 1 MiB.

    Raises LaunchError (USAGE) with these ids: ``unreadable`` has why, ``bad`` the line that is not
    UTF-8, too.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise LaunchError(unreadable, ExitCode.USAGE, path=str(path), why="> 1 MiB")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise LaunchError(bad, ExitCode.USAGE, path=str(path), line=line, why="UTF-8") from None
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError(unreadable, ExitCode.USAGE, path=str(path), why=why) from None


def line_of(tree: Any, where: Sequence[str | int]) -> int:
    """Return the line of a part; of what contains it where it is missing."""
    if tree is None:
        return 1
    line = int(tree.start_mark.line) + 1
    node = tree
    for part in where:
        found = _parts(node).get(part)
        if found is None:
            break
        line, node = int(found[0].start_mark.line) + 1, found[1]
    return line


def _parts(node: Any) -> dict[Any, tuple[Any, Any]]:
    """Return the nodes of a part's start and value by key or index."""
    if node.id == "mapping":
        # of a repeated key the first one counts
        return {key.value: (key, value) for key, value in reversed(node.value)}
    if node.id == "sequence":
        return {at: (value, value) for at, value in enumerate(node.value)}
    return {}
