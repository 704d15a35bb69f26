"""``gaudi-launch chat`` in a real terminal and from a pipe."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.bench.conversation import clean
from tests.support.places import TOP
from tests.support.stand_in_server import KEY, serving
from tests.support.waiting import GENEROUS, until

COMMAND = [sys.executable, "-m", "gaudi_launch", "chat"]


class Terminal:
    """The command in a terminal of its own; what it writes is read until something is seen."""

    def __init__(self, *words: str) -> None:
        self.seen = ""
        environment = {**os.environ, "TERM": "dumb", "PYTHONPATH": str(TOP)}
        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            os.execve(COMMAND[0], [*COMMAND, *words], environment)

    def until(self, pattern: str, seconds: float = GENEROUS) -> str:
        """Everything up to the end of the pattern, which must come."""
        deadline = time.monotonic() + seconds
        while (found := re.search(pattern, self.seen)) is None:
            ready, _, _ = select.select(
                [self.handle], [], [], max(0.0, deadline - time.monotonic())
            )
            try:
                piece = os.read(self.handle, 4096) if ready else b""
            except OSError:
                piece = b""
            assert piece, f"{pattern!r} did not come: {self.seen!r}"
            self.seen += piece.decode().replace("\r\n", "\n")
        taken, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return taken

    def until_it_reads(self) -> None:
        """Until it sleeps in a terminal whose keys line editing takes one by one."""
        until(self._reads, "the reading of a line")

    def _reads(self) -> bool:
        if termios.tcgetattr(self.handle)[3] & termios.ICANON:
            return False
        # the third field of proc(5) stat, after the name in parentheses
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "S"

    def type(self, words: str) -> None:
        os.write(self.handle, words.encode())

    def end(self) -> int:
        """Its exit code, and the rest of what it wrote."""
        while True:
            try:
                piece = os.read(self.handle, 4096)
            except OSError:
                break
            if not piece:
                break
            self.seen += piece.decode()
        os.close(self.handle)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_talk_with_history_interruption_and_reset() -> None:
    with serving(gap=0.02, pieces=4) as (url, manner):
        talk = Terminal(url, "--system", "be brief", "--max-tokens", "9", "--temperature", "0.5")
        assert "Chat with stand-in" in talk.until("> ")
        talk.type("one\n")
        assert "Paris w1 w2 w3\n" in talk.until("> ")
        # an answer that would take a minute; Ctrl-C ends it, not the talk
        manner.pieces, manner.gap = 600, 0.1
        talk.type("two\n")
        talk.until("w2")
        talk.type("\x03")
        assert "(stopped)" in talk.until("> ")
        manner.pieces, manner.gap = 2, 0.0
        talk.type("three\n")
        talk.until("Paris w1\n[^>]*> ")
        asked = manner.questions[-1]
        assert (asked["max_tokens"], asked["temperature"]) == (9, 0.5)
        said = [(message["role"], message["content"]) for message in asked["messages"]]
        assert said[:4] == [
            ("system", "be brief"),
            ("user", "one"),
            ("assistant", "Paris w1 w2 w3"),
            ("user", "two"),
        ]
        assert (
            said[4][0] == "assistant"
            and said[4][1].startswith("Paris w1 w2")
            and len(said[4][1]) < 400
        )
        assert said[5] == ("user", "three")
        talk.type("/reset\n")
        talk.until("History cleared[^>]*> ")
        talk.type("four\n")
        talk.until("Paris w1\n[^>]*> ")
        assert [m["content"] for m in manner.questions[-1]["messages"]] == ["be brief", "four"]
        # at the prompt Ctrl-C ends nothing either; readline sees one that comes between prompt and
        # reading with the next key only
        talk.until_it_reads()
        talk.type("\x03")
        talk.until("Ctrl-D ends the chat[^>]*> ")
        talk.type("/nonsense\n")
        talk.until("is not a command[^>]*> ")
        talk.type("\x04")
        assert talk.end() == 0
    assert "Traceback" not in talk.seen


def test_an_engine_that_dies_ends_the_answer_not_the_talk() -> None:
    with serving(pieces=2) as (url, manner):
        talk = Terminal(url)
        talk.until("> ")
        manner.status = 500
        talk.type("one\n")
        assert "status 500: the engine is dead" in talk.until("dead[^>]*> ")
        manner.status = 0
        talk.type("two\n")
        talk.until("Paris w1\n[^>]*> ")
        # what was never answered is not told again
        assert [m["content"] for m in manner.questions[-1]["messages"]] == ["two"]
        talk.type("\x04")
        assert talk.end() == 0


def test_thoughts_are_shown_apart_and_not_told_again() -> None:
    with serving(pieces=2, thinks=True) as (url, manner):
        talk = Terminal(url)
        talk.until("> ")
        talk.type("one\n")
        shown = talk.until("w1[^>]*> ")
        assert "\x1b[90mhmm\x1b[0m\n\nParis w1" in shown
        talk.type("two\n")
        talk.until("w1[^>]*> ")
        assert [m["content"] for m in manner.questions[-1]["messages"]] == [
            "one",
            "Paris w1",
            "two",
        ]
        talk.type("\x04")
        assert talk.end() == 0


def pipe(
    url: str, question: str, *words: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, url, *words],
        input=question,
        capture_output=True,
        text=True,
        timeout=GENEROUS,
        env={**os.environ, **environment},
        check=False,
    )


def test_a_pipe_is_one_question() -> None:
    with serving(pieces=3, thinks=True, key=True) as (url, manner):
        done = pipe(url, "first line\nsecond line\n", VLLM_API_KEY=KEY)
        assert (done.returncode, done.stdout, done.stderr) == (0, "Paris w1 w2\n", "")
        assert manner.questions[-1]["messages"] == [
            {"role": "user", "content": "first line\nsecond line"}
        ]
        assert (
            "max_tokens" not in manner.questions[-1] and "temperature" not in manner.questions[-1]
        )
        refused = pipe(url, "a", VLLM_API_KEY="wrong-key")
    assert (
        refused.returncode == 1
        and "VLLM_API_KEY" in refused.stderr
        and "wrong-key" not in refused.stderr
    )


@pytest.mark.parametrize("form", ["old-tgi", "base"])
def test_servers_without_chat_are_talked_to_as_well(form: str) -> None:
    with serving(form=form, pieces=2) as (url, manner):
        done = pipe(url, "hello")
    assert (done.returncode, done.stdout) == (0, "Paris w1\n")
    asked: dict[str, Any] = manner.questions[-1]
    assert asked.get("max_tokens", asked.get("parameters", {}).get("max_new_tokens")) == 256


@pytest.mark.parametrize(
    ("manner", "question", "code", "says"),
    [
        ({}, "", 2, "standard input is empty"),
        ({"status": 500}, "a", 4, "the engine is dead"),
        ({"bad": "cut"}, "a", 4, "was cut off"),
    ],
)
def test_a_pipe_that_fails(manner: dict[str, Any], question: str, code: int, says: str) -> None:
    with serving(**manner) as (url, _):
        done = pipe(url, question)
    assert done.returncode == code and says in done.stderr and "Traceback" not in done.stderr


def test_control_c_in_a_pipe_is_130() -> None:
    with serving(gap=0.2, pieces=300) as (url, _):
        process = subprocess.Popen(
            [*COMMAND, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("hello")
        process.stdin.close()
        assert process.stdout.read(5) == "Paris"
        process.send_signal(signal.SIGINT)
        assert process.wait(GENEROUS) == 130
        process.stdout.close()


def test_a_model_gives_no_orders_to_the_terminal() -> None:
    assert clean("a\x1b[2J\x07b\r\nc\td\x9b1m\u4e2d") == "a[2Jb\nc\td1m\u4e2d"
    with serving(pieces=1, says="\x1b]0;title\x07Paris") as (url, _):
        assert pipe(url, "a").stdout == "]0;titleParis\n"


@pytest.mark.parametrize(
    "mark", ["\ud800", "\udfff", "\u202e", "\u2066", "\x1b", "\x9b"], ids=ascii
)
def test_what_cannot_be_written_or_steers_the_terminal_is_left_out(mark: str) -> None:
    assert clean(f"a{mark}b") == "ab"
    clean(f"a{mark}b").encode()
