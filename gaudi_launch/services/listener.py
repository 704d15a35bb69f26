"""Whose answers come from an address: the name that the engine must answer under, and the owner of the socket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

# vllm serve MODEL (vllm-project/vllm 0.32.0:vllm/entrypoints/cli/main.py)
_SERVE = ("vllm", "vllm.entrypoints.cli.main")
_SERVED = "--served-model-name"
_EVERYWHERE = ("0.0.0.0", "::")


def address(url: str) -> tuple[str, int]:
    """Host and port of a base URL."""
    host, _, port = url.removeprefix("http://").removeprefix("https://").rpartition(":")
    return host.strip("[]"), int(port) if port.isdigit() else 0


def served_names(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the names that an engine of these arguments answers under; () where the arguments do not say.

    vLLM lists --served-model-name, else the model as it was given (vllm-project/vllm
    0.32.0:vllm/entrypoints/openai/api_server.py); TGI shows --model-id (huggingface/text-generation-inference
    v2.3.1:router/src/server.rs get_model_info).
    """
    given: dict[str, tuple[str, ...]] = {}
    for name, values in _options(argv):
        given[name] = values
    # a file or an abbreviation may name it as well
    unclear = [name for name in given if name.startswith("--served") and name != _SERVED]
    if "--config" in given or unclear:
        return ()
    for name in (_SERVED, "--model-id", "--model"):
        if given.get(name):
            return given[name] if name == _SERVED else given[name][:1]
    for before, word, model in zip(argv, argv[1:], argv[2:], strict=False):
        if word == "serve" and Path(before).name in _SERVE and not model.startswith("-"):
            return (model,)
    return ()


def _options(argv: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each option with the words up to the next one; an underscore in its name is a dash for vLLM."""
    name = ""
    values: list[str] = []
    for word in argv:
        if not word.startswith("--"):
            values.append(word)
            continue
        if name:
            yield name, tuple(values)
        name, _, value = word.partition("=")
        name = name.replace("_", "-")
        values = [value] if value else []
    if name:
        yield name, tuple(values)


def other_service_at(host: str, port: int, folder: Path) -> str | None:
    """Return the name of another service that listens at an address; None when none is known to.

    ``folder`` is the asking service's. Sockets of other users, of containers and of other hosts are not visible.
    """
    import psutil

    from gaudi_launch.services.state.orphans import is_of, service_of

    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
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
