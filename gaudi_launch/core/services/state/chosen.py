"""Find the service that an argument of a command means, by its name or its model."""

from __future__ import annotations

from collections.abc import Sequence

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.locks import user_name
from gaudi_launch.core.base.paths import machine_root
from gaudi_launch.core.host import card_locks
from gaudi_launch.core.services.state import store
from gaudi_launch.core.services.state.registry import ServiceRecord, phase, read, services


def find(name: str) -> ServiceRecord:
    """Return the service of this name.

    Raises LaunchError: USAGE, naming the existing ones, or the user whose service it is; FAILED
    for a record of another user among this user's.
    """
    service = read(name)
    if service is None:
        # another user may run a service of this name
        other = card_locks.read_services(machine_root()).get(name)
        if other is not None and other.user != user_name():
            raise LaunchError(
                "services.other_user", ExitCode.USAGE, name=name, user=other.user, pid=other.pid
            )
        known = ", ".join(service.name for service in services()) or "-"
        raise LaunchError("services.unknown", ExitCode.USAGE, found=name, known=known)
    return service


def resolve(word: str | None) -> ServiceRecord:
    """Return the service that an argument of a reading command means.

    ``word``: its name, a name of its model, or the beginning of one of them; of several, the
    running one is meant. None: the only running service. Raises LaunchError (USAGE), with the
    services to choose from.
    """
    if word is None:
        return _only(services())
    if store.is_name(word) and (exact := read(word)) is not None:
        return exact
    found = with_model(word)
    if not found and word:
        found = [
            each
            for each in services()
            if any(name.startswith(word) for name in (each.name, *each.models))
        ]
    if not found:
        return find(word)
    if len(found) == 1:
        return found[0]
    return _only(found, word)


def with_model(name: str) -> list[ServiceRecord]:
    """Return the services of this name, or with a model of this name."""
    return [each for each in services() if name in (each.name, *each.models)]


def _only(found: Sequence[ServiceRecord], word: str = "") -> ServiceRecord:
    """Return the only running one. Raises LaunchError (USAGE)."""
    running = [each for each in found if each.alive]
    if len(running) == 1:
        return running[0]
    if word:
        raise LaunchError(
            "services.ambiguous", ExitCode.USAGE, detail=choices(running or found), name=word
        )
    raise unnamed(running or found)


def unnamed(known: Sequence[ServiceRecord]) -> LaunchError:
    """Return the error of a command without the name of a service."""
    if not known:
        return LaunchError("services.none_at_all", ExitCode.USAGE)
    return LaunchError("services.unnamed", ExitCode.USAGE, detail=choices(known))


def choices(known: Sequence[ServiceRecord]) -> str:
    """Return a line for each service: its name and phase."""
    widest = max((len(each.name) for each in known), default=0)
    return "\n".join(f"  {each.name.ljust(widest)}  {phase(each)}" for each in known)
