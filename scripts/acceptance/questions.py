"""Answer twenty questions of a first day at 80 x 24, in both languages.

`questions.py [--short] [--lang en|zh]`

The machine is a Gaudi2 server in a folder; the service is the simulated engine, which needs `setup
cpu` and about three minutes a language. `--short` leaves out what a service or a search answers.

Each row is a question, its command, the seconds to its answer, the line of the answer and the lines
of the screen. The exit status is 0 when every screen fits and every answer is where it belongs: in
the first two lines where it is a sentence.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.base.paths import data_dir
from gaudi_launch.core.host.simulated import write_tree

LANGUAGES = {"en": "C.UTF-8", "zh": "zh_CN.UTF-8"}
LINES, COLUMNS = 24, 80
# the command and the prompt take two
MOST = LINES - 2
MODEL = "Qwen/Qwen3-8B"
START = f"serve {MODEL} -n 1 --engine simulated --time-scale 8 --name q --detach"
BENCH = "bench q --requests 8 -i 64 -o 16 --concurrency 4"
LOG = "RuntimeError: synStatus=8 [Device not found] Device acquire failed.\n"
BROKEN, BUSY = "simulated:hls2+bad-tuning", "simulated:hls2+busy=0,1"
SCRIPT = "bash start_gaudi_vllm_server.sh -w /models/Qwen2.5-72B-Instruct -n 4"


@dataclass(frozen=True)
class Question:
    """A question, its command, and a pattern of the answer.

    ``long``: a service or a search, which the short form leaves out. ``within``: the answer is one
    of this many first lines.
    """

    number: int
    what: str
    command: str
    answer: str
    long: bool = False
    within: int = 2


# what is in both languages answers: numbers, commands and addresses
QUESTIONS = (
    Question(1, "Is this server ready?", "doctor", r"^(This server|本机)"),
    Question(
        2,
        "What is wrong, what do I type?",
        f"doctor --machine {BROKEN}",
        r"gaudi-launch doctor --fix",
        within=MOST,
    ),
    Question(
        3, "Which models fit on my cards?", "inspect", r"^\d+ .*8 (Gaudi2 cards|张 Gaudi2 卡)"
    ),
    Question(
        4,
        "Does my engine run this model?",
        f"inspect {MODEL}",
        r"^vllm-gaudi@\S+ ?(runs it|可以?运行)",
    ),
    Question(5, "How many cards does it need?", f"inspect {MODEL}", r"1 Gaudi2 card|1 张 Gaudi2"),
    Question(6, "How fast will it be?", f"estimate {MODEL}", r"[\d,]+ (tokens/s|token/s)"),
    Question(
        7,
        "What do I run for 5 requests/s, 1 s?",
        f"recommend {MODEL} --rate 5/s --ttft 1s",
        rf"gaudi-launch serve {MODEL}",
        long=True,
    ),
    Question(8, "Start it in the background.", START, r"http://127\.0\.0\.1:\d+", long=True),
    Question(9, "Is it up, how long until it is?", "ps", r"1 ready|1 个已就绪", long=True),
    Question(
        10,
        "Where is it, how do I ask it?",
        "chat q --max-tokens 8 Hello",
        r"^(?!gaudi-launch:)\S",
        long=True,
    ),
    Question(11, "Why did it fail?", "why failed.log", r"No free or visible card|没有空闲"),
    Question(12, "Who uses which card?", f"devices --machine {BUSY}", r"^\S.*6"),
    Question(13, "How warm, how busy are the cards?", "top --once", r"\d+ ?°?C|temperature|温度"),
    Question(14, "How do I stop everything?", "stop --all", r"q", long=True),
    Question(15, "Will it come back after a reboot?", "help reboot", r"render systemd", within=5),
    Question(
        16, "I have this start script.", f"migrate '{SCRIPT}'", r"gaudi-launch serve", within=3
    ),
    Question(
        17,
        "From the fork to the plugin?",
        f"migrate --engine vllm-gaudi '{SCRIPT}'",
        r"gaudi-launch serve",
    ),
    Question(
        18,
        "Two models, one address, a key?",
        f"stack init {MODEL} Qwen/Qwen3-32B",
        r"keys-file",
        long=True,
        within=MOST,
    ),
    Question(19, "Is it slower than yesterday?", "bench compare a.json b.json", r"%", long=True),
    Question(20, "How do I update or remove this?", "help upgrade", r"help install", within=5),
)


def main(arguments: list[str] | None = None) -> int:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--short", action="store_true")
    reader.add_argument("--lang", choices=LANGUAGES)
    given = reader.parse_args(arguments)
    late = 0
    for language in [given.lang] if given.lang else LANGUAGES:
        with tempfile.TemporaryDirectory(prefix="questions-") as folder:
            for row, good in asked(Path(folder), language, short=given.short):
                late += not good
                print(row, flush=True)
    print(f"answers that are too late: {late}")
    return 1 if late else 0


def asked(home: Path, language: str, *, short: bool) -> Iterator[tuple[str, bool]]:
    """Yield a row for each question, and whether its answer is on the first screen."""
    programs = write_tree("hls2", home / "box")
    (home / "failed.log").write_text(LOG, encoding="utf-8")
    environment = {
        **os.environ,
        "HOME": str(home),
        "LC_ALL": LANGUAGES[language],
        "COLUMNS": str(COLUMNS),
        "GAUDI_LAUNCH_ROOT": str(home / "box"),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "XDG_DATA_HOME": str(data_dir().parent),
    }

    def shown_by(command: str) -> tuple[list[str], float]:
        words = [sys.executable, "-m", "gaudi_launch", *shlex.split(command)]
        began = time.monotonic()
        done = subprocess.run(
            words,
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        seconds = time.monotonic() - began
        # what has no answer on stdout has an error
        return (done.stdout or done.stderr).rstrip("\n").split("\n"), seconds

    # the service ends with the question how it is stopped
    for each in sorted(QUESTIONS, key=lambda each: each.number == 14):
        if short and each.long:
            continue
        if each.number == 19:
            for file in ("a.json", "b.json"):
                shown_by(f"{BENCH} --save {file}")
        lines, seconds = shown_by(each.command)
        at, good = answered(each, lines)
        place = f"line {at}" if at else "no line"
        row = f"{language} {each.number:>2} {seconds:5.1f} s, {place:>7} of {len(lines):>2}"
        yield f"{row}  {each.what:<38} {each.command}", good
        if not good:
            print("\n".join(lines), file=sys.stderr)


def answered(question: Question, lines: Sequence[str]) -> tuple[int, bool]:
    """Return the line of the answer, 0 for none, and True where it comes soon enough.

    The screen must be short enough, too.
    """
    places = [at for at, line in enumerate(lines, start=1) if re.search(question.answer, line)]
    at = places[0] if places else 0
    return at, 0 < at <= question.within and len(lines) <= MOST


if __name__ == "__main__":
    sys.exit(main())
