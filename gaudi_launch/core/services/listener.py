"""The server at an address: the engine's served names, and the socket's owner."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from gaudi_launch.core.planning.engine_args import positional_model, split_argv
from gaudi_launch.core.planning.option_table import UPSTREAM, option_table
from gaudi_launch.core.planning.secret_args import CONFIG, is_secret_file
from gaudi_launch.core.services.addresses import accepts, listeners
from gaudi_launch.core.services.process.marks import is_of, service_of

_log = logging.getLogger(__name__)

_SERVED = "--served-model-name"
_EVERYWHERE = ("0.0.0.0", "::")


def served_names(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the names that an engine of these arguments answers under.

    () where the arguments do not show them.

    vLLM lists --served-model-name, else the model as it was given (vllm-project/vllm
    0.32.0:vllm/entrypoints/openai/api_server.py); TGI shows --model-id
    (huggingface/text-generation-inference v2.3.1:router/src/server.rs get_model_info).
    """
    args = split_argv(argv, table=option_table(UPSTREAM))
    # a file of the user may name it as well
    if args.given(CONFIG) and not is_secret_file(args.last(CONFIG)):
        return ()
    served = args.given(_SERVED)
    if served and served[-1].values:
        return served[-1].values
    model = args.last("--model-id") or args.last("--model") or positional_model(argv)
    if not model:
        return ()
    return (model,)


def other_service_at(host: str, port: int, folder: Path) -> str | None:
    """Return the name of another service that listens at an address.

    Return None when none is known to. ``folder`` is that of the calling service. Sockets of other
    users, of containers and of other hosts are not visible.
    """
    others = []
    for pid in listeners((host, *_EVERYWHERE), port):
        service = service_of(pid)
        if service is None:
            continue
        if is_of(pid, service, folder):
            return None
        others.append(Path(service).name)
    return next(iter(others), None)


def stranger_at(host: str, port: int, folder: Path) -> str:
    """Return the process that has taken the address of a service: ``command [pid]``.

    Return "" while no process accepts connections there, or one of the service does. ``folder``
    is that of the service, whose launcher calls this. An engine that has bound its address and does
    not listen yet can lose it so (Linux 6.8:net/ipv4/inet_connection_sock.c
    inet_csk_listen_start). Processes of other users are not visible.
    """
    import psutil

    if not accepts(host, port):
        return ""
    found = ""
    try:
        mine = {child.pid for child in psutil.Process().children(recursive=True)}
        # a socket for all addresses of IPv6 may leave those of IPv4 free
        for pid in listeners((host, "0.0.0.0"), port):
            if pid in mine or is_of(pid, service_of(pid) or "/", folder):
                return ""
            found = f"{psutil.Process(pid).name()} [{pid}]"
    except psutil.Error as error:
        _log.debug("the process at the address is not known: %s", error)
    return found
