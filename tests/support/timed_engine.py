"""A stand-in for an engine's interpreter whose speed depends on its options.

As `trivial_engine`, but it streams: ``--max-num-seqs`` answers at a time, each token after
`GAP` seconds. TIMED_PIDS: a file for its pids.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from tests.support.stand_in_server import serving
from tests.support.trivial_engine import ANSWER, option, say, warm_up

GAP = 0.02


def main() -> None:
    if sys.argv[1:2] == ["-c"]:
        print("gaudi-launch-answer:" + json.dumps(ANSWER))
        return
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    with Path(os.environ["TIMED_PIDS"]).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    say("vLLM API server version 0.8.5+gaudi121", "api_server.py:1042")
    say("# hpu blocks: 16384, # CPU blocks: 0", "executor_base.py:112")
    warm_up()
    port, served = int(option("--port", "8000")), int(option("--max-num-seqs", "32"))
    with serving(
        port=port,
        name=option("--served-model-name", option("--model", "m")),
        at_once=served,
        gap=GAP,
    ):
        say(f"Starting vLLM API server on http://127.0.0.1:{port}", "api_server.py:1089")
        print("INFO:     Application startup complete.", flush=True)
        while True:
            time.sleep(60)


if __name__ == "__main__":
    main()
