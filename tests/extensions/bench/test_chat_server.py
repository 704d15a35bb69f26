"""``gaudi-launch chat`` in a real terminal and from a pipe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.support.cli import output
from tests.support.service_record import service
from tests.support.stand_in_server import serving
from tests.support.waiting import GENEROUS

COMMAND = [sys.executable, "-m", "gaudi_launch", "chat"]


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


@pytest.mark.parametrize("form", ["old-tgi", "base"])
def test_servers_without_chat_are_talked_to_as_well(form: str) -> None:
    with serving(form=form, pieces=2) as (url, manner):
        done = pipe(url, "hello")
    assert (done.returncode, done.stdout) == (0, "Paris w1\n")
    asked: dict[str, Any] = manner.questions[-1]
    assert asked.get("max_tokens", asked.get("parameters", {}).get("max_new_tokens")) == 256


@pytest.mark.parametrize("words", [["run", "m"], ["chat", "demo"], ["chat"]])
def test_a_question_as_argument_is_answered_by_the_service_of_a_model(
    words: list[str], plain_english: None, capsys: pytest.CaptureFixture[str]
) -> None:
    hint = "stop it: gaudi-launch stop demo\n" if words[0] == "run" else ""
    with serving(pieces=2) as (url, manner), service("demo", url):
        assert output(capsys, *words, "法国的首都", "hello") == (0, "Paris w1\n", hint)
    assert manner.questions[-1]["messages"][-1]["content"] == "法国的首都 hello"


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
