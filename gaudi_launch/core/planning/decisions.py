"""Decide settings: the strongest source wins, and what it overrode is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.planning.plan import STRENGTH, Kind, Overridden, Setting, Source


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
    ) -> None:
        """Propose a variable; what the user exported wins over a rule."""
        fresh = Setting(name, value, "env", source, reason, origin)
        exported = self._exported(name)
        if exported is not None and _weaker(source, "environment"):
            self._settings[("env", name)] = _beat(exported, fresh)
        else:
            self._force(fresh)

    def force_env(
        self,
        name: str,
        value: str,
        reason: Message,
        *,
        source: Source = "computed",
        origin: str = "",
    ) -> None:
        """Set a variable over what the user exported.

        Some lines of the start scripts do.
        """
        self._force(Setting(name, value, "env", source, reason, origin))

    def _force(self, variable: Setting) -> None:
        exported = self._exported(variable.name)
        if exported is not None:
            variable = _beat(variable, exported)
        self._settings[("env", variable.name)] = variable

    def _exported(self, name: str) -> Setting | None:
        """Return what the user exported; an empty export counts as none."""
        value = self._environment.get(name)
        if not value:
            return None
        return Setting(name, value, "env", "environment", message("plan.exported"))

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
        decided = Setting(name, value, "option", source, reason, origin)
        held = self._settings.get(("option", name))
        if held is not None and _weaker(source, held.source):
            decided = _beat(held, decided)
        elif held is not None:
            decided = _beat(decided, held)
        self._settings[("option", name)] = decided

    def option_of(self, flag: str, name: str, value: object, *, origin: str = "") -> None:
        """Propose the value of our option ``flag``; None proposes nothing."""
        if value is not None:
            reason = message("plan.flag", flag=flag)
            self.option(name, str(value), reason, source="flag", origin=origin)

    def switch_of(
        self, flag: str, name: str, value: str, *, given: object, origin: str = ""
    ) -> None:
        """Propose a variable for our option ``flag``; nothing where it was not ``given``."""
        if given:
            self.env(name, value, message("plan.flag", flag=flag), source="flag", origin=origin)

    def option_or(
        self,
        name: str,
        given: tuple[str, object],
        default: tuple[object, Message],
        *,
        origin: str = "",
    ) -> None:
        """Propose the user's value (``given``: our option, its value), else ``default``."""
        flag, value = given
        if value is not None:
            self.option_of(flag, name, value, origin=origin)
            return
        usual, reason = default
        self.option(name, str(usual), reason, origin=origin)

    def drop_unless_exported(self, *names: str) -> None:
        """Remove proposals of variables that the user did not export."""
        for name in names:
            if not self._environment.get(name):
                self.drop("env", name)

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
        if not self.has(kind, name):
            return None
        return self._settings[kind, name].value

    def has(self, kind: Kind, name: str) -> bool:
        """Return True for a setting that was proposed, also for a bare option."""
        return (kind, name) in self._settings

    def warn(self, id: str, **values: object) -> None:
        self.warnings.append(message(id, **values))

    def settings(self) -> tuple[Setting, ...]:
        return tuple(self._settings.values())

    def variables(self) -> tuple[Setting, ...]:
        """Return the settings that are variables."""
        return tuple(setting for setting in self.settings() if setting.kind == "env")


def _weaker(source: Source, other: Source) -> bool:
    return STRENGTH.index(source) > STRENGTH.index(other)


def _beat(winner: Setting, loser: Setting) -> Setting:
    if loser.value == winner.value or loser.value is None:
        return replace(winner, beaten=(*winner.beaten, *loser.beaten))
    return replace(
        winner, beaten=(*winner.beaten, Overridden(loser.value, loser.source), *loser.beaten)
    )
