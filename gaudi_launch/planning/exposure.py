"""Warn of addresses that other machines reach when no key protects them. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from gaudi_launch.messages import Message, message
from gaudi_launch.planning.plan import Command

_KEY = "VLLM_API_KEY"


def listening_address(command: Command) -> str:
    """Return the address that the engine, or its container, listens on ("" for all).

    An engine without ``--host`` is assumed to listen on this machine only.
    """
    container = command.container
    if container is not None and container.ports:
        return container.address
    found = command.args().last("--host")
    if found is None:
        return "127.0.0.1"
    return found


def is_open(address: str) -> bool:
    """Return True if other machines may reach ``address``.

    That is true for anything but a loopback address or its name.

    >>> [is_open(each) for each in ("127.0.0.1", "::1", "localhost")]
    [False, False, False]
    >>> [is_open(each) for each in ("0.0.0.0", "", "10.0.0.5", "node1")]
    [True, True, True, True]
    """
    if address == "localhost":
        return False
    try:
        return not ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return True


def open_warning(command: Command, environment: Mapping[str, str]) -> Message | None:
    """Return the warning for an address that is open without a key, or None.

    vLLM and our Ray applications read VLLM_API_KEY
    (HabanaAI/vllm-fork@17a7946f4:vllm/entrypoints/openai/api_server.py, ``authentication``). The
    engine that runs in a separate container, TGI, gets no key: its launcher writes all options into
    its log.
    """
    address = listening_address(command)
    if not is_open(address):
        return None
    shown = address or "0.0.0.0"
    if command.container is not None:
        return message("plan.open_keyless", address=shown)
    if environment.get(_KEY):
        return None
    return message("plan.open_address", address=shown)
