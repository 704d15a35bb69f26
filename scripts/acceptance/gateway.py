"""Measure what the gateway adds, and what a killed engine costs behind it.

`gateway.py [--engine fake|simulated] [--runs 5] [--short] [--json]`

Part 1, paired runs: the same streamed chats go to an engine directly and through the gateway in
turns, in a changing order, so that other load on the machine meets both. The exit status is 0 when
the median of the runs adds at most 5 ms to the p50 of the time to first token and of the E2E
latency, and costs at most 5 % of the throughput. `simulated` is vLLM's own server with simulated
cards (`gaudi-launch setup cpu`), `fake` is tests/support/fake_engine.py at 20 ms per token.

Part 2: 200 streamed chats, 8 at once, to two fake engines of which one is killed with SIGKILL. No
request may fail that had not begun to stream.

The gateway is that of `gaudi-launch setup gateway`. All traffic is on the loopback address.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.launch import waiting
from gaudi_launch.core.launch.report import Silent
from gaudi_launch.core.launch.stop import end
from gaudi_launch.core.services.addresses import port_free
from gaudi_launch.core.services.state.chosen import find
from gaudi_launch.extensions.stack.gateway import gateway_job as gateway
from gaudi_launch.extensions.stack.gateway.gateway_settings import (
    Backend,
    GatewaySettings,
)

TOP = Path(__file__).parents[2]
FAKE = TOP / "tests" / "support" / "fake_engine.py"
MOST_ADDED_MS = 5.0
MOST_LOSS = 0.05
NAME = "acceptance-gateway"
_GAP_SECONDS = 0.02
_START_SECONDS = 600.0
_REQUEST_SECONDS = 300.0
_MOST_LINE = 1 << 20


@dataclass(frozen=True)
class Load:
    """Streamed chats: how many, how many at once, and tokens of each."""

    requests: int
    at_once: int
    tokens: int


@dataclass(frozen=True)
class Measured:
    """One run: medians in milliseconds, tokens per second, failed requests."""

    ttft_ms: float
    e2e_ms: float
    tokens_per_second: float
    failed: int


@dataclass
class Stream:
    """One streamed answer; times in seconds from the request on."""

    first: float = 0.0
    last: float = 0.0
    pieces: int = 0
    complete: bool = False


@dataclass(frozen=True)
class Server:
    """An address, the model that it serves, and the key of a user."""

    port: int
    model: str
    key: str = ""


async def ask(server: Server, number: int, tokens: int) -> Stream:
    """Send one streamed chat on a new connection and read it to its end."""
    stream = Stream()
    body = json.dumps(
        {
            "messages": [
                {"role": "user", "content": f"Request {number}. " + "Write a long story. " * 20}
            ],
            "model": server.model,
            "max_tokens": tokens,
            "stream": True,
            "ignore_eos": True,
        }
    ).encode()
    user = f"Authorization: Bearer {server.key}\r\n" if server.key else ""
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"{user}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    began = time.perf_counter()
    writer = None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=_MOST_LINE)
        writer.write(head.encode() + body)
        while line := await reader.readline():
            if not line.startswith(b"data: "):
                continue
            stream.last = time.perf_counter() - began
            stream.complete = line.startswith(b"data: [DONE]")
            # vLLM's first piece is a role without text, which comes with the first token
            if not stream.pieces:
                stream.first = stream.last
            stream.pieces += 1
            if stream.complete:
                break
    except (OSError, ValueError):
        stream.complete = False
    finally:
        if writer is not None:
            writer.close()
    return stream


async def drive(
    server: Server, load: Load, at: dict[int, int] | None = None, after: float = 0.0
) -> tuple[list[Stream], float]:
    """Send the load; return the answers and the seconds that all took.

    ``at`` are processes that are killed ``after`` some seconds from a number of answers on.
    """
    turns = asyncio.Semaphore(load.at_once)
    answers: list[Stream] = []
    loop = asyncio.get_running_loop()

    async def one(number: int) -> None:
        async with turns:
            try:
                answers.append(
                    await asyncio.wait_for(ask(server, number, load.tokens), _REQUEST_SECONDS)
                )
            except asyncio.TimeoutError:
                answers.append(Stream())
            pid = (at or {}).get(len(answers))
            if pid is not None:
                loop.call_later(after, os.kill, pid, signal.SIGKILL)

    began = time.perf_counter()
    await asyncio.gather(*[one(number) for number in range(load.requests)])
    return answers, time.perf_counter() - began


def measure(server: Server, load: Load) -> Measured:
    """Return the figures of one run."""
    answers, seconds = asyncio.run(drive(server, load))
    good = [each for each in answers if each.complete]
    if not good:
        sys.exit(f"no request to port {server.port} was answered")
    return Measured(
        ttft_ms=1000 * statistics.median(each.first for each in good),
        e2e_ms=1000 * statistics.median(each.last for each in good),
        tokens_per_second=load.tokens * len(good) / seconds,
        failed=len(answers) - len(good),
    )


def free_port() -> int:
    """Return a port below those of the kernel's own choice that is free now."""
    for port in range(18_100, 28_000):
        if port_free("127.0.0.1", port):
            return port
    sys.exit("no port is free")


@contextlib.contextmanager
def fakes(count: int, model: str) -> Iterator[list[tuple[Server, subprocess.Popen[str]]]]:
    """Yield running fake engines."""
    running: list[tuple[Server, subprocess.Popen[str]]] = []
    try:
        for _ in range(count):
            port = free_port()
            words = ["--port", str(port), "--model", model, "--gap", str(_GAP_SECONDS)]
            process = subprocess.Popen(
                [sys.executable, str(FAKE), *words], stdout=subprocess.PIPE, text=True
            )
            running.append((Server(port, model), process))
            assert process.stdout is not None
            process.stdout.readline()
        yield running
    finally:
        for _, process in running:
            process.kill()
            process.wait()


@contextlib.contextmanager
def simulated() -> Iterator[Server]:
    """Yield vLLM's server with simulated cards, as a service."""
    port, name = free_port(), "acceptance-engine"
    command = [
        sys.executable,
        "-m",
        "gaudi_launch",
        "serve",
        "demo",
        "-n",
        "1",
        "--engine",
        "simulated",
    ]
    words = ["--detach", "--name", name, "-p", str(port), "-l", "2048", "--no-doctor", "--quiet"]
    subprocess.run([*command, *words], check=True, stdout=sys.stderr)
    try:
        service = waiting.until_ready(name, _START_SECONDS)
        yield Server(port, str(service.state["served"]))
    finally:
        end(find(name), 0, Silent())


@contextlib.contextmanager
def behind(servers: list[Server]) -> Iterator[Server]:
    """Yield a gateway in front of engines of one model."""
    port = free_port()
    model = servers[0].model
    replicas = {f"http://127.0.0.1:{server.port}": "" for server in servers}
    gateway.start(NAME, [Backend(model, replicas)], GatewaySettings(port=port))
    try:
        waiting.until_ready(NAME, 60)
        yield Server(port, model)
    finally:
        end(find(NAME), 0, Silent())


def overhead(engine: Server, load: Load, runs: int) -> dict[str, object]:
    """Return the paired runs and the medians of what the gateway adds."""
    pairs = []
    with behind([engine]) as front:
        for server in (engine, front):
            measure(server, Load(2 * load.at_once, load.at_once, load.tokens))
        for run in range(runs):
            order = (engine, front) if run % 2 == 0 else (front, engine)
            found = {server.port: measure(server, load) for server in order}
            pairs.append((found[engine.port], found[front.port]))
            print(f"run {run + 1}: direct {pairs[-1][0]}, gateway {pairs[-1][1]}", file=sys.stderr)
    return {
        "added_ttft_ms": statistics.median(b.ttft_ms - a.ttft_ms for a, b in pairs),
        "added_e2e_ms": statistics.median(b.e2e_ms - a.e2e_ms for a, b in pairs),
        "lost_throughput": statistics.median(
            1 - b.tokens_per_second / a.tokens_per_second for a, b in pairs
        ),
        "failed": sum(a.failed + b.failed for a, b in pairs),
        "load": asdict(load),
        "runs": [{"direct": asdict(a), "gateway": asdict(b)} for a, b in pairs],
    }


def killed(requests: int) -> dict[str, int]:
    """Return what became of the requests while one of two engines is killed."""
    with fakes(2, "fake") as engines, behind([server for server, _ in engines]) as front:
        load = Load(requests, 8, 10)
        answers, _ = asyncio.run(drive(front, load, {requests // 3: engines[0][1].pid}))
    cut = [each for each in answers if not each.complete]
    return {
        "requests": len(answers),
        "complete": len(answers) - len(cut),
        "cut_in_stream": sum(1 for each in cut if each.pieces),
        "failed_before_stream": sum(1 for each in cut if not each.pieces),
    }


def main() -> int:
    """Run both parts; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", choices=("fake", "simulated"), default="fake")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--short", action="store_true", help="fewer and shorter requests")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    load = Load(32, 8, 10) if options.short else Load(160, 8, 32)
    with contextlib.ExitStack() as stack:
        state = stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-"))
        # not the user's services
        os.environ["XDG_STATE_HOME"] = state
        if options.engine == "simulated":
            engine = stack.enter_context(simulated())
        else:
            engine = stack.enter_context(fakes(1, "fake"))[0][0]
        added = overhead(engine, load, options.runs)
    with tempfile.TemporaryDirectory(prefix="gateway-") as state:
        os.environ["XDG_STATE_HOME"] = state
        lost = killed(60 if options.short else 200)
    if options.json:
        print(
            json.dumps(
                {"schema": 1, "engine": options.engine, "overhead": added, "killed": lost}, indent=1
            )
        )
    else:
        print(
            f"added at p50: TTFT {added['added_ttft_ms']:.2f} ms, E2E "
            f"{added['added_e2e_ms']:.2f} ms"
        )
        print(f"lost throughput: {100 * float(str(added['lost_throughput'])):.2f} %")
        print(f"an engine killed: {lost}")
    times = (float(str(added["added_ttft_ms"])), float(str(added["added_e2e_ms"])))
    within = max(times) <= MOST_ADDED_MS and float(str(added["lost_throughput"])) <= MOST_LOSS
    return 0 if within and not added["failed"] and not lost["failed_before_stream"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LaunchError as error:
        sys.exit(str(error))
