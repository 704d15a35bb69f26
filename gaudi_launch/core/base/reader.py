"""Read JSON that others wrote: files, answers of programs and servers.

A document that would break its reader later is refused here, with the place. Refused are more than
64 MiB, more than 64 levels, repeated keys, NaN and infinities, numbers of more than 64 bits, and
lone surrogates, which no terminal or file can show. `core.base.yaml_reader` has YAML.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import paths
from gaudi_launch.core.base.messages import Message, message, text

MOST_BYTES = 1 << 26
MOST_DEPTH = 64
_MOST_NUMBER = 2**64
# keys and indices on the way to a value
Place = tuple[Any, ...]
_OWN_IMPORT = re.compile(r"^from gaudi_launch\.([\w.]+) import (?:\([^)]*\)|.*)\n", re.M)


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

    The modules of the package that it imports at the top are in the place of the imports.
    """
    inserted = set()

    def module(imported: re.Match[str]) -> str:
        if imported[1] in inserted:
            return ""
        inserted.add(imported[1])
        path = Path(__file__).parents[2].joinpath(*imported[1].split(".")).with_suffix(".py")
        text = path.read_text(encoding="utf-8")
        return _OWN_IMPORT.sub(module, text.replace("from __future__ import annotations\n", ""))

    return _OWN_IMPORT.sub(module, Path(program).read_text(encoding="utf-8"))


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
            raise BadDocument(message("read.repeated", name=shown_name(name)))
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
        raise BadDocument(message("read.deep", most=MOST_DEPTH)) from None
    except BadDocument:
        raise
    except ValueError:
        # a number of more than 4,300 digits
        raise BadDocument(message("read.number", place="-")) from None
    check_values(document, infinite=as_engine)
    return document


def check_values(
    document: Any, line_of: Callable[[Place], int] = lambda _: 0, *, infinite: bool = False
) -> None:
    """Raise BadDocument for a value that breaks its readers, with its place and line."""
    level: list[tuple[Place, Any]] = [((), document)]
    for _ in range(MOST_DEPTH + 1):
        below: list[tuple[Place, Any]] = []
        for place, value in level:
            if isinstance(value, dict):
                below.extend(((*place, key), key) for key in value if isinstance(key, str))
                below.extend(((*place, key), each) for key, each in value.items())
            elif isinstance(value, list):
                below.extend(((*place, at), each) for at, each in enumerate(value))
            elif id := _fault(value, infinite):
                shown = ".".join(shown_name(str(each)) for each in place) or "-"
                raise BadDocument(message(id, place=shown), line_of(place))
        if not below:
            return
        level = below
    raise BadDocument(message("read.deep", most=MOST_DEPTH))


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


def shown_name(name: str) -> str:
    """Return a key of a document as an error shows it."""
    return ascii(name[:60])[1:-1]


@cache
def beside(module: str) -> Any:
    """Return the JSON document of a module, by the module's ``__file__``."""
    return read_json(Path(module).with_suffix(".json"))


@cache
def shipped_json(*parts: str) -> Any:
    """Return the document of a JSON file of the profiles that belong to this program."""
    return json.loads(paths.profiles_dir().joinpath(*parts).read_text(encoding="utf-8"))
