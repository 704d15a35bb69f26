"""A stand-in for an engine's interpreter: real processes, ports and signals.

It is for tests of processes, without a model. Run as ``python trivial_engine.py -m
vllm.entrypoints.openai.api_server --port N ...`` it prints lines in the form of the 1.21 fork,
opens /health, /v1/models and /v1/completions, and keeps two children, one in a separate session (as
engine cores were seen to). With ``-c`` it answers as an interpreter that has the fork at 1.21.

TRIVIAL_DO: ``die`` in warm-up, ``hang`` in warm-up, ``deaf`` to SIGTERM, ``oom`` (dies on memory),
``sick`` (healthy, but every completion fails), ``fault`` (by /metrics its KV cache is full, it
preempts, and first tokens take 15 s; POST /fault/compile: it logs a shape that was not warmed up;
POST /fault/crash: it ends with status 1). TRIVIAL_KIND: another extension to answer.
TRIVIAL_GRAPHS: how many it warms up. TRIVIAL_PIDS: a file for its pids. TRIVIAL_LOAD: a file with
the number of running requests for /metrics. TRIVIAL_SEEN: a file for the requests that it gets.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DO = os.environ.get("TRIVIAL_DO", "")
GRAPHS = int(os.environ.get("TRIVIAL_GRAPHS", "4"))

ANSWER = {
    "packages": {
        "vllm": "0.8.5+gaudi121",
        "vllm-hpu-extension": "1.21.0",
        "habana-torch-plugin": "1.21.3.57",
    },
    "facts": {"extension_kind": os.environ.get("TRIVIAL_KIND", "1.21"), "bucket_limit": "false"},
}
# with ``fault``, by the names of vLLM 0.32: how many more each second, and what does not change
COUNTERS = {
    "vllm:num_preemptions_total": 5.0,
    "vllm:generation_tokens_total": 400.0,
    "vllm:prompt_tokens_total": 900.0,
    "vllm:time_to_first_token_seconds_sum": 45.0,
    "vllm:time_to_first_token_seconds_count": 3.0,
    "vllm:inter_token_latency_seconds_sum": 8.0,
    "vllm:inter_token_latency_seconds_count": 400.0,
}
GAUGES = {
    "vllm:num_requests_running": 64.0,
    "vllm:num_requests_waiting": 12.0,
    "vllm:kv_cache_usage_perc": 0.99,
}
BEGAN = time.monotonic()
# the stream of a test that failed ends
UNTIL_SECONDS = 300.0


def say(line: str, where: str = "hpu_model_runner.py:2587") -> None:
    print(f"INFO 11-21 03:03:01 [{where}] {line}", flush=True)


def option(name: str, fallback: str) -> str:
    words = sys.argv
    return words[len(words) - 1 - words[::-1].index(name) + 1] if name in words else fallback


def children() -> None:
    """Start an engine core that leaves the session, with a worker."""
    nap = "import time; time.sleep(600)"
    core = (
        f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-IS', '-c', {nap!r}]); "
        "time.sleep(600)"
    )
    python = (sys.executable, "-IS", "-c")
    first = subprocess.Popen([*python, core], start_new_session=True)
    second = subprocess.Popen([*python, nap])
    if "TRIVIAL_PIDS" in os.environ:
        with Path(os.environ["TRIVIAL_PIDS"]).open("a", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n{first.pid}\n{second.pid}\n")


class Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass

    def parse_request(self) -> bool:
        good = super().parse_request()
        if "TRIVIAL_SEEN" in os.environ and not self.requestline.startswith("GET /health "):
            seen = {"line": self.requestline, "headers": [*getattr(self, "headers", {}).items()]}
            with Path(os.environ["TRIVIAL_SEEN"]).open("a", encoding="utf-8") as file:
                file.write(json.dumps(seen) + "\n")
        return good

    def answer(self, document: object, status: int = 200) -> None:
        self.text(json.dumps(document).encode(), status)

    def text(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer({})
        elif self.path == "/metrics" and DO == "fault":
            seconds = time.monotonic() - BEGAN
            grown = {name: rate * seconds for name, rate in COUNTERS.items()}
            page = "".join(f"{name} {value}\n" for name, value in {**grown, **GAUGES}.items())
            self.text(page.encode())
        elif self.path == "/v1/models":
            self.answer({"data": [{"id": option("--served-model-name", option("--model", "m"))}]})
        elif self.path == "/metrics" and "TRIVIAL_LOAD" in os.environ:
            # a page of the fork's /metrics, with the number in the file
            running = Path(os.environ["TRIVIAL_LOAD"]).read_text(encoding="utf-8").strip()
            page = (
                f'vllm:num_requests_running{{model_name="m"}} {running}.0\n'
                "vllm:num_requests_waiting 2.0\n"
            )
            self.text(page.encode())
        else:
            self.answer({"error": "no such page"}, 404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        asked = json.loads(body) if body.startswith(b"{") else {}
        if self.path == "/fault/crash" and DO == "fault":
            os._exit(1)
        if self.path == "/fault/compile" and DO == "fault":
            say("Configuration: ('prompt', 1, 384) was not warmed-up!")
            self.answer({})
        elif DO == "sick":
            self.answer({"error": "internal"}, 500)
        elif asked.get("stream"):
            self.stream(int(asked.get("max_tokens", 1)), asked.get("until"))
        else:
            message = {"role": "assistant", "content": "Paris"}
            self.answer(
                {"choices": [{"text": "Paris", "message": message, "finish_reason": "stop"}]}
            )

    def stream(self, tokens: int, until: str | None) -> None:
        """Send a token every 20 ms until a file exists, then these many."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        sent, begun = 0, time.monotonic()
        while sent < tokens:
            if until is not None and time.monotonic() - begun > UNTIL_SECONDS:
                return
            self.wfile.write(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n')
            self.wfile.flush()
            time.sleep(0.02)
            sent += until is None or Path(until).exists()
        self.wfile.write(b"data: [DONE]\n\n")


def compile_graph(number: int) -> None:
    """Read a recipe of the cache, or write it if it does not exist.

    The bridge does the same.
    """
    folder = os.environ.get("PT_HPU_RECIPE_CACHE_CONFIG", "").split(",")[0]
    if folder:
        recipe = Path(folder) / f"graph_{number}.recipe"
        if recipe.exists():
            say(f"read {recipe.name}")
        else:
            recipe.write_bytes(bytes([number % 256]) * 1000)


def warm_up() -> None:
    for number in range(1, GRAPHS + 1):
        say(f"[Warmup][Prompt][{number}/{GRAPHS}] batch_size:1 seq_len:{128 * number} free_mem:0 B")
        compile_graph(number)
        if DO == "die" and number == 2:
            sys.exit(
                "RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure]."
            )
        if DO == "oom" and number == 2:
            sys.exit("FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::123456 (0.1)MB")
        while DO == "hang" and number == 2:
            time.sleep(1)
        time.sleep(0.02)
    say("Warmup finished in 1 secs, allocated 0 B of device memory", "hpu_model_runner.py:2962")
    say(
        "init engine (profile, create kv cache, warmup model) took 1.23 seconds",
        "llm_engine.py:431",
    )


def main() -> None:
    if sys.argv[1:2] == ["-c"]:
        print("gaudi-launch-answer:" + json.dumps(ANSWER))
        return
    if DO == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    say("vLLM API server version 0.8.5+gaudi121", "api_server.py:1042")
    children()
    say("# hpu blocks: 16384, # CPU blocks: 0", "executor_base.py:112")
    warm_up()
    host, port = option("--host", "127.0.0.1"), int(option("--port", "8000"))
    ThreadingHTTPServer.request_queue_size = 128
    server = ThreadingHTTPServer((host, port), Handler)
    say(f"Starting vLLM API server on http://{host}:{port}", "api_server.py:1089")
    print("INFO:     Application startup complete.", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while True:
        # Python runs a handler between two steps of the main thread: a signal that comes just
        # before a sleep waits for its end
        time.sleep(0.2)


if __name__ == "__main__":
    main()
