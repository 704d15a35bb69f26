"""The steps that are needed before a model can be served, from facts alone.

Nothing is read or done here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gaudi_launch.core.base.messages import Message, message

Name = Literal["disk", "pull", "convert", "measurements", "engine"]
# the other files of a model, records, and what file systems take for themselves
SPARE_BYTES = 1 << 30


@dataclass(frozen=True)
class Room:
    """Bytes that the steps will write to one file system, and its free bytes.

    ``free`` is None for another machine.
    """

    path: Path
    needed: int
    free: int | None = None

    @property
    def enough(self) -> bool:
        return self.free is not None and self.free >= self.needed


@dataclass(frozen=True)
class SetupFacts:
    """Facts of one deployment and this machine.

    ``repo`` is the hub ID to fetch ("" for a folder of the user), ``folder`` the complete copy that
    exists, ``target`` where one would go. ``weight_bytes`` is None before the hub was queried.
    ``converts``: this engine on these cards needs another fp8 range than the weights have;
    ``converted``: the result is complete in ``converted_target``. ``measurements`` is the
    repository that fp8 needs ("" for none). ``there`` are the bytes that earlier, interrupted runs
    left in a folder. ``disk_bytes``: what a guide requires for all of it; ``rooms`` where it goes.
    ``engine`` is "" for one that comes as an image, or was not looked for.
    """

    model: str
    repo: str = ""
    folder: Path | None = None
    target: Path = Path()
    weight_bytes: int | None = None
    converts: bool = False
    converted: bool = False
    converted_target: Path = Path()
    measurements: str = ""
    measured: bool = False
    measurements_target: Path = Path()
    engine: str = ""
    installed: bool = True
    there: tuple[tuple[Path, int], ...] = ()
    disk_bytes: int | None = None
    rooms: tuple[Room, ...] = ()

    @property
    def final(self) -> Path | None:
        """Return the folder that is served.

        Return None when the user's option stays (a folder that needs nothing).
        """
        if self.converts:
            return self.converted_target
        if self.repo:
            return self.folder or self.target
        return self.folder


@dataclass(frozen=True)
class SetupStep:
    """One step: whether it is done, its text, and the command for it alone.

    The command is "" for the engine's step.
    """

    name: Name
    done: bool
    what: Message
    command: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        state = "done" if self.done else "to_do"
        return {
            "name": self.name,
            "state": state,
            "what": self.what.render(),
            "command": list(self.command),
        }


def steps(facts: SetupFacts) -> tuple[SetupStep, ...]:
    """Return the steps of this deployment in their order.

    () for a folder that needs nothing but an engine.
    """
    found = [_disk(room) for room in facts.rooms]
    if facts.repo:
        found.append(_pull(facts))
    if facts.converts:
        source = facts.folder or facts.target
        id = "prepare.converted" if facts.converted else "prepare.convert"
        words = ("gaudi-launch", "fp8", "convert", str(source), str(facts.converted_target))
        found.append(
            SetupStep(
                "convert", facts.converted, message(id, path=str(facts.converted_target)), words
            )
        )
    if facts.measurements:
        target = str(facts.measurements_target)
        id = "prepare.measured" if facts.measured else "prepare.measure"
        what = message(id, repo=facts.measurements, path=target)
        fetch = ("gaudi-launch", "pull", facts.measurements, "--to", target)
        found.append(SetupStep("measurements", facts.measured, what, fetch))
    if found and facts.engine:
        id = "prepare.engine" if facts.installed else "prepare.no_engine"
        found.append(SetupStep("engine", facts.installed, message(id, engine=facts.engine)))
    return tuple(found)


def _pull(facts: SetupFacts) -> SetupStep:
    command = ("gaudi-launch", "pull", facts.repo, "--to", str(facts.target))
    there = facts.folder
    if there is None and facts.converts and facts.converted:
        there = facts.converted_target
    if there is not None:
        return SetupStep("pull", True, message("prepare.pulled", path=str(there)), command)
    values = {"model": facts.repo, "path": str(facts.target)}
    if facts.weight_bytes:
        what = message("prepare.pull", **values, size=f"{facts.weight_bytes / 1e9:.0f}")
    else:
        what = message("prepare.pull_unsized", **values)
    return SetupStep("pull", False, what, command)


def _disk(room: Room) -> SetupStep:
    needed, path = f"{room.needed / 1e9:.0f}", str(room.path)
    if room.free is None:
        return SetupStep("disk", False, message("prepare.room_unknown", needed=needed, path=path))
    what = message("prepare.room", needed=needed, path=path, free=f"{room.free / 1e9:.0f}")
    return SetupStep("disk", room.enough, what)


def needed_bytes(facts: SetupFacts) -> Mapping[Path, int]:
    """Return the bytes that the remaining steps will write, by folder.

    Bytes that exist already are subtracted. If none exist yet, the guide's figure applies where it
    is larger than the sum.
    """
    size, there = facts.weight_bytes or 0, dict(facts.there)
    needed: dict[Path, int] = {}
    if facts.converts and facts.converted:
        return needed
    if facts.repo and facts.folder is None and size:
        needed[facts.target] = max(0, size - there.get(facts.target, 0)) + SPARE_BYTES
    if facts.converts and size:
        # a shard's part is written in addition to the finished ones, so their bytes count fully
        needed[facts.converted_target] = (
            max(0, size - there.get(facts.converted_target, 0)) + SPARE_BYTES
        )
    both = len(needed) == 2 and not any(there.values())
    if both and facts.disk_bytes and facts.disk_bytes > sum(needed.values()):
        needed[facts.converted_target] += facts.disk_bytes - sum(needed.values())
    return needed
