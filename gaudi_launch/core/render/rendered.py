"""The result of a render target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gaudi_launch.core.base.messages import Message


@dataclass(frozen=True)
class Rendered:
    """Files by relative path, the main one first.

    ``executable`` are those that are run. ``notes`` explain what the files assume and how to use
    them.
    """

    files: Mapping[str, str]
    executable: frozenset[str] = frozenset()
    notes: tuple[Message, ...] = field(default_factory=tuple)
