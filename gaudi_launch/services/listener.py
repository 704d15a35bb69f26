"""The server at an address: the engine's served names, and the socket's owner."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from gaudi_launch.planning.engine_args import positional_model, split_argv
from gaudi_launch.planning.option_table import UPSTREAM, option_table
from gaudi_launch.planning.secret_args import CONFIG, is_secret_file

_log = logging.getLogger(__name__)

_SERVED = "--served-model-name"
_EVERYWHERE = ("0.0.0.0", "::")


def address(url: str) -> tuple[str, int]:
    """Return host and port of a base URL."""
    host, _, port = url.removeprefix("http://").removeprefix("https://").rpartition(":")
    return host.strip("[]"), int(port) if port.isdigit() else 0


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
    return (model,) if model else ()


def other_service_at(host: str, port: int, folder: Path) -> str | None:
    """Return the name of another service that listens at an address.

    Return None when none is known to. ``folder`` is that of the calling service. Sockets of other
    users, of containers and of other hosts are not visible.
    """
    import psutil

    from gaudi_launch.services.state.orphans import is_of, service_of

    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError) as error:
        _log.debug("the connections are not known: %s", error)
        return None
    others = []
    for connection in connections:
        local = connection.laddr
        if connection.status != psutil.CONN_LISTEN or connection.pid is None:
            continue
        if not local or local.port != port:
            continue
        if local.ip.removeprefix("::ffff:") not in (host, *_EVERYWHERE):
            continue
        service = service_of(connection.pid)
        if service is None:
            continue
        if is_of(connection.pid, service, folder):
            return None
        others.append(Path(service).name)
    return others[0] if others else None
