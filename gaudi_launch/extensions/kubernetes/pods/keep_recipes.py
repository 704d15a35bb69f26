"""Copy compiled graphs between a network volume and the pod's disk.

Runs in the engine's image.

    keep_recipes.py bring FROM TO        before the engine starts: stored graphs, to the local disk
    keep_recipes.py keep FROM TO URL     while the engine runs, once URL answers 200: new graphs, to
    the volume

The engine itself never works on the volume: it needs file locks that network file systems do not
guarantee. A file appears atomically, so replicas that write simultaneously do no harm.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

PART = ".part"
SECONDS_BETWEEN = 300.0
# the engine is in this pod, the proxy of the environment is for addresses outside of it
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def copy_new(source: Path, target: Path) -> int:
    """Copy what the target lacks or has in another size; return the number of files.

    Raises OSError when the disk is full.
    """
    copied = 0
    for folder, _, names in os.walk(source):
        for name in names:
            file = Path(folder, name)
            if name.endswith(PART) or file.is_symlink() or not file.is_file():
                continue
            size = file.stat().st_size
            there = target / file.relative_to(source)
            if not size or (there.exists() and there.stat().st_size == size):
                continue
            there.parent.mkdir(parents=True, exist_ok=True)
            part = there.with_name(f".{there.name}.{os.getpid()}.{os.uname().nodename}{PART}")
            try:
                shutil.copyfile(file, part)
                # a file that grew or was removed during the read is copied the next time
                if part.stat().st_size == size:
                    part.replace(there)
                    copied += 1
            except FileNotFoundError:
                continue
            finally:
                if part.exists():
                    part.unlink()
    return copied


def answers(url: str) -> bool:
    """Return True if the engine answers that it is ready."""
    try:
        with _direct.open(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


def keep(source: Path, target: Path, url: str, between: float = SECONDS_BETWEEN) -> None:
    """Copy periodically while the engine is ready, and at the end (SIGTERM)."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    ready = False
    while not stop.wait(between if ready else min(between, 10.0)):
        ready = answers(url)
        if ready:
            report(source, target)
    if ready:
        report(source, target)


def report(source: Path, target: Path) -> None:
    """Copy and print the result.

    A full volume costs the next launch a warm-up, not this one its service.
    """
    try:
        copied = copy_new(source, target)
    except OSError as error:
        print(f"keep_recipes: {error}", file=sys.stderr, flush=True)
    else:
        if copied:
            print(f"keep_recipes: {copied} new files", flush=True)


def main(words: list[str]) -> int:
    if len(words) == 3 and words[0] == "bring":
        report(Path(words[1]), Path(words[2]))
        return 0
    if len(words) == 4 and words[0] == "keep":
        keep(Path(words[1]), Path(words[2]), words[3])
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
