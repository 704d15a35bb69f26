"""The records of checks: what they are, their inputs, and their results.

Statuses: ``ok``; ``warn``: slower or unreliable; ``fail``: serve will not work; ``skip``: does not
apply here; ``unknown``: could not be checked. Nothing else decides between warn and fail, and
unknown is never ok.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gaudi_launch.core.base.messages import Message, message, text
from gaudi_launch.core.host.files import Files
from gaudi_launch.core.host.hardware import Card, Host
from gaudi_launch.core.host.health import CardHealth, read_health
from gaudi_launch.core.host.hl_smi import Ask
from gaudi_launch.core.host.host_config import HostConfig

STATUSES = ("ok", "warn", "fail", "skip", "unknown")
LEVELS = ("quick", "slow")

Shown = str | Message


def shown(value: Shown) -> str:
    """Return a value in the reader's language."""
    if isinstance(value, Message):
        return value.render()
    return value


@dataclass(frozen=True)
class Remedy:
    """A remedy of a finding.

    ``fix`` names the reversible change that ``doctor --fix`` can make; without one the remedy is
    only explained. ``commands`` work now, ``persist`` survive a reboot, ``steps`` are for people.
    ``arguments`` are the kernel's: the steps for those of all findings come first.
    """

    text: Message
    commands: tuple[str, ...] = ()
    persist: tuple[str, ...] = ()
    steps: tuple[Message, ...] = ()
    reboot: bool = False
    root: bool = False
    fix: str | None = None
    arguments: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "text": self.text.render(),
            "commands": list(self.commands),
            "persist": list(self.persist),
            "steps": [step.render() for step in self.steps],
            "reboot": self.reboot,
            "root": self.root,
            "fix": self.fix,
        }


def _say(id: str, found: Shown, expected: Shown, values: Mapping[str, Any]) -> Message:
    return message(id, found=_in_sentence(found), expected=_in_sentence(expected), **values)


def _in_sentence(value: Shown) -> str:
    """Return a value as a part of a sentence; a dash is an empty value."""
    if value == "-":
        return text("doctor.word.none")
    return shown(value)


@dataclass(frozen=True)
class Verdict:
    """The result of a probe. ``found`` and ``expected`` are always shown together."""

    status: str
    message: Message
    found: Shown = ""
    expected: Shown = ""
    remedy: Remedy | None = None

    @classmethod
    def ok(
        cls, found: Shown, expected: Shown = "", id: str = "doctor.ok", **values: Any
    ) -> Verdict:
        return cls("ok", _say(id, found, expected, values), found, expected)

    @classmethod
    def warn(
        cls,
        id: str,
        found: Shown,
        expected: Shown = "",
        remedy: Remedy | None = None,
        **values: Any,
    ) -> Verdict:
        return cls("warn", _say(id, found, expected, values), found, expected, remedy)

    @classmethod
    def fail(
        cls,
        id: str,
        found: Shown,
        expected: Shown = "",
        remedy: Remedy | None = None,
        **values: Any,
    ) -> Verdict:
        return cls("fail", _say(id, found, expected, values), found, expected, remedy)

    @classmethod
    def skip(cls, id: str, **values: Any) -> Verdict:
        return cls("skip", message(id, **values))

    @classmethod
    def unknown(cls, id: str, found: Shown = "", expected: Shown = "", **values: Any) -> Verdict:
        return cls("unknown", _say(id, found, expected, values), found, expected)

    @classmethod
    def unreadable(cls, path: str, expected: Shown = "") -> Verdict:
        """Return the verdict for a source file that is missing or unreadable."""
        return cls.unknown("doctor.unreadable", "", expected, path=path)


# huge pages of 2 MiB that the guides set, the cards of that server, and one card's even share
# (assumed)
SERVER_PAGES = 15000
SERVER_CARDS = 8
CARD_PAGES = SERVER_PAGES // SERVER_CARDS


@dataclass(frozen=True)
class Wants:
    """The server's intended use.

    The defaults are a plain server with nothing chosen yet. ``hugepages`` are pages of 2 MiB (None:
    by the cards in use, `pages`), ``modules`` the chosen cards, ``container`` whether the engine
    will run in one, ``image`` its container image, ``engine`` its name (``vllm-fork@1.21``),
    ``gaudi`` False for an engine that needs no card.
    """

    cards: int | None = None
    modules: tuple[int, ...] = ()
    nodes: int = 1
    port: int | None = None
    hugepages: int | None = None
    container: bool = False
    image: str | None = None
    gaudi: bool = True
    engine: str | None = None

    @property
    def cards_in_use(self) -> int | None:
        """Return the number of cards that this launch uses; None before a choice."""
        return max(self.cards or 0, len(self.modules)) or None

    @property
    def pages(self) -> int:
        """Return the huge pages for the cards in use, or for all before a choice.

        The guides set 15000 for a server of eight cards (Gaudi2E 1.21 and 1.23 manuals 1.1.2); an
        even share per card is assumed.
        """
        if self.hugepages is not None:
            return self.hugepages
        used = self.cards_in_use
        if used is None or used >= SERVER_CARDS:
            return SERVER_PAGES
        return used * CARD_PAGES


@dataclass(frozen=True)
class Deviation:
    """A package with another version than the constraints file has.

    ``pinned`` are several versions where they depend on Python's; ``modules`` are the names to
    import.
    """

    package: str
    installed: str
    pinned: str
    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pins:
    """The comparison with an engine's constraints file."""

    file: str
    deviations: tuple[Deviation, ...] = ()


@dataclass(frozen=True)
class EngineFacts:
    """The facts of the engine's interpreter.

    ``bucket_limit``: the installed vllm-hpu-extension reads ``VLLM_*_BUCKET_LIMIT`` as a fraction;
    None where there is no such extension. ``pins``: None where they were not compared. ``packages``
    are those of Gaudi that it has, None where they are not known. ``conditions`` state what
    is known of its release.
    """

    python: str
    problem: str | None = None
    name: str | None = None
    vllm: str | None = None
    plugin: str | None = None
    torch: str | None = None
    torch_plugin: str | None = None
    optimum: str | None = None
    extension: str | None = None
    bucket_limit: bool | None = None
    pins: Pins | None = None
    packages: frozenset[str] | None = None
    conditions: tuple[Message, ...] = ()


@dataclass(frozen=True)
class Weights:
    """The facts of a model folder, by `core.doctor.weights.read_weights`.

    Sizes in bytes; file names relative to it.
    """

    path: str
    problem: str | None = None
    bytes: int | None = None
    has_config: bool = False
    files: int = 0
    missing: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True)
class GatewayFacts:
    """The installed gateway: its folder, the expected version, and its answer to -v."""

    folder: str
    expected: str
    found: str


@dataclass(frozen=True)
class DoctorFacts:
    """The inputs of probes.

    ``ask`` is hl-smi and ``files`` are those of the machine, for slow checks on a live or simulated
    machine only.
    """

    host: Host
    config: HostConfig
    wants: Wants = field(default_factory=Wants)
    engine: EngineFacts | None = None
    weights: Weights | None = None
    ask: Ask | None = None
    live: bool = False
    files: Files | None = None
    gateway: GatewayFacts | None = None

    @cached_property
    def health(self) -> Mapping[int, CardHealth]:
        """Return the condition of the cards by hl-smi's index.

        It is read once, when a slow check needs it.
        """
        return read_health(self.host, self.ask, self.files)

    @property
    def gaudi(self) -> bool:
        """Return whether this is a Gaudi machine at all, working or not."""
        return bool(self.host.cards or self.config.pci_devices)

    @property
    def amd(self) -> bool:
        """Return whether the processors are AMD's."""
        return "amd" in (self.host.cpu_model or "").lower().split()

    def concerned(self, cards: Iterable[Card]) -> bool:
        """Return whether one of these cards was chosen (all are, before a choice)."""
        return not self.wants.modules or any(card.module in self.wants.modules for card in cards)


@dataclass(frozen=True)
class Check:
    """One question about a machine.

    ``source`` is the source of the expected value ("assumed" where nothing is public). ``needs``:
    ``gaudi`` (a Gaudi machine), ``cards`` (cards that the driver shows), ``engine``, ``weights``,
    ``image``, ``port`` (given by the caller), ``gateway`` (installed), ``host`` (a setting of the
    host, not of a container).
    """

    id: str
    probe: Callable[[DoctorFacts], Verdict]
    source: str
    needs: tuple[str, ...] = ()
    level: str = "quick"
    seconds: float = 10.0

    @property
    def area(self) -> str:
        return self.id.partition(".")[0]

    @property
    def title(self) -> Message:
        return Message(f"doctor.{self.id}.title")

    @property
    def why(self) -> Message:
        return Message(f"doctor.{self.id}.why")


def check(
    id: str, source: str, needs: tuple[str, ...] = (), level: str = "quick", seconds: float = 10.0
) -> Callable[[Callable[[DoctorFacts], Verdict]], Check]:
    """Return a decorator that makes a check of a probe."""
    return lambda probe: Check(id, probe, source, needs, level, seconds)


@dataclass(frozen=True, kw_only=True)
class Finding(Verdict):
    """One check's answer for one machine."""

    id: str
    title: Message
    why: Message
    source: str
    on_host: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``doctor --json``."""
        return {
            "id": self.id,
            "status": self.status,
            "title": self.title.render(),
            "found": shown(self.found),
            "expected": shown(self.expected),
            "message": self.message.render(),
            "why": self.why.render(),
            "source": self.source,
            "on_host": self.on_host,
            "remedy": self.remedy.to_json() if self.remedy else None,
        }


def release_of(text: str | None) -> tuple[int, int] | None:
    """Return major and minor of the first version in a text.

    ``hl-gaudi2-1.22.1-fw-61.4`` is (1, 22).
    """
    match = re.search(r"(?<![\d.])(\d{1,4})\.(\d{1,4})", text or "")
    if not match:
        return None
    return (int(match[1]), int(match[2]))


def dotted(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))
