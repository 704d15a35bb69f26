"""The address of a server: in a URL, for clients, open or not."""

from __future__ import annotations

_EVERYWHERE = ("0.0.0.0", "::", "[::]", "")


def in_url(host: str) -> str:
    """Return a host as a URL has it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def join(host: str, port: int | str) -> str:
    """Return an address with a port.

    >>> join("10.0.0.1", 8850), join("fd00::1", 8850)
    ('10.0.0.1:8850', '[fd00::1]:8850')
    """
    return f"{in_url(host)}:{port}"


def reached(host: str) -> str:
    """Return where this machine reaches a server that listens on ``host``.

    Linux answers IPv4 on ``::``, too, unless net.ipv6.bindv6only is set.

    >>> [reached(each) for each in ("0.0.0.0", "::", "10.0.0.1")]
    ['127.0.0.1', '127.0.0.1', '10.0.0.1']
    """
    return "127.0.0.1" if host in _EVERYWHERE else host


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches a server on ``host``.

    >>> [is_loopback(each) for each in ("127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost")]
    [True, True, True, True, True]
    >>> [is_loopback(each) for each in ("0.0.0.0", "", "10.0.0.5", "node1")]
    [False, False, False, False]
    """
    if host == "localhost":
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
