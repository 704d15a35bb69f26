"""Names of services, which are names of folders."""

from __future__ import annotations

import re

from gaudi_launch.core.base.errors import ExitCode, LaunchError

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", re.ASCII)


def is_name(name: str) -> bool:
    """Return True for a valid name: letters, digits, dot, dash, underscore.

    The first character is a letter or a digit.
    """
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Return a service's name. Raises LaunchError (USAGE) when it cannot be one."""
    if not is_name(name):
        raise LaunchError("serve.bad_name", ExitCode.USAGE, found=name)
    return name


def default_name(model: str, port: str) -> str:
    """Return a name from the model's last part and the port.

    No other service on this machine has that port.
    """
    base = (
        re.sub(r"[^A-Za-z0-9._-]+", "-", model.rstrip("/").rsplit("/", 1)[-1]).strip("-._")
        or "model"
    )
    return f"{base[:50]}-{port}"
