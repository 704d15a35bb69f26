"""What a render target hands back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gaudi_launch.messages import Message


@dataclass(frozen=True)
class Rendered:
    """Files by relative path, the main one first; ``executable`` are those that are run.

    ``notes`` tell the user what the files assume and what to do with them.
    """

    files: Mapping[str, str]
    executable: frozenset[str] = frozenset()
    notes: tuple[Message, ...] = field(default_factory=tuple)
