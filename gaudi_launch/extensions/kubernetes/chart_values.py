"""Values of a Helm chart, and the plain objects with their defaults.

Objects are built once, with a `Knob` wherever a chart has a value and a `Name` wherever it puts its
release's name. `plain` turns them into objects to apply, `kubernetes.chart` into templates and
values.yaml.

A value is what a cluster decides: where pods run, how many, with which image and storage. Sizes
that one plan decided together (arguments, variables, cards, memory, probes, buckets, pods of a
group) are not values: one of them changed alone would disagree with the others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Form = Literal["text", "number", "block"]


@dataclass(frozen=True)
class Knob:
    """One value: its ``path`` in values.yaml, its ``default``, and its template form.

    ``block`` is a mapping or list.
    """

    path: tuple[str, ...]
    default: Any
    form: Form = "text"


@dataclass(frozen=True)
class Name:
    """The name of the release, followed by ``suffix``, cut to ``most`` characters."""

    release: str
    suffix: str = ""
    most: int = 45

    @property
    def tail(self) -> str:
        """Return what follows the release: the suffix with its dash."""
        if not self.suffix:
            return ""
        return f"-{self.suffix}"

    def plain(self) -> str:
        return self.release[: self.most - len(self.tail)].rstrip("-") + self.tail


@dataclass(frozen=True)
class Checksum:
    """SHA-256 of a ConfigMap with these ``files``, named by release and ``suffix``.

    The pods that mount it carry the checksum, because Kubernetes recreates pods only when their
    template changes (docs: Helm, Chart Development Tips and Tricks, Automatically Roll
    Deployments). In a chart Helm computes it, so an edited template counts, too.
    """

    suffix: str
    files: Mapping[str, str]

    def plain(self) -> str:
        return hashlib.sha256(json.dumps(dict(self.files), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class TemplateText:
    """A text that contains names."""

    parts: tuple[str | Name, ...]


def plain(part: Any) -> Any:
    """Return the same objects with every knob at its default and every name complete."""
    if isinstance(part, Knob):
        return part.default
    if isinstance(part, (Name, Checksum)):
        return part.plain()
    if isinstance(part, TemplateText):
        return "".join(word if isinstance(word, str) else word.plain() for word in part.parts)
    if isinstance(part, Mapping):
        return {key: plain(value) for key, value in part.items()}
    if isinstance(part, Sequence) and not isinstance(part, str):
        return [plain(item) for item in part]
    return part


def knobs_of(part: Any) -> list[Knob]:
    """Return every knob of these objects, in their order."""
    if isinstance(part, Knob):
        return [part]
    if isinstance(part, Mapping):
        part = list(part.values())
    if isinstance(part, Sequence) and not isinstance(part, str):
        return [knob for item in part for knob in knobs_of(item)]
    return []
