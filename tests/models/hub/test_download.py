"""A pull whose process is a list of answers: requests, records, refusals and their order."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.models.hub import download
from gaudi_launch.models.hub.download import (
    Listing,
    forget,
    list_files,
    pull,
)
from gaudi_launch.models.hub.file_choice import (
    PARTS,
    Fetched,
    RemoteFile,
    read_record,
    write_record,
)
from tests.support.scripted_hosts import failed

Answers = Callable[[dict[str, Any]], list[dict[str, Any]]]
SMALL, LARGE = RemoteFile("config.json", 2, "sha256:1"), RemoteFile("deep/m.safetensors", 5, "")
LISTING = Listing("hf", "me/m", "c0ffee", (SMALL, LARGE))


@dataclass
class Child:
    """Stand in for the process of a pull: answers by a function, and the requests."""

    answers: Answers
    asked: list[tuple[dict[str, Any], float | None]] = field(default_factory=list)

    def ask(
        self, request: dict[str, Any], tell: Callable[[], None], seconds: float | None
    ) -> Iterator[dict[str, Any]]:
        self.asked.append((request, seconds))
        tell()
        for answer in self.answers(request):
            yield answer
            tell()


def use(monkeypatch: pytest.MonkeyPatch, answers: Answers) -> Child:
    child = Child(answers)
    monkeypatch.setattr(download, "_ask", child.ask)
    return child


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the waits for a busy hub, which take no time; forget the user's endpoint."""
    waits: list[float] = []
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    clock = SimpleNamespace(sleep=waits.append, monotonic=lambda: 0.0)
    monkeypatch.setattr(download, "time", clock)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 40))
    return waits


def test_names_that_lead_outside_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [{"path": path, "size": 1, "digest": ""} for path in ("a", "../x", "/y")]
    use(monkeypatch, lambda request: [{"revision": "r", "files": files}])
    values = {"repo": "me/m", "name": "'../x'"}
    unsafe = ("pull.unsafe", ExitCode.MODEL, values, None)
    assert failed(lambda: list_files("me/m", "hf")) == unsafe


def transfer(request: dict[str, Any], *, in_place: bool = False) -> list[dict[str, Any]]:
    """Write every file of a request; return the answers of a process that did so."""
    answers = []
    for entry in request["files"]:
        path = Path(request["target"], entry["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * entry["size"])
        answer = {"done": entry["path"], "mtime": path.stat().st_mtime_ns}
        answers.append({**answer, "in_place": True} if in_place else answer)
    return answers


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")
                  if path.is_file())  # fmt: skip


def test_only_what_is_chosen_is_brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = use(monkeypatch, transfer)
    code, page = RemoteFile("a.py", 1), RemoteFile("README.md", 1)
    listing = replace(LISTING, files=(page, code, SMALL))
    assert pull(listing, tmp_path / "a").files == (SMALL,)
    assert pull(listing, tmp_path / "b", code=True).files == (code, SMALL)
    every = pull(listing, tmp_path / "c", everything=True, repo_type="dataset")
    assert every.files == (page, code, SMALL)
    assert child.asked[2][0]["repo_type"] == "dataset"
    none = ("pull.nothing", ExitCode.MODEL, {"repo": "me/m"}, None)
    assert failed(lambda: pull(replace(LISTING, files=(page,)), tmp_path / "d")) == none
    assert not (tmp_path / "d").exists()


def test_leftovers_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, lambda request: [{"error": "gated"}])
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("x")
    folder = tmp_path / "m"
    parts = folder / PARTS
    (parts / "deep").mkdir(parents=True)
    (folder / ".cache").mkdir()
    kept = ["deep/m.safetensors.part", "config.json.part", "resumed"]
    for name in (*kept, "old.part", "deep/old.part"):
        (parts / name).write_text("x")
    (parts / "link").symlink_to(outside / "x")
    for name in ("x.lock", "x.incomplete", "x.json"):
        (folder / ".cache" / name).write_text("x")
    removed = ["link", "old.part", "old.part", "x.incomplete", "x.lock"]
    assert sorted(download._clear(folder, (SMALL, LARGE))) == removed
    assert names(parts) == sorted(kept)
    assert names(folder / ".cache") == ["x.json"]
    shutil.rmtree(parts)
    parts.symlink_to(outside)
    assert download._clear(folder, (SMALL,)) == (PARTS,)
    assert names(outside) == ["x"]


def test_files_are_verified_again(tmp_path: Path) -> None:
    assert forget(LISTING, tmp_path / "none") == 0
    files = {"config.json": (2, "sha256:1", 5), "deep/m.safetensors": (5, "", 5), "old": (1, "", 5)}
    write_record(tmp_path, Fetched("me/m", "hf", "r", True, files))
    assert forget(LISTING, tmp_path) == 1
    del files["config.json"]
    assert read_record(tmp_path) == Fetched("me/m", "hf", "r", False, files)


class Process:
    """Stand in for a child process: its output, and what it gets."""

    def __init__(self, *lines: str) -> None:
        self.stdin, self.stdout = io.StringIO(), io.StringIO("".join(lines))
        self.waited = threading.Event()
        self.pid, self.returncode = 77, 0

    def wait(self, seconds: float | None = None) -> int:
        self.waited.set()
        return 0


class Talk:
    """One conversation with a child, at a second per turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        self.turns = 0
        self.told = 0
        self.monkeypatch = monkeypatch

    def __call__(
        self, process: Process, request: dict[str, Any], seconds: float | None = None
    ) -> list[Any]:
        @contextmanager
        def child() -> Iterator[Process]:
            yield process

        monkeypatch = self.monkeypatch
        monkeypatch.setattr(download, "_child", child)
        clock = SimpleNamespace(monotonic=lambda: self.seconds)
        monkeypatch.setattr(download, "time", clock)
        monkeypatch.setattr(download, "pause", self.pause)
        return list(download._ask(request, self.tell, seconds))

    def pause(self, seconds: float) -> None:
        assert seconds == 0.2
        self.seconds += 1.0
        self.turns += 1

    def tell(self) -> None:
        self.told += 1


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> Talk:
    return Talk(monkeypatch)


def test_answers_are_lines_of_json(talk: Talk) -> None:
    process = Process('{"a": 1}\n', "noise\n", "[1]\n", '{"b": 2}\n')
    assert talk(process, {"do": "list"}) == [{"a": 1}, {"b": 2}]
    assert process.stdin.getvalue() == '{"do": "list"}\n'
    assert process.waited.is_set()


def silent(monkeypatch: pytest.MonkeyPatch) -> Process:
    monkeypatch.setattr(download, "_read", lambda process, lines: None)
    return Process()


def test_a_hub_that_gives_no_answer(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    found = talk(silent(monkeypatch), {}, 20.0)
    assert found == [{"error": "offline", "detail": "no answer within 20 s"}]
    assert (talk.turns, talk.told) == (21, 22)


class Ending:
    """Stand in for a started process that does not end by itself."""

    def __init__(self, deaf: bool, ended: bool = False) -> None:
        self.deaf = deaf
        self.pid, self.returncode = 77, -15
        self.ended = ended
        self.waits: list[float | None] = []
        self.stdin, self.stdout = io.StringIO(), io.StringIO()

    def poll(self) -> int | None:
        return 0 if self.ended else None

    def wait(self, seconds: float | None = None) -> int:
        self.waits.append(seconds)
        if self.deaf and seconds is not None:
            raise subprocess.TimeoutExpired("x", seconds)
        return 0


@pytest.mark.parametrize(
    ("process", "signals", "waits"),
    [
        (Ending(False), [(77, signal.SIGTERM)], [5]),
        (Ending(True), [(77, signal.SIGTERM), (77, signal.SIGKILL)], [5, None]),
        (Ending(False, ended=True), [], []),
    ],
)
def test_the_child_never_outlives_a_pull(
    monkeypatch: pytest.MonkeyPatch,
    process: Ending,
    signals: list[tuple[int, int]],
    waits: list[float | None],
) -> None:
    started: list[tuple[Any, Mapping[str, Any]]] = []
    sent: list[tuple[int, int]] = []

    def start(argv: list[str], **words: Any) -> Ending:
        started.append((argv, words))
        return process

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(os, "killpg", lambda *words: sent.append(words))
    given: list[object] = []
    with pytest.raises(KeyError), download._child() as child:
        given.append(child)
        raise KeyError
    assert given == [process]
    ((argv, words),) = started
    assert argv == [sys.executable, "-m", "gaudi_launch.models.hub.child"]
    environment = words["env"]
    assert environment["PATH"] == os.environ["PATH"]
    assert {name: value for name, value in words.items() if name not in ("env", "preexec_fn")} == {
        "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL,
        "text": True, "start_new_session": True,
    }  # fmt: skip
    assert (sent, process.waits) == (signals, waits)
    assert process.stdin.closed and process.stdout.closed


def test_a_child_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", fail)
    with pytest.raises(OSError, match="allocate"), download._child():
        raise LaunchError("never", ExitCode.FAILED)
