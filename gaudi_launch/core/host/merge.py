"""Merge card readings from several sources; the first source with a fact wins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gaudi_launch.core.host.hardware import Card


@dataclass
class CardFacts:
    """One card in the making: values by the field names of `Card`, and their sources."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    hints: dict[str, tuple[Any, str]] = field(default_factory=dict)

    def hint(self, name: str, value: Any, source: str) -> None:
        """Add a weaker fact, used when no source knows a better one."""
        self.hints.setdefault(name, (value, source))

    def settle(self) -> None:
        """Fill what is still unknown from the hints."""
        for name, (value, source) in self.hints.items():
            self.put(name, value, source)

    def put(self, name: str, value: Any, source: str) -> bool:
        """Keep a fact unless one is known; False when a different one is."""
        if value is None or value == ():
            return True
        if name in self.values:
            return bool(self.values[name] == value)
        self.values[name] = value
        self.sources[name] = source
        return True

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def card(self) -> Card:
        return Card(**{"index": None, "module": None, **self.values}, sources=dict(self.sources))


@dataclass
class Cards:
    """The cards of one machine.

    ``quarrels`` are sentences about places that disagree.
    """

    all: list[CardFacts] = field(default_factory=list)
    quarrels: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[CardFacts]:
        return iter(self.all)

    def find(self, index: int | None = None, bus: str | None = None) -> CardFacts:
        """Return the card at this address, else with this index.

        A new one when there is neither.

        The address goes first: an index may mean another card to another program, an address
        cannot.
        """
        for name, value in (("bus", bus), ("index", index)):
            for facts in self.all:
                if value is not None and facts.get(name) == value:
                    return facts
        self.all.append(CardFacts())
        return self.all[-1]

    def missing(self, name: str) -> bool:
        """Return True when some card lacks this fact."""
        return any(facts.get(name) is None for facts in self.all)

    def put(self, facts: CardFacts, name: str, value: Any, source: str) -> None:
        """Keep a fact, and note it when two places disagree on what should be the same."""
        if facts.put(name, value, source):
            return
        place = facts.get("bus")
        if facts.get("index") is not None:
            place = f"accel{facts.get('index')}"
        self.quarrels.append(
            f"{place}: {name} is {facts.get(name)} by {facts.sources[name]} and {value} by {source}"
        )
