"""The programs that run inside pods, run here for real: as processes, against servers and
stand-ins of ray."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.extensions.kubernetes.pods import keep_recipes, multi_node
from tests.support.http_answers import server
from tests.support.waiting import GENEROUS, until, unused_port

PODS = Path(keep_recipes.__file__).parent


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_bring_copies_what_is_kept(tmp_path: Path) -> None:
    kept, local = tmp_path / "kept", tmp_path / "local"
    (kept / "0").mkdir(parents=True)
    (kept / "0/a.recipe").write_text("graph")
    (kept / ".b.recipe.7.node.part").write_text("half")
    (kept / "empty.recipe").write_text("")
    words = [sys.executable, str(PODS / "keep_recipes.py"), "bring", str(kept), str(local)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=GENEROUS, check=True)
    assert tree(local) == {"0/a.recipe": "graph"}
    assert "1 new files" in done.stdout


def test_bring_from_nothing_is_no_failure(tmp_path: Path) -> None:
    """The first start of all: the volume is empty, and the engine must start all the same."""
    words = [
        sys.executable,
        str(PODS / "keep_recipes.py"),
        "bring",
        str(tmp_path / "no"),
        str(tmp_path / "local"),
    ]
    assert subprocess.run(words, capture_output=True, timeout=GENEROUS, check=False).returncode == 0


def test_a_changed_size_is_copied_and_the_rest_left(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "a").write_text("new longer")
    (source / "b").write_text("same")
    target.mkdir()
    (target / "a").write_text("old")
    (target / "b").write_text("SAME")
    assert keep_recipes.copy_new(source, target) == 1
    assert tree(target) == {"a": "new longer", "b": "SAME"}


def test_keep_waits_for_the_engine_and_copies_at_the_end(tmp_path: Path) -> None:
    local, kept = tmp_path / "local", tmp_path / "kept"
    local.mkdir()
    (local / "a").write_text("graph")
    answers = {"/health": (503, b"")}
    with server(answers) as (url, asked):
        code = (
            f"import sys; sys.path.insert(0, {str(PODS)!r}); import keep_recipes as k; from "
            "pathlib import Path;"
        )
        code += f"k.keep(Path({str(local)!r}), Path({str(kept)!r}), '{url}/health', 0.1)"
        process = subprocess.Popen([sys.executable, "-c", code])
        try:
            until(lambda: len(asked) > 2)
            assert not kept.exists()
            answers["/health"] = (200, b"")
            until(lambda: (kept / "a").exists())
            (local / "late").write_text("graph")
            process.send_signal(signal.SIGTERM)
            assert process.wait(GENEROUS) == 0
        finally:
            process.kill()
            process.wait()
    assert tree(kept) == {"a": "graph", "late": "graph"}


def test_a_full_volume_does_not_end_the_keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").write_text("x")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", full)
    keep_recipes.report(tmp_path, tmp_path / "kept")
    assert "No space left" in capsys.readouterr().err
    assert tree(tmp_path / "kept") == {}


@pytest.mark.parametrize("words", [[], ["bring"], ["keep", "a", "b"], ["other", "a", "b"]])
def test_wrong_words_of_the_keeper(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert keep_recipes.main(words) == 2
    assert "bring FROM TO" in capsys.readouterr().err


@pytest.fixture
def stand_in(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A ``ray`` and an engine that write down how they were started, and a ray module that
    counts nodes."""
    bin_, log = tmp_path / "bin", tmp_path / "log"
    bin_.mkdir()
    for name in ("ray", "engine"):
        script = bin_ / name
        script.write_text(f'#!/bin/sh\nprintf "%s\\n" "{name} $* to $RAY_ADDRESS" >> {log}\n')
        script.chmod(0o755)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/ray.py").write_text(
        "from pathlib import Path\ndef init(**_): print('noise')\n"
        "def nodes(): return [{'Alive': True}] * "
        f"int(Path({str(tmp_path / 'nodes')!r}).read_text())\n"
    )
    (tmp_path / "nodes").write_text("1")
    environment = {
        **os.environ,
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "PYTHONPATH": str(tmp_path / "lib"),
        "VLLM_HOST_IP": "10.0.0.7",
    }
    return log, environment


def node(
    words: list[str], environment: dict[str, str], seconds: str = "20"
) -> subprocess.Popen[str]:
    code = (
        f"import sys; sys.path.insert(0, {str(PODS)!r}); import multi_node as m; "
        "m.SECONDS_BETWEEN = 0.1;"
    )
    code += f"m.PORT = int({environment.get('PORT', '6379')!r}); m.main(sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        env={**environment, "MULTI_NODE_TIMEOUT": seconds},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_head_waits_for_every_node(
    stand_in: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    log, environment = stand_in
    head = node(["head", "2", "8", "engine", "--model", "a b"], environment)
    until(log.exists)
    time.sleep(0.5)
    assert head.poll() is None
    (tmp_path / "nodes").write_text("2")
    out, err = head.communicate(timeout=GENEROUS)
    assert (head.returncode, err) == (0, "")
    assert "2 nodes, starting the engine" in out
    assert log.read_text().splitlines() == [
        "ray start --head --port=6379 --include-dashboard=false --disable-usage-stats"
        ' --node-ip-address=10.0.0.7 --resources={"HPU": 8} to ',
        "engine --model a b to 10.0.0.7:6379",
    ]


def test_the_worker_waits_for_the_head(stand_in: tuple[Path, dict[str, str]]) -> None:
    log, environment = stand_in
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = str(listening.getsockname()[1])
        worker = node(["worker", "127.0.0.1", "8"], {**environment, "PORT": port})
        time.sleep(0.5)
        assert worker.poll() is None and not log.exists()
        listening.listen()
        worker.communicate(timeout=GENEROUS)
    words = f"ray start --block --address=127.0.0.1:{port} --disable-usage-stats"
    words += ' --node-ip-address=10.0.0.7 --resources={"HPU": 8} to '
    assert log.read_text().splitlines() == [words]


def test_nodes_that_never_come_are_said(stand_in: tuple[Path, dict[str, str]]) -> None:
    _, environment = stand_in
    head = node(["head", "2", "8", "engine"], environment, "1")
    _, err = head.communicate(timeout=GENEROUS)
    assert head.returncode == 1
    assert "fewer than 2 nodes came within 1 s" in err


def test_wrong_words_of_a_node() -> None:
    with pytest.raises(SystemExit, match="head NODES CARDS"):
        multi_node.main(["head", "2"])


def test_a_proxy_of_the_pod_is_not_asked_for_the_model() -> None:
    start = (
        "import os, chat_page, keep_recipes\n"
        "chat = chat_page.Chat(os.environ['CHAT_URL'], style='infer')\n"
        "print(list(chat_page.answer(chat, '1+1?', [])))\n"
        "print(keep_recipes.answers(os.environ['CHAT_URL'] + '/infer'))\n"
    )
    with server({"/infer": (200, b'["1+1? 2"]')}) as (url, _):
        environment = {
            "CHAT_URL": url,
            "PYTHONPATH": str(PODS),
            "http_proxy": f"http://127.0.0.1:{unused_port()}",
        }
        done = subprocess.run(
            [sys.executable, "-c", start], env=environment, capture_output=True, text=True
        )
    assert (done.stdout, done.stderr) == ("['2']\nTrue\n", "")
