"""One run with the built-in client: inspect, fit, warm up, send, sum up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gaudi_launch.core.base.debug_log import best_effort
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.paths import state_dir
from gaudi_launch.core.launch.prediction import SETUP
from gaudi_launch.core.services.endpoint import Target
from gaudi_launch.extensions.bench import protocols, server, statistics
from gaudi_launch.extensions.bench import replay as replaying
from gaudi_launch.extensions.bench.client import Client, ServerError
from gaudi_launch.extensions.bench.options import BenchOptions
from gaudi_launch.extensions.bench.run_file import BenchRun, BenchWorkload
from gaudi_launch.extensions.bench.workload import within

_log = logging.getLogger(__name__)

_MOST_FILES = 1 << 16


def problem(error: ServerError, url: str) -> LaunchError:
    """Return the LaunchError of a server that cannot be queried."""
    if error.kind in ("timeout", "cut", "protocol") or error.status >= 500:
        code = ExitCode.ENGINE
    else:
        code = ExitCode.FAILED
    words = text(error.sentence, why=error.detail, status=error.status)
    return LaunchError("measure.no_server", code, url=url, words=words)


async def builtin(
    client: Client,
    target: Target,
    workload: BenchWorkload,
    options: BenchOptions,
    going: Callable[[replaying.Going], None],
    scale: float,
) -> BenchRun:
    """Return the run; requests arrive ``scale`` times as fast as in the workload.

    Ctrl-C keeps what is done. Raises LaunchError.
    """
    try:
        served = await server.look(client, options.model or target.model)
        given = next((form for form in protocols.FORMS if form == options.form), None)
        form = given or await server.pick_form(client, served)
        ruler = await server.measure_ruler(client, served, form)
    except ServerError as error:
        raise problem(error, target.url) from None
    fitting = within(
        workload, served.longest, served.longest_input, int(ruler.fixed + ruler.each) + 1
    )
    # answers of other servers end where the model ends them
    exact = served.vllm and not options.stop_early
    way = replaying.Way(served, form, ruler, exact, options.texts)
    stop = asyncio.Event()
    _allow_connections()
    began = time.time()
    with _stop_on_interrupt(stop):
        samples = await replaying.replay(client, fitting.hastened(scale), way, going, stop)
    facts_of_target = server_facts(target, served.model)
    facts = {
        "tool": "builtin",
        **facts_of_target,
        "simulated": facts_of_target["simulated"] or served.simulated,
        "form": form,
        "began": began,
        "interrupted": stop.is_set(),
        "ruler": {
            "each": round(ruler.each, 4),
            "fixed": round(ruler.fixed, 1),
            "measured": ruler.measured,
        },
    }
    return BenchRun(facts, fitting.to_json(), statistics.summary(samples), tuple(samples))


def _allow_connections() -> None:
    """Allow this process the system's maximum of open connections.

    A limit of 1,024 files is soon reached.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES
    if hard != resource.RLIM_INFINITY:
        most = min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with best_effort(_log, "raise the limit of open files", OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _engine_name(engine: Mapping[str, Any]) -> str | None:
    if not {"name", "version"} <= engine.keys():
        return None
    return f"{engine['name']}@{engine['version']}"


def server_facts(target: Target, model: str | None) -> dict[str, Any]:
    """Return a saved run's facts of the server: no key, no environment."""
    engine = target.plan.get("engine")
    named: Mapping[str, Any] = mapping(engine)
    return {
        "url": target.url,
        "service": target.name,
        "model": model,
        "engine": _engine_name(named),
        "modules": target.plan.get("modules"),
        "simulated": named.get("simulated") is True,
        "plan": _speed_facts(target.plan),
    }


def _speed_facts(plan: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the part of a plan that speed depends on, for `bench --learn`."""
    engine = plan.get("engine")
    if not isinstance(engine, dict):
        return None
    return {
        "engine": {name: engine.get(name) for name in ("name", "version")},
        SETUP: plan.get(SETUP),
    }


@contextlib.contextmanager
def _stop_on_interrupt(stop: asyncio.Event) -> Any:
    """Set ``stop`` at the first Ctrl-C; the second interrupts as usual."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)

    def first() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)

    try:
        loop.add_signal_handler(signal.SIGINT, first)
    except (NotImplementedError, RuntimeError, ValueError):
        # not in the main thread: the caller stops this one
        yield
        return
    try:
        yield
    finally:
        if not stop.is_set():
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before)


def default_file(label: str, began: float) -> Path:
    """Return the default file of a run: in the state folder, by name and second.

    The name is the server's.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(began))
    word = re.sub(r"[^\w.-]", "-", label)[:60]
    path = state_dir() / "bench" / f"{word}-{stamp}.json"
    number = 1
    while path.exists():
        number += 1
        path = path.with_name(f"{word}-{stamp}-{number}.json")
    return path


def child_environment(url: str, key: str | None) -> dict[str, str]:
    """Return the environment for another tool.

    Proxies are for its hub, not for the server at this URL; the key is passed as vLLM's client
    reads it, never on a command line.
    """
    environment = dict(os.environ)
    host = urlsplit(url).hostname or ""
    for name in ("no_proxy", "NO_PROXY"):
        environment[name] = ",".join(word for word in (environment.get(name, ""), host) if word)
    if key:
        environment["OPENAI_API_KEY"] = key
    return environment
