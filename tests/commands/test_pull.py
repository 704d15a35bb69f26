"""pull as a user runs it: what is printed, what the shell gets, wrong input; the transfer
itself: tests/models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gaudi_launch.cli.views.download import DownloadView
from gaudi_launch.core.models.hub.download import PullProgress
from tests.support.local_hub import REVISION, Hub
from tests.support.waiting import GENEROUS

FILES = {"config.json": b"{}", "model.safetensors": bytes(2 << 20), "README.md": b"# no"}


class User:
    def __init__(self, home: Path, hub: Hub) -> None:
        keep = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("HF_", "LC_", "LANG")) and "proxy" not in k
        }
        self.environment = {
            **keep,
            **hub.environment(),
            "HF_HOME": str(home / "hf"),
            "MODELSCOPE_CACHE": str(home / "ms"),
            "XDG_DATA_HOME": str(home / "data"),
        }

    def run(self, *words: str) -> tuple[int, str, str]:
        argv = [sys.executable, "-m", "gaudi_launch", *words]
        done = subprocess.run(
            argv,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=GENEROUS,
            check=False,
        )
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("source", ["hf", "modelscope"])
def test_json_and_text(source: str, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "gaudi-launch" / "models" / "me" / "small"
    # what a killed client left
    (folder / ".cache").mkdir(parents=True)
    (folder / ".cache/a.incomplete").touch()
    with Hub(FILES) as hub:
        user = User(tmp_path, hub)
        code, out, err = user.run("pull", "me/small", "--from", source, "--json")
        assert code == 0, err
        revision = REVISION if source == "hf" else "master"
        assert json.loads(out) == {
            "schema": 1,
            "repo": "me/small",
            "source": source,
            "revision": revision,
            "folder": str(folder),
            "files": 2,
            "bytes": 2 + (2 << 20),
            "fetched": 2,
            "unread": 0,
        }
        assert "Downloading me/small from" in err
        assert "Removed 1 partial file of an interrupted download." in err
        code, out, _ = user.run("pull", "me/small", "--from", source, "--lang", "zh")
        kept = "其中 2 个的大小和时间与校验时相同，没有重新读取（--verify 会读取）。"
        assert (code, out) == (0, f"2 个文件，2.0 MiB，已校验：{folder}\n{kept}\n")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("me",), 2, "OWNER/NAME"),
        (("../../etc",), 2, "OWNER/NAME"),
        (("me/small", "--from", "ftp"), 2, "modelscope"),
        (("me/small", "--repo-type", "space"), 2, "dataset"),
        (("me/none", "--from", "hf"), 5, "no model me/none"),
        (("me/small", "--from", "hf", "--revision", "v9"), 5, "no revision v9"),
        (("me/small", "--from", "hf", "--to", "/proc/none"), 1, "/proc/none"),
    ],
)
def test_what_cannot_be(words: tuple[str, ...], code: int, says: str, tmp_path: Path) -> None:
    with Hub(FILES) as hub:
        found, out, err = User(tmp_path, hub).run("pull", *words)
    assert (found, out) == (code, "")
    assert says in err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("command", ["pull", "inspect"])
def test_offline_is_one_sentence(command: str, tmp_path: Path) -> None:
    with Hub(FILES) as hub:
        user = User(tmp_path, hub)
    user.environment |= {"HF_ENDPOINT": "http://127.0.0.1:9"}
    more = ("--from", "hf") if command == "pull" else ()
    code, out, err = user.run(command, "me/small", *more)
    assert (code, out) == (1 if command == "pull" else 5, "")
    assert "(Connection refused)" in err
    assert not any(word in err for word in ("HTTPConnectionPool", "urllib3", "Errno", "object at"))
    assert len(err.strip().splitlines()) == 1


def test_lines_in_a_pipe_say_speed_and_time_left() -> None:
    shown = DownloadView()
    lines = [
        shown.line(PullProgress(done << 20, 100 << 20, 0, 1), now)
        for done, now in ((10, 0.0), (30, 10.0), (30, 20.0))
    ]
    assert lines == [
        "10.0 MiB / 100.0 MiB  10%",
        "30.0 MiB / 100.0 MiB  30%  2.0 MiB/s  0:00:35",
        "30.0 MiB / 100.0 MiB  30%  1.0 MiB/s  0:01:10",
    ]
