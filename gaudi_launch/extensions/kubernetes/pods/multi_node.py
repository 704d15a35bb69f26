"""One engine over several pods, joined by Ray.

Runs in the engine's image, which has the program ray.

    multi_node.py worker ADDRESS CARDS              waits for the head, then is a node of its
    cluster multi_node.py head NODES CARDS ENGINE ARGS...   starts the cluster, waits for all nodes,
    then becomes the engine

ADDRESS is the head's name. VLLM_HOST_IP, the names of the interfaces and RAY_AUTH_TOKEN (which Ray
2.60 and newer require) come from the environment; Ray's processes and through them the engine's
workers inherit it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable

PORT = 6379
SECONDS_BETWEEN = 5.0
# the head's image may come from a registry while workers wait
SECONDS = float(os.environ.get("MULTI_NODE_TIMEOUT", "1800"))
_COUNT = (
    "import ray; ray.init(address='auto', log_to_driver=False, logging_level='ERROR');"
    "print(sum(1 for node in ray.nodes() if node['Alive']))"
)


def resources(cards: str) -> str:
    """Return Ray's resources: Gaudi cards are HPU.

    They are given here, as Ray detects them only where the framework is importable.
    """
    return "--resources=" + json.dumps({"HPU": int(cards)})


def node_address() -> list[str]:
    own = os.environ.get("VLLM_HOST_IP")
    if not own:
        return []
    return [f"--node-ip-address={own}"]


def wait_until(asked: Callable[[], bool], what: str) -> None:
    """Wait until ``asked`` returns True.

    Ends the program with a sentence after the timeout.
    """
    last = time.monotonic() + SECONDS
    while not asked():
        if time.monotonic() > last:
            sys.exit(f"multi_node: {what} within {SECONDS:.0f} s")
        time.sleep(SECONDS_BETWEEN)


def reachable(address: str) -> bool:
    try:
        with socket.create_connection((address, PORT), timeout=5):
            return True
    except OSError:
        return False


def alive() -> int:
    """Return the number of nodes in the cluster; 0 while it does not answer."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _COUNT], capture_output=True, text=True, timeout=120, check=False
        )
        return int(done.stdout.split()[-1])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        return 0


def worker(address: str, cards: str) -> None:
    wait_until(lambda: reachable(address), f"{address}:{PORT} did not answer")
    words = ["ray", "start", "--block", f"--address={address}:{PORT}", "--disable-usage-stats"]
    os.execvp(words[0], [*words, *node_address(), resources(cards)])


def head(nodes: str, cards: str, engine: list[str]) -> None:
    words = [
        "ray",
        "start",
        "--head",
        f"--port={PORT}",
        "--include-dashboard=false",
        "--disable-usage-stats",
    ]
    subprocess.run([*words, *node_address(), resources(cards)], check=True)
    # set only now: ray start itself reads the variable as the cluster to join
    own = os.environ.get("VLLM_HOST_IP") or "127.0.0.1"
    os.environ["RAY_ADDRESS"] = f"[{own}]:{PORT}" if ":" in own else f"{own}:{PORT}"
    wait_until(lambda: alive() >= int(nodes), f"fewer than {nodes} nodes came")
    print(f"multi_node: {nodes} nodes, starting the engine", flush=True)
    os.execvp(engine[0], engine)


def main(words: list[str]) -> None:
    if os.environ.get("RAY_AUTH_TOKEN"):
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    if len(words) == 3 and words[0] == "worker":
        worker(words[1], words[2])
    elif len(words) > 3 and words[0] == "head":
        head(words[1], words[2], words[3:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
