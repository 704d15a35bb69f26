"""The address of a service: free, and reserved while it starts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.paths import machine_root
from gaudi_launch.core.services.listener import address, holder
from gaudi_launch.core.services.probe import port_free
from gaudi_launch.core.services.state.reservation import (
    check_address,
    free_port,
    reserve_address,
)


@contextlib.contextmanager
def hold_port(url: str, name: str) -> Iterator[tuple[int, ...]]:
    """Reserve the address of a service that is about to start.

    Returns the open lock files, as `reserve` does. Raises LaunchError (MACHINE), naming the service
    that has it, also one that does not listen yet, or else the process that listens there.
    """
    host, port = address(url)
    with reserve_address(host, port, name, machine_root()) as handles:
        _check_free(host, port)
        yield handles


def check_port(url: str) -> None:
    """Raise what `hold_port` would raise now, without reserving."""
    host, port = address(url)
    check_address(host, port, machine_root())
    _check_free(host, port)


def _check_free(host: str, port: int) -> None:
    try:
        free = port_free(host, port)
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError(
            "serve.bad_host", ExitCode.MACHINE, host=host, port=port, why=why
        ) from None
    if not free:
        raise LaunchError(
            "serve.port_taken",
            ExitCode.MACHINE,
            port=port,
            who=holder(port),
            free=free_port(host, port, machine_root()),
        )
