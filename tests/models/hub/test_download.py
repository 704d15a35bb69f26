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
from gaudi_launch.models.folder_lock import NAME as LOCK
from gaudi_launch.models.hub import download
from gaudi_launch.models.hub.download import (
    Listing,
    Pulled,
    PullProgress,
    find,
    forget,
    list_files,
    pull,
)
from gaudi_launch.models.hub.file_choice import (
    PARTS,
    RECORD,
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


LISTED = {
    "revision": "c0ffee",
    "files": [
        {"path": "config.json", "size": 2, "digest": "sha256:1"},
        {"path": "deep/m.safetensors", "size": 5, "digest": ""},
    ],
}


def test_the_files_of_a_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    child = use(monkeypatch, lambda request: [{"hashing": "x"}, LISTED])
    assert list_files("me/m", "hf") == LISTING
    request = {"do": "list", "source": "hf", "repo": "me/m", "revision": "", "repo_type": "model"}
    assert child.asked == [(request, 120.0)]
    found = list_files("me/m", "modelscope", "v1", "dataset", 5.0)
    assert found == replace(LISTING, source="modelscope")
    other = {**request, "source": "modelscope", "revision": "v1", "repo_type": "dataset"}
    assert child.asked[1] == (other, 5.0)


TOKEN = {"token": "HF_TOKEN", "login": "hf auth login"}
HF = {"repo": "me/m", "source": "hf", "other": "modelscope", "revision": "-", **TOKEN}


@pytest.mark.parametrize(
    ("answers", "id", "code", "why"),
    [
        ([], "pull.offline", ExitCode.FAILED, "no answer"),
        ([{"error": "no_repo", "detail": " why\nmore"}], "pull.no_repo", ExitCode.MODEL, "why"),
        ([{"error": "no_revision"}], "pull.no_revision", ExitCode.MODEL, ""),
        ([{"error": "gated", "detail": "x" * 400}], "pull.gated", ExitCode.MODEL, "x" * 300),
        ([{"error": "changed", "detail": "f"}], "pull.changed", ExitCode.MODEL, "f"),
        ([{"error": "offline_mode"}], "pull.offline_mode", ExitCode.FAILED, ""),
        ([{"error": "busy"}], "pull.busy", ExitCode.FAILED, ""),
        ([{"error": "stuck", "detail": "300"}], "pull.stuck", ExitCode.FAILED, "300"),
        ([{"error": "odd", "detail": "y"}], "pull.other", ExitCode.FAILED, "y"),
    ],
)
def test_a_hub_that_does_not_list(
    monkeypatch: pytest.MonkeyPatch,
    answers: list[dict[str, Any]],
    id: str,
    code: ExitCode,
    why: str,
) -> None:
    use(monkeypatch, lambda request: answers)
    assert failed(lambda: list_files("me/m", "hf")) == (id, code, {**HF, "why": why}, None)


def test_the_other_hub_and_the_revision_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, lambda request: [{"error": "gated"}])
    values = {
        "repo": "me/m", "source": "modelscope", "other": "hf", "revision": "v1", "why": "",
        "token": "MODELSCOPE_API_TOKEN", "login": "modelscope login",
    }  # fmt: skip
    assert failed(lambda: list_files("me/m", "modelscope", "v1")) == (
        "pull.gated", ExitCode.MODEL, values, None,
    )  # fmt: skip
    use(monkeypatch, lambda request: [{"error": "disk"}])
    full = ("pull.disk_full", ExitCode.FAILED, {"repo": "me/m"}, None)
    assert failed(lambda: list_files("me/m", "hf")) == full


def test_names_that_lead_outside_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [{"path": path, "size": 1, "digest": ""} for path in ("a", "../x", "/y")]
    use(monkeypatch, lambda request: [{"revision": "r", "files": files}])
    values = {"repo": "me/m", "name": "'../x'"}
    unsafe = ("pull.unsafe", ExitCode.MODEL, values, None)
    assert failed(lambda: list_files("me/m", "hf")) == unsafe


def test_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    child = use(monkeypatch, lambda request: [LISTED])
    monkeypatch.setenv("HF_ENDPOINT", "hub.example")
    values = {"found": "hub.example"}
    wrong = ("pull.endpoint", ExitCode.USAGE, values, None)
    assert failed(lambda: list_files("me/m", "hf")) == wrong
    assert child.asked == []
    # ModelScope has another address
    list_files("me/m", "modelscope")
    for address in ("https://hub.example/x", "http://h"):
        monkeypatch.setenv("HF_ENDPOINT", address)
        list_files("me/m", "hf")
    assert len(child.asked) == 3


def by_hub(hf: list[dict[str, Any]], modelscope: list[dict[str, Any]]) -> Answers:
    return lambda request: hf if request["source"] == "hf" else modelscope


def test_the_hub_that_has_a_model_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    child = use(monkeypatch, by_hub([{"error": "gated"}], [LISTED]))
    assert find("me/m", "v1", "dataset") == replace(LISTING, source="modelscope")
    assert {seconds for _, seconds in child.asked} == {20.0}
    asked = [(each["source"], each["revision"], each["repo_type"]) for each, _ in child.asked]
    assert sorted(asked) == [("hf", "v1", "dataset"), ("modelscope", "v1", "dataset")]
    use(monkeypatch, by_hub([LISTED], [{"error": "no_repo"}]))
    assert find("me/m") == LISTING


@pytest.mark.parametrize(
    ("hf", "modelscope", "id", "source"),
    [
        ("no_repo", "gated", "pull.gated", "modelscope"),
        ("no_repo", "no_revision", "pull.no_revision", "modelscope"),
        ("busy", "no_repo", "pull.no_repo", "modelscope"),
        ("offline_mode", "busy", "pull.busy", "modelscope"),
        ("offline", "offline_mode", "pull.offline_mode", "modelscope"),
        ("gated", "offline", "pull.gated", "hf"),
    ],
)
def test_the_error_that_says_most_is_raised(
    monkeypatch: pytest.MonkeyPatch, hf: str, modelscope: str, id: str, source: str
) -> None:
    use(monkeypatch, by_hub([{"error": hf}], [{"error": modelscope}]))
    found = failed(lambda: find("me/m"))
    assert (found[0], found[2]["source"]) == (id, source)


def test_hubs_that_never_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    event = SimpleNamespace(wait=waited.append, set=lambda: None)
    monkeypatch.setattr(download, "threading", SimpleNamespace(Event=lambda: event))
    monkeypatch.setattr(download, "in_background", lambda work: None)
    values = {**HF, "revision": "v1", "why": "-"}
    assert failed(lambda: find("me/m", "v1")) == ("pull.offline", ExitCode.FAILED, values, None)
    assert waited == [30.0]


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


def recorded(folder: Path, *files: RemoteFile, whole: bool = True) -> Fetched:
    known = {
        file.path: (file.size, file.digest, (folder / file.path).stat().st_mtime_ns)
        for file in files
    }
    return Fetched("me/m", "hf", "c0ffee", whole, known)


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")
                  if path.is_file())  # fmt: skip


def test_files_are_brought_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "new" / "m"
    child = use(monkeypatch, transfer)
    told: list[PullProgress] = []
    found = pull(LISTING, folder, report=told.append)
    assert found == Pulled(folder, LISTING, (SMALL, LARGE), 2)
    request = {
        "do": "fetch", "source": "hf", "repo": "me/m", "revision": "c0ffee", "repo_type": "model",
        "target": str(folder),
        "files": [
            {"path": "config.json", "size": 2, "digest": "sha256:1"},
            {"path": "deep/m.safetensors", "size": 5, "digest": ""},
        ],
    }  # fmt: skip
    assert child.asked == [(request, None)]
    assert read_record(folder) == recorded(folder, SMALL, LARGE)
    assert names(folder) == [RECORD, LOCK, "config.json", "deep/m.safetensors"]
    assert told == [
        PullProgress(0, 7, 0, 2, "config.json", 0, 2),
        PullProgress(2, 7, 1, 2, "deep/m.safetensors", 0, 5),
        PullProgress(7, 7, 2, 2, "", 0, 0),
        PullProgress(7, 7, 2, 2, "", 0, 0),
    ]
    # what is verified is not asked for again
    assert pull(LISTING, folder) == Pulled(folder, LISTING, (SMALL, LARGE), 0, (), 2)
    assert len(child.asked) == 1
    # but for what was changed since
    os.utime(folder / "config.json", ns=(5, 5))
    changed = pull(LISTING, folder)
    assert (changed.fetched, changed.unread) == (1, 1)
    assert [each["path"] for each in child.asked[1][0]["files"]] == ["config.json"]


def test_what_another_tool_brought_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, lambda request: transfer(request, in_place=True))
    assert pull(LISTING, tmp_path).fetched == 0
    assert read_record(tmp_path) == recorded(tmp_path, SMALL, LARGE)


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


def test_a_hub_that_is_busy_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: list[float]
) -> None:
    def reply(request: dict[str, Any]) -> list[dict[str, Any]]:
        if len(child.asked) == 1:
            first = {**request, "files": request["files"][:1]}
            return [*transfer(first), {"error": "busy"}]
        return transfer(request)

    child = use(monkeypatch, reply)
    assert pull(LISTING, tmp_path).fetched == 2
    assert quiet == [5.0]
    left = [[each["path"] for each in asked["files"]] for asked, _ in child.asked]
    assert left == [["config.json", "deep/m.safetensors"], ["deep/m.safetensors"]]


def test_a_hub_that_stays_busy_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: list[float]
) -> None:
    child = use(monkeypatch, lambda request: [{"error": "busy", "detail": "why"}])
    values = {**HF, "revision": "c0ffee", "why": "why"}
    busy = ("pull.busy", ExitCode.FAILED, values, None)
    assert failed(lambda: pull(LISTING, tmp_path)) == busy
    assert (quiet, len(child.asked)) == ([5.0, 15.0, 45.0], 4)


def test_what_was_brought_before_an_error_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: list[float]
) -> None:
    def reply(request: dict[str, Any]) -> list[dict[str, Any]]:
        return [*transfer({**request, "files": request["files"][:1]}), {"done": "unknown"}]

    use(monkeypatch, reply)
    (tmp_path / PARTS).mkdir()
    values = {**HF, "revision": "c0ffee", "why": ""}
    other = ("pull.other", ExitCode.FAILED, values, None)
    assert failed(lambda: pull(LISTING, tmp_path)) == other
    assert quiet == []
    assert read_record(tmp_path) == recorded(tmp_path, SMALL, whole=False)
    assert (tmp_path / PARTS).is_dir()
    use(monkeypatch, lambda request: [])
    assert failed(lambda: pull(LISTING, tmp_path))[2]["why"] == "-"


def test_another_revision_takes_the_place_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, transfer)
    pull(LISTING, tmp_path)
    other = Listing("modelscope", "me/n", "v2", (replace(SMALL, digest="sha256:2"), LARGE))
    pull(other, tmp_path)
    found = read_record(tmp_path)
    assert found is not None
    assert (found.source, found.repo, found.revision) == ("modelscope", "me/n", "v2")
    assert found.files["config.json"][1] == "sha256:2"


def test_the_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, transfer)
    large = RemoteFile("m.safetensors", 3 << 30)
    partly = RemoteFile("n.safetensors", 10)
    there = RemoteFile("o.safetensors", 4)
    listing = replace(LISTING, files=(large, partly, there))
    (tmp_path / PARTS).mkdir()
    (tmp_path / PARTS / "n.safetensors.part").write_bytes(b"1234567")
    (tmp_path / "n.safetensors").write_bytes(b"123")
    (tmp_path / "o.safetensors").write_bytes(b"1234")
    needed = (4 << 30) + 3
    usage = SimpleNamespace(free=needed - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    values = {"path": str(tmp_path), "needed": 4.0, "free": 4.0}
    full = ("pull.disk", ExitCode.MACHINE, values, None)
    assert failed(lambda: pull(listing, tmp_path)) == full
    assert read_record(tmp_path) is None
    usage.free = needed
    files = replace(listing, files=(partly,))
    assert pull(files, tmp_path).fetched == 1


@pytest.mark.parametrize(
    "name", ["x.part", "x.incomplete", "._____temp/x", "x"]
)  # fmt: skip
def test_the_bytes_of_a_file_under_way(tmp_path: Path, name: str) -> None:
    path = tmp_path / PARTS / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"1234")
    assert (download._partial(tmp_path, "x"), download._partial(tmp_path, "y")) == (4, 0)


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


def test_a_transfer_without_a_byte_is_ended(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    part = tmp_path / PARTS / "deep" / "x.part"
    part.parent.mkdir(parents=True)
    pause = talk.pause

    def grow(seconds: float) -> None:
        pause(seconds)
        if talk.turns <= 50:
            part.write_bytes(b"x" * talk.turns)

    talk.pause = grow  # type: ignore[method-assign]
    found = talk(silent(monkeypatch), {"target": str(tmp_path)})
    assert found == [{"error": "stuck", "detail": "300"}]
    assert talk.turns == 50 + 301


def test_a_child_that_ended_before_its_request(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process()

    def refuse(_: str) -> int:
        raise BrokenPipeError

    process.stdin.write = refuse  # type: ignore[method-assign]
    assert talk(process, {}) == []


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


def test_the_end_of_a_child_may_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise ProcessLookupError

    monkeypatch.setattr(os, "killpg", gone)
    download._signal(SimpleNamespace(pid=77), signal.SIGTERM)  # type: ignore[arg-type]
