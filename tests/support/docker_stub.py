#!/usr/bin/env python3
"""A stand-in for the ``docker`` client, for tests without docker.

It uses the daemon of `docker_daemon`. As the real client it is not the container's parent: killed,
it leaves the container running; a signal is forwarded (``--sig-proxy``), and it waits for the
container's end. STUB_DOCKER names the daemon's socket; without a daemon there it fails as docker
does.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import sys
import threading


def main() -> int:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(os.environ["STUB_DOCKER"])
    except OSError:
        print(
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", file=sys.stderr
        )
        return 1
    # a handler may interrupt itself: the kernel sends the signal of a parent's end once for each
    # of its threads, so that one which takes a lock would wait for itself
    words: queue.SimpleQueue[dict[str, object]] = queue.SimpleQueue()

    def send() -> None:
        while True:
            with contextlib.suppress(OSError):
                connection.sendall(json.dumps(words.get()).encode() + b"\n")

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: words.put({"signal": number}))
    words.put({"argv": sys.argv[1:], "environment": dict(os.environ)})
    threading.Thread(target=send, daemon=True).start()
    with connection.makefile("r", encoding="utf-8") as answers:
        for line in answers:
            answer = json.loads(line)
            print(answer.get("out", ""), end="", flush=True)
            print(answer.get("err", ""), end="", flush=True, file=sys.stderr)
            if "status" in answer:
                return int(answer["status"])
    return 1


if __name__ == "__main__":
    sys.exit(main())
