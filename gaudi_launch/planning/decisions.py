"""Decide settings: the strongest source wins, and what it overrode is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gaudi_launch.messages import Message, message
from gaudi_launch.planning.plan import STRENGTH, Kind, Overridden, Setting, Source


class Decisions:
    """Settings as they are decided, in the order of their first proposal.

    This is the order of argv.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._settings: dict[tuple[Kind, str], Setting] = {}
        self.warnings: list[Message] = []

    def env(
        self,
        name: str,
        value: str,
        reason: Message,
        *,
        source: Source = "computed",
        origin: str = "",
        user_wins: bool = True,
    ) -> None:
        """Propose a variable.

        What the user exported wins over a rule, unless the rule is one that overrides it
        (``user_wins=False``, as some lines of the start scripts do). An empty export counts as
        none.
        """
        exported = self._environment.get(name, "")
        if exported and user_wins and STRENGTH.index(source) > STRENGTH.index("environment"):
            beaten = () if exported == value else (Overridden(value, source),)
            chosen = Setting(
                name, exported, "env", "environment", message("plan.exported"), "", beaten
            )
        else:
            beaten = (
                (Overridden(exported, "environment"),) if exported and exported != value else ()
            )
            chosen = Setting(name, value, "env", source, reason, origin, beaten)
        self._settings[("env", name)] = chosen

    def option(
        self,
        name: str,
        value: str | None,
        reason: Message,
        *,
        source: Source = "computed",
        origin: str = "",
    ) -> None:
        """Propose an engine option; a weaker proposal never replaces a stronger one."""
        fresh = Setting(name, value, "option", source, reason, origin)
        held = self._settings.get(("option", name))
        if held is not None and STRENGTH.index(held.source) < STRENGTH.index(source):
            self._settings[("option", name)] = _beat(held, fresh)
        else:
            self._settings[("option", name)] = fresh if held is None else _beat(fresh, held)

    def drop(self, kind: Kind, name: str) -> None:
        """Remove a proposal that this engine or model does not use."""
        self._settings.pop((kind, name), None)

    def explain(self, kind: Kind, name: str, reason: Message) -> None:
        """Change the reason of a decided setting.

        Does nothing for a setting that is not decided.
        """
        held = self._settings.get((kind, name))
        if held is not None:
            self._settings[(kind, name)] = replace(held, reason=reason)

    def get(self, kind: Kind, name: str) -> str | None:
        """Return the value decided so far."""
        setting = self._settings.get((kind, name))
        return setting.value if setting else None

    def warn(self, id: str, **values: object) -> None:
        self.warnings.append(message(id, **values))

    def settings(self) -> tuple[Setting, ...]:
        return tuple(self._settings.values())


def _beat(winner: Setting, loser: Setting) -> Setting:
    if loser.value == winner.value or loser.value is None:
        return replace(winner, beaten=(*winner.beaten, *loser.beaten))
    return replace(
        winner, beaten=(*winner.beaten, Overridden(loser.value, loser.source), *loser.beaten)
    )
