"""The keys file of a gateway: a line ``USER KEY`` for each key."""

from __future__ import annotations

import stat
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.extensions.stack.gateway.gateway_settings import GatewaySettings, Tls
from gaudi_launch.extensions.stack.gateway.runtime.gateway_process import USER, tls_in, usable


def users(path: Path) -> tuple[str, ...]:
    """Return the users of a keys file, in its order, each once.

    The keys are not kept. Raises LaunchError (USAGE) naming the file, and the line of what is
    wrong in it.
    """
    try:
        mode = path.stat().st_mode
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise LaunchError(
            "gateway.keys_unreadable", ExitCode.USAGE, path=str(path), why=why
        ) from None
    if stat.S_IMODE(mode) & 0o077:
        raise LaunchError(
            "gateway.keys_open", ExitCode.USAGE, path=str(path), mode=f"{stat.S_IMODE(mode):04o}"
        )
    found: dict[str, None] = {}
    keys: dict[str, int] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or not USER.fullmatch(words[0]):
            raise LaunchError("gateway.keys_line", ExitCode.USAGE, path=str(path), line=number)
        if words[1] in keys:
            first = keys[words[1]]
            raise LaunchError(
                "gateway.keys_twice", ExitCode.USAGE, path=str(path), line=number, first=first
            )
        keys[words[1]] = number
        found[words[0]] = None
    if not found:
        raise LaunchError("gateway.keys_none", ExitCode.USAGE, path=str(path))
    return tuple(found)


def check_access(settings: GatewaySettings) -> None:
    """Check the files that a gateway's access depends on.

    Raises LaunchError (USAGE) for a keys file or TLS file that cannot be used, and for limits of
    users that have no key.
    """
    known: tuple[str, ...] = ()
    if settings.keys_file is not None:
        known = users(settings.keys_file)
    for user in settings.user_limits:
        if user not in known:
            shown = ", ".join(known) or "-"
            raise LaunchError("gateway.unknown_user", ExitCode.USAGE, user=user, known=shown)
    if settings.tls is not None:
        _check_tls(settings.tls)


def _check_tls(tls: Tls) -> None:
    """Raise LaunchError (USAGE) for TLS files that cannot be used, or not together."""
    try:
        pem = tls_in({"certificate": str(tls.certificate), "key": str(tls.key)})
        mode = tls.key.stat().st_mode
        if mode & 0o007:
            # a group for certificates is usual
            raise ValueError(f"{tls.key}: {stat.filemode(mode)}")
        usable(pem)
    except (OSError, ValueError) as error:
        paths = {"path": str(tls.certificate), "key": str(tls.key)}
        raise LaunchError("gateway.tls_unusable", ExitCode.USAGE, **paths, why=str(error)) from None
