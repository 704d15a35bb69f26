"""Real pulls with the real client libraries from a hub on this machine: whole, cut, lied to,
killed, resumed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections import namedtuple
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.models.folder_lock import NAME as LOCK
from gaudi_launch.core.models.hub import download
from gaudi_launch.core.models.hub import file_choice as hub_files
from gaudi_launch.core.models.hub.file_choice import choose, safe
from gaudi_launch.core.models.hub.local import find_local, folder_for
from gaudi_launch.core.models.hub.record import RECORD, RemoteFile, read_record
from tests.support.local_hub import REVISION, Hub
from tests.support.processes import is_alive
from tests.support.refusals import failing
from tests.support.waiting import GENEROUS, until

WEIGHTS = random.Random(1).randbytes(3_000_000)
FILES = {
    "config.json": b'{"architectures": ["LlamaForCausalLM"]}',
    "tokenizer.json": b"{}",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"pickled",
    "modeling_small.py": b"print('code')",
    "README.md": b"# readme",
    "empty.txt": b"",
}
NEEDED = {"config.json", "tokenizer.json", "model.safetensors", "empty.txt"}
SOURCES = ["hf", "modelscope"]


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HOME", "MODELSCOPE_CACHE", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(download, "_BUSY_WAITS", (0.1, 0.1))


def use(running: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in running.environment().items():
        monkeypatch.setenv(name, value)


def with_free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(free, 0, free))


def pull_command(source: str, folder: Path) -> list[str]:
    """Return the command that pulls the small model from a hub."""
    program = [sys.executable, "-m", "gaudi_launch"]
    return [*program, "pull", "me/small", "--from", source, "--to", str(folder)]


def content(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name not in (RECORD, LOCK) and ".cache" not in p.parts
    }


@pytest.mark.parametrize("source", SOURCES)
def test_a_whole_pull_and_a_second_one_that_asks_nothing(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Hub(FILES) as running:
        use(running, monkeypatch)
        seen: list[download.PullProgress] = []
        done = download.pull(
            download.list_files("me/small", source), tmp_path / "m", report=seen.append
        )
        assert content(tmp_path / "m") == {name: FILES[name] for name in NEEDED}
        assert done.fetched == len(NEEDED)
        assert (seen[-1].done_bytes, seen[-1].done_files) == (seen[-1].total_bytes, len(NEEDED))
        record = read_record(tmp_path / "m")
        assert record is not None and record.whole
        assert record.files["model.safetensors"][1].startswith("sha256:")
        running.asked.clear()
        assert download.pull(download.list_files("me/small", source), tmp_path / "m").fetched == 0
        assert running.asked == []


@pytest.mark.parametrize("source", SOURCES)
def test_the_file_under_way_is_told_with_its_bytes(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the libraries write ten megabytes at a time
    files = {"config.json": b"{}", "model.safetensors": WEIGHTS * 8}
    size = len(files["model.safetensors"])
    half: list[download.PullProgress] = []
    with Hub(files, trouble="stay") as running:
        use(running, monkeypatch)

        def report(told: download.PullProgress) -> None:
            if told.current == "model.safetensors" and 0 < told.current_bytes < size:
                half.append(told)
                running.go.set()

        download.pull(download.list_files("me/small", source), tmp_path / "m", report=report)
    assert half and {p.current_total for p in half} == {size}
    assert all(p.done_bytes == p.current_bytes + 2 for p in half)


@pytest.mark.parametrize("source", SOURCES)
def test_what_another_tool_fetched_is_verified_not_fetched(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.safetensors").write_bytes(WEIGHTS)
    (tmp_path / "m" / "tokenizer.json").write_bytes(b"[]")  # as large, and another file
    with Hub(FILES) as running:
        use(running, monkeypatch)
        # room for what is missing, not for what lies there
        with_free(monkeypatch, (1 << 30) + 2_900_000)
        download.pull(download.list_files("me/small", source), tmp_path / "m")
        assert content(tmp_path / "m") == {name: FILES[name] for name in NEEDED}
        assert {name for name, _ in running.asked} == {"config.json", "tokenizer.json"}


def test_all_and_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = {"me/page": {"README.md": b"# readme"}, "me/unsafe": {**FILES, "../x": b"x"}}
    with Hub(FILES, others=others) as running:
        use(running, monkeypatch)
        listing = download.list_files("me/small", "hf")
        assert listing.revision == REVISION
        download.pull(listing, tmp_path / "code", code=True)
        assert set(content(tmp_path / "code")) == NEEDED | {"modeling_small.py"}
        download.pull(listing, tmp_path / "all", everything=True)
        assert content(tmp_path / "all") == FILES
        with failing("pull.nothing", ExitCode.MODEL):
            download.pull(download.list_files("me/page", "hf"), tmp_path / "none")
        with failing("pull.unsafe", ExitCode.MODEL) as unsafe:
            download.list_files("me/unsafe", "hf")
    assert not (tmp_path / "none").exists()
    assert unsafe.value.text.values == {"repo": "me/unsafe", "name": "'../x'"}


@pytest.mark.parametrize("source", SOURCES)
def test_data_sets_have_routes_of_their_own(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {"data/train-0.parquet": b"rows", "README.md": b"# rows"}
    with Hub(FILES, datasets={"me/rows": rows}) as running:
        use(running, monkeypatch)
        listing = download.list_files("me/rows", source, repo_type="dataset")
        download.pull(listing, tmp_path / "d", everything=True)
        with pytest.raises(LaunchError) as refused:
            download.list_files("me/rows", source)
    assert content(tmp_path / "d") == rows
    assert refused.value.id == "pull.no_repo"


@pytest.mark.parametrize("trouble", ["cut", "busy", "lie_once"])
@pytest.mark.parametrize("source", SOURCES)
def test_trouble_that_passes(
    source: str, trouble: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Hub(FILES, trouble=trouble) as running:
        use(running, monkeypatch)
        download.pull(download.list_files("me/small", source), tmp_path / "m")
        assert content(tmp_path / "m") == {name: FILES[name] for name in NEEDED}


@pytest.mark.parametrize("source", SOURCES)
def test_a_file_that_is_never_what_was_listed(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Hub(FILES, trouble="lie") as running:
        use(running, monkeypatch)
        with pytest.raises(LaunchError) as refused:
            download.pull(download.list_files("me/small", source), tmp_path / "m")
    # ModelScope's own library may find it out before we do
    assert refused.value.id in ("pull.changed", "pull.other")
    assert not (tmp_path / "m" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("repo", "revision", "trouble", "id", "code"),
    [
        ("me/none", "", "", "pull.no_repo", ExitCode.MODEL),
        ("me/small", "v9", "", "pull.no_revision", ExitCode.MODEL),
        ("me/small", "", "gated", "pull.gated", ExitCode.MODEL),
    ],
)
def test_different_sentences(
    repo: str, revision: str, trouble: str, id: str, code: ExitCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Hub(FILES, trouble=trouble) as running:
        use(running, monkeypatch)
        with pytest.raises(LaunchError) as refused:
            download.list_files(repo, "hf", revision)
    assert (refused.value.id, refused.value.exit_code) == (id, code)


def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with failing("pull.offline", ExitCode.FAILED) as refused:
        download.list_files("me/small", "hf", seconds=60)
    assert refused.value.text.values["why"] == "Connection refused"
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with failing("pull.offline", ExitCode.FAILED) as refused:
            download.list_files("me/small", "hf", seconds=1.0)
    assert refused.value.text.values["why"] == "no answer within 1 s"


@pytest.mark.parametrize(
    ("name", "value", "id", "code"),
    [
        ("HF_HUB_OFFLINE", "1", "pull.offline_mode", ExitCode.FAILED),
        ("HF_ENDPOINT", "hf-mirror.com", "pull.endpoint", ExitCode.USAGE),
    ],
)
def test_what_the_environment_forbids_is_no_fault_of_the_network(
    name: str, value: str, id: str, code: ExitCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with failing(id, code):
        download.list_files("me/small", "hf", seconds=60)


def test_auto_takes_the_hub_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with Hub(FILES) as running:
        use(running, monkeypatch)
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        assert download.find("me/small").source == "modelscope"


def test_a_hang_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_STUCK_SECONDS", 3.0)
    with Hub(FILES, trouble="hang") as running:
        use(running, monkeypatch)
        with pytest.raises(LaunchError) as refused:
            download.pull(download.list_files("me/small", "hf"), tmp_path / "m")
        assert refused.value.id == "pull.stuck" and not running.go.is_set()


def test_hashing_is_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_STUCK_SECONDS", 1.5)
    monkeypatch.setattr(download, "_CHILD", "tests.support.hashing_child")
    request: dict[str, Any] = {"do": "fetch", "target": str(tmp_path)}
    answers = list(download._ask(request, lambda: None, None))
    assert [sorted(answer) for answer in answers] == [["at", "hashing", "pid"]] * 6 + [["done"]]
    # one that does not end by SIGTERM, as a stopped one, does not outlive a pull
    interrupted = cast("Generator[dict[str, Any]]", download._ask(request, lambda: None, None))
    pid = next(interrupted)["pid"]
    assert is_alive(pid)
    os.kill(pid, signal.SIGSTOP)
    interrupted.close()
    until(lambda: not is_alive(pid), "its end")


def test_a_long_hash_tells_that_it_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_files, "_TELL_SECONDS", -1.0)
    (tmp_path / "f").write_bytes(bytes(3 << 20))
    heard: list[int] = []
    digest = hub_files.digest_of(tmp_path / "f", "sha256", heard.append)
    assert (heard, digest) == (
        [1 << 20, 2 << 20, 3 << 20],
        hub_files.digest_of(tmp_path / "f", "sha256"),
    )


def test_a_full_disk_in_mid_transfer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "m"
    with Hub(FILES) as running:
        use(running, monkeypatch)
        listing = download.list_files("me/small", "hf")
        with monkeypatch.context() as full:
            full.setattr(download, "_CHILD", "tests.support.full_disk_child")
            with pytest.raises(LaunchError) as refused:
                download.pull(listing, folder)
        assert (refused.value.id, refused.value.exit_code) == ("pull.disk_full", ExitCode.FAILED)
        assert not (folder / "model.safetensors").exists() and (folder / "config.json").is_file()
        download.pull(listing, folder)
    assert content(folder) == {name: FILES[name] for name in NEEDED}


def test_one_pull_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "m"
    command = pull_command("hf", folder)
    # the library writes ten megabytes at a time
    files = {**FILES, "model.safetensors": WEIGHTS * 8}
    with Hub(files, trouble="stay") as running:
        use(running, monkeypatch)
        first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: _bytes_below(folder) >= 1_000_000, "the first megabyte")
        second = subprocess.run(
            command, capture_output=True, text=True, timeout=GENEROUS, check=False
        )
        assert second.returncode == 1 and f"pull, PID {first.pid}" in second.stderr
        running.go.set()
        assert first.wait(GENEROUS) == 0
    assert content(folder) == {name: files[name] for name in NEEDED}


def test_the_end_of_a_child_may_come_first() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True, text=True)
    child.wait()
    download._signal(child, signal.SIGTERM)  # its group is gone: no ProcessLookupError


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("source", SOURCES)
def test_killed_in_the_middle_it_goes_on_where_it_stopped(
    source: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "m"
    command = pull_command(source, folder)
    # the library writes ten megabytes at a time
    files = {**FILES, "model.safetensors": WEIGHTS * 8}
    with Hub(files, trouble="stay") as running:
        use(running, monkeypatch)
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        until(lambda: _bytes_below(folder) >= 1_000_000, "the first megabyte")
        family = psutil.Process(process.pid).children(recursive=True)
        assert family
        process.send_signal(number)
        _, err = process.communicate(timeout=GENEROUS)
        if number == signal.SIGINT:
            assert (process.returncode, "Traceback" in err) == (130, False), err
        until(lambda: not any(is_alive(each.pid) for each in family), "the end of the child")
        assert not (folder / "model.safetensors").exists()
        running.asked.clear()
        running.trouble = ""
        done = subprocess.run(
            [*command, "--json"], capture_output=True, text=True, timeout=GENEROUS, check=False
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["folder"] == str(folder)
        assert content(folder) == {name: files[name] for name in NEEDED}
        ranges = [asked for name, asked in running.asked if name == "model.safetensors"]
        assert ranges and int(ranges[0].removeprefix("bytes=").split("-")[0]) > 0


def _bytes_below(folder: Path) -> int:
    try:
        return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    except OSError:
        return 0


def test_a_copy_without_the_code_is_not_enough_where_code_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = {"AutoConfig": "modeling_small.Config", "AutoTokenizer": ["you/other--tok.T", None]}
    config = json.dumps({"auto_map": code}).encode()
    with Hub({**FILES, "config.json": config}) as running:
        use(running, monkeypatch)
        listing = download.list_files("me/small", "hf")
        download.pull(listing, folder_for("me/small"))
        assert find_local("me/small") == folder_for("me/small")
        assert find_local("me/small", code=True) is None
        running.asked.clear()
        download.pull(listing, folder_for("me/small"), code=True)
        assert [name for name, _ in running.asked] == ["modeling_small.py"]
    assert find_local("me/small", code=True) == folder_for("me/small")


def test_which_files_serving_needs() -> None:
    kept = {"model-00001-of-00002.safetensors", "model.safetensors.index.json", "tokenizer.model"}
    others = {
        *("consolidated.safetensors", "pytorch_model.bin", "pytorch_model.bin.index.json"),
        *("original/params.json", "figures/a.png", "x.gguf"),
    }
    for names, chosen in ((kept | others, kept), ({"a.bin", "a.py"}, {"a.bin"})):
        assert {file.path for file in choose(RemoteFile(name, 1) for name in names)} == chosen


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "", RECORD])
def test_names_that_lead_outside_are_refused(name: str) -> None:
    assert not safe(name)


@pytest.mark.parametrize("source", SOURCES)
def test_verify_finds_and_mends_a_flipped_byte(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Hub(FILES) as running:
        use(running, monkeypatch)
        listing = download.list_files("me/small", source)
        download.pull(listing, tmp_path / "m")
        file = tmp_path / "m" / "model.safetensors"
        status = file.stat()
        flipped = bytearray(WEIGHTS)
        flipped[1000] ^= 1
        file.write_bytes(flipped)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        # size and time are those of the verified file, so a plain pull believes it
        assert download.pull(listing, tmp_path / "m").fetched == 0
        assert file.read_bytes() != WEIGHTS
        running.asked.clear()
        words = ["pull", "me/small", "--from", source, "--to", str(tmp_path / "m"), "--verify"]
        assert run(words) == 0
        assert file.read_bytes() == WEIGHTS
        assert "tokenizer.json" not in {name for name, _ in running.asked}


@pytest.mark.parametrize("planted", ["file", "folder"])
def test_a_planted_link_is_not_written_through(
    planted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "m", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    target = elsewhere / "model.safetensors.part"
    if planted == "file":
        (folder / hub_files.PARTS).mkdir()
        (folder / hub_files.PARTS / "model.safetensors.part").symlink_to(target)
    else:
        (folder / hub_files.PARTS).symlink_to(elsewhere)
    with Hub(FILES) as running:
        use(running, monkeypatch)
        download.pull(download.list_files("me/small", "hf"), folder)
    assert list(elsewhere.iterdir()) == []
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
