"""The tutorial as a reader walks it: each block is run, and its output is the one shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import TOP
from tests.support.real_engines import keep_vllm_cache
from tests.support.shown import Step, missing_lines, steps_of
from tests.support.waiting import GENEROUS, unused_port

pytestmark = pytest.mark.e2e

# the page's own; here another one may have it
PORT = "30001"
# the server has no engine yet
FAIL = {"gaudi-launch doctor": 3}


class Reader:
    """A user in an empty home folder, with the server of the page's first command."""

    def __init__(self, folder: Path, language: str, engine: Path, port: int) -> None:
        self.folder, self.port = folder, str(port)
        box, bin = folder / "box", Path(sys.executable).parent
        keep_vllm_cache(folder / "cache")
        self.environment = {
            **os.environ,
            "GAUDI_LAUNCH_ROOT": str(box),
            "GAUDI_LAUNCH_LANG": language,
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PATH": f"{box / 'bin'}:{bin}:{engine.parent}:{os.environ['PATH']}",
            "COLUMNS": "80",
            "NO_PROXY": "127.0.0.1",
        }
        self.engine = engine

    def run(self, step: Step) -> tuple[int, str]:
        """Run a block; return its exit code and what it printed."""
        code = step.code
        if "--detach" in code:
            code = code.rstrip() + f" --port {self.port}\n"
        code = re.sub(rf"\b{PORT}\b", self.port, code)
        words = ["sh", "-ec", code]
        if step.kind == "python":
            words = [str(self.engine), "-c", code]
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=4 * GENEROUS,
            check=False,
        )
        return done.returncode, done.stdout.replace(str(self.folder), "/home/me")


@pytest.fixture
def reader(
    request: pytest.FixtureRequest, real_engine_turn: None, engine: Path, tmp_path: Path
) -> Iterator[Reader]:
    made = Reader(tmp_path, request.param, engine, unused_port())
    yield made
    made.run(Step("sh", "gaudi-launch stop --all --drain 0"))


@pytest.mark.parametrize(
    ("reader", "name"),
    [("en", "tutorial.md"), ("zh", "tutorial_zh.md")],
    indirect=["reader"],
)
def test_a_reader_gets_what_the_tutorial_shows(reader: Reader, name: str) -> None:
    steps = steps_of((TOP / "docs" / name).read_text(encoding="utf-8"))
    assert {step.kind for step in steps} == {"bash", "sh", "python"}
    for step in steps:
        code, output = reader.run(step)
        expected = next((code for part, code in FAIL.items() if part in step.code), 0)
        assert (code, [*missing_lines(step.shown, output)]) == (expected, []), output
