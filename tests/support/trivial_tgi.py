"""A stand-in for TGI in its container: log lines of 3.3.5, port, /generate.

The port opens only when it is connected. TRIVIAL_DO: ``die`` in warm-up, ``sick`` (healthy, but
every request fails). TRIVIAL_DEAF: SIGTERM is ignored. TRIVIAL_PORT is the published port. With
--json-output its lines are JSON, as TGI's are.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DO = os.environ.get("TRIVIAL_DO", "")
MODEL = sys.argv[sys.argv.index("--model-id") + 1]


def say(line: str, target: str = "text_generation_launcher") -> None:
    if "--json-output" in sys.argv:
        record = {
            "timestamp": "2025-08-01T10:00:00.000000Z",
            "level": "INFO",
            "message": line,
            "target": target,
        }
        print(json.dumps(record), flush=True)
    else:
        print(
            f"\x1b[2m2025-08-01T10:00:00.000000Z\x1b[0m \x1b[32m INFO\x1b[0m {target}: {line}",
            flush=True,
        )


class Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass

    def answer(self, document: object, status: int = 200) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        pages = {
            "/health": {},
            "/info": {"model_id": MODEL},
            "/v1/models": {"data": [{"id": MODEL}]},
        }
        self.answer(
            pages.get(self.path, {"error": "no such page"}), 200 if self.path in pages else 404
        )

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if DO == "sick" or self.path != "/generate":
            self.answer(
                {"error": "Request failed during generation", "error_type": "generation"}, 424
            )
        else:
            self.answer({"generated_text": " Paris"})


def main() -> None:
    if "TRIVIAL_DEAF" in os.environ:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say("Args {")
    say(f"Starting check and download process for {MODEL}")
    say("Starting shard")
    say("Warming up model", "text_generation_router_v3")
    say("KV-cache blocks: 5000, size: 128")
    for number in (1, 2, 3):
        say(
            f"[Warmup][Prompt][{number}/3] batch_size:1 seq_len:{128 * number} bypass:False "
            "free_mem:9 GB"
        )
        if DO == "die" and number == 2:
            say("Shard complete standard error output:\nRuntimeError: Graph compile failed.")
            sys.exit("Error: ShardFailed")
        time.sleep(0.02)
    say("Prefill warmup successful.\n")
    say("[Warmup][Decode][1/1] batch_size:1 num_blocks:128 bypass:False free_mem:9 GB")
    say("Decode warmup successful.\n")
    say("warmup hpu graph time 7s warmup shape count 4")
    say("Setting max batch total tokens to 640000", "text_generation_router_v3")
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["TRIVIAL_PORT"])), Handler)
    say("Connected", "text_generation_router::server")
    server.serve_forever()


if __name__ == "__main__":
    main()
