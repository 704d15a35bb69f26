"""One actor for each HPU of a placement group, as HabanaAI/vllm-fork's executor makes them
(vllm/executor/ray_utils.py, ray_distributed_executor.py), behind the routes that the launcher
asks."""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=0, resources={"HPU": 1})
class Worker:
    """What one rank of an engine would see."""

    def look(self) -> dict[str, Any]:
        names = (
            "HABANA_VISIBLE_MODULES",
            "VLLM_HOST_IP",
            "GLOO_SOCKET_IFNAME",
            "HCCL_SOCKET_IFNAME",
            "VLLM_API_KEY",
        )
        return {
            "ip": ray.util.get_node_ip_address(),
            **{name: os.environ.get(name) for name in names},
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--model")
    parser.add_argument("--tensor-parallel-size", type=int)
    parser.add_argument("--distributed_executor_backend")
    parser.add_argument("--wait-for-ranks", type=float, default=60)
    parser.add_argument("--swap-space", choices=["4"])
    asked, _ = parser.parse_known_args()
    assert asked.distributed_executor_backend == "ray"
    ray.init(
        address=os.environ["RAY_ADDRESS"],
        _node_ip_address=os.environ["VLLM_HOST_IP"],
        log_to_driver=False,
    )
    group = placement_group([{"HPU": 1}] * asked.tensor_parallel_size, strategy="PACK")
    ray.get(group.ready(), timeout=asked.wait_for_ranks)
    strategy = PlacementGroupSchedulingStrategy(placement_group=group)
    kind: Any = Worker
    workers = [
        kind.options(scheduling_strategy=strategy).remote()
        for _ in range(asked.tensor_parallel_size)
    ]
    seen = ray.get([worker.look.remote() for worker in workers], timeout=asked.wait_for_ranks)
    print("Loading weights on cpu", flush=True)

    def watch() -> None:
        while True:
            time.sleep(1)
            try:
                ray.get([worker.look.remote() for worker in workers], timeout=asked.wait_for_ranks)
            except Exception:
                # an engine ends when a rank is lost
                traceback.print_exc()
                os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    routes = {
        "/health": {},
        "/v1/models": {"data": [{"id": asked.model}]},
        "/placement": {"workers": seen, "has_key": bool(os.environ.get("VLLM_API_KEY"))},
        "/v1/completions": {"choices": [{"text": "1"}]},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = routes.get(self.path)
            body = json.dumps(answer).encode()
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.do_GET()

        def log_message(self, format: str, *_: Any) -> None:
            return

    server = ThreadingHTTPServer((asked.host, asked.port), Handler)
    print("Application startup complete.", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
