"""Services without a terminal, from the installed command: found, watched, explained, stopped,
and nothing left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gaudi_launch.core.services.state import orphans, registry
from gaudi_launch.core.services.state.reservation import reserve
from tests.support.keeper import Keeper
from tests.support.processes import free_port, living, pids, trivial_python
from tests.support.serve import machine, model
from tests.support.waiting import GENEROUS, until

__all__ = ["free_port", "machine", "model", "pids", "trivial_python"]


@pytest.fixture
def user(tmp_path: Path, machine: Path, trivial_python: Path, pids: Path) -> Iterator[Keeper]:
    keeper = Keeper(tmp_path, machine, trivial_python, pids)
    yield keeper
    for folder in keeper.folder("").iterdir() if keeper.folder("").is_dir() else ():
        if registry.runs(folder):
            keeper.call("stop", folder.name, "--drain", "0")
        # its own only: others may be testing theirs
        orphans.end(orphans.orphans(folder))


def test_a_life_from_start_to_forgotten(
    user: Keeper, model: Path, free_port: int, pids: Path
) -> None:
    code, out, err = user.detach(
        model, free_port, "--name", "a", LD_LIBRARY_PATH="/of/the/first/shell"
    )
    assert code == 0, err
    assert out.splitlines()[0].startswith("Ready after ")
    assert out.splitlines()[-1] == "  stop it: gaudi-launch stop a"
    (listed,) = user.services()
    assert {
        k: listed[k] for k in ("name", "alive", "phase", "modules", "url", "restarts", "error")
    } == {
        "name": "a",
        "alive": True,
        "phase": "ready",
        "modules": [0, 1],
        "url": f"http://127.0.0.1:{free_port}",
        "restarts": 0,
        "error": None,
    }
    # its cards are held by the launcher, so another start takes others
    code, out, _ = user.call("devices", "pick", "-n", "2", "--format", "modules")
    assert (code, out) == (0, "2,3\n")
    code, out, _ = user.call("status", "a", "--json")
    told = json.loads(out)
    assert [p["name"] for p in told["phases"]] == ["start", "kv_cache", "warmup_prompt", "ready"]
    assert told["warmup"]["seconds"] == 1 and told["warmup"]["estimated"]["low"] > 0
    assert [card["module"] for card in sorted(told["cards"], key=lambda c: c["module"])] == [0, 1]
    code, out, _ = user.call("status", "a", "--lang", "zh")
    assert code == 0 and "预热" in out
    code, out, _ = user.call("logs", "a", "-n", "1")
    assert (code, out) == (0, "INFO:     Application startup complete.\n")
    first = user.services()[0]["launcher_pid"]
    code, out, err = user.call("restart", "a")
    assert code == 0 and "answers at" in out, err
    assert user.services()[0]["launcher_pid"] != first
    # as it was, whatever shell restarts it
    assert (
        psutil.Process(user.services()[0]["pid"]).environ()["LD_LIBRARY_PATH"]
        == "/of/the/first/shell"
    )
    code, out, err = user.call("stop", "a", "--json")
    assert code == 0
    assert json.loads(out)["stopped"] == [
        {
            "name": "a",
            "was_alive": True,
            "requests_cut": 0,
            "orphans": [],
            "cards_busy": [],
            "simulated_run": None,
        }
    ]
    assert living(pids) == [] and user.services() == []
    assert [(s["name"], s["phase"]) for s in user.services("-a")] == [("a", "stopped")]
    assert user.call("stop", "a", "--forget")[0] == 0
    assert user.services("-a") == [] and list(user.folder("a").parent.iterdir()) == []


def test_a_failed_start_is_exit_4_and_remembered(user: Keeper, model: Path, free_port: int) -> None:
    code, out, err = user.detach(model, free_port, "--name", "a", do="oom")
    assert (code, out) == (4, "")
    cause = "The card ran out of memory while graphs were warmed up"
    assert f"likely cause: {cause}" in err
    (listed,) = user.services("-a")
    assert (listed["alive"], listed["phase"]) == (False, "failed") and listed["error"].startswith(
        cause
    )
    code, out, _ = user.call("why", "a")
    assert code == 0 and cause in out
    code, _, err = user.call("wait", "a")
    assert code == 4 and cause in err


@pytest.mark.usefixtures("only_orphans")
def test_the_orphans_of_a_killed_launcher_are_found_and_only_they_are_ended(
    user: Keeper, model: Path, free_port: int, pids: Path
) -> None:
    def ours(rows: list[dict[str, Any]]) -> set[int]:
        """Of all orphans on this machine those of this user's services."""
        return {row["pid"] for row in rows if row["folder"].startswith(str(user.state))}

    assert user.detach(model, free_port, "--name", "a")[0] == 0
    orphaned = living(pids)
    os.kill(user.services()[0]["launcher_pid"], signal.SIGKILL)
    until(lambda: user.services() == [])
    assert [(s["name"], s["phase"]) for s in user.services("-a")] == [("a", "lost")]
    # the trivial engine's first process heeds the kernel's signal and forgets its two children
    until(lambda: len(living(pids)) == 2)
    left = living(pids)
    assert set(left) < set(orphaned)
    other = free_port + 1
    assert user.detach(model, other, "--name", "b")[0] == 0
    others = set(living(pids)) - set(left)
    _, out, _ = user.call("devices", "--json")
    # the third is a worker of the core, which writes no pid
    shown = ours(json.loads(out)["orphans"])
    assert set(left) < shown and len(shown) == 3 and not shown & others
    code, _, err = user.call("stop", "--orphans")
    assert code == 2 and "--yes" in err and sorted(left) == sorted(set(living(pids)) - others)
    code, out, _ = user.call("stop", "--orphans", "--yes", "--json")
    assert code == 0 and ours(json.loads(out)["ended"]) == shown
    assert set(living(pids)) == others
    assert [s["name"] for s in user.services()] == ["b"]


def test_an_engine_that_is_killed_comes_back(
    user: Keeper, model: Path, free_port: int, pids: Path
) -> None:
    assert user.detach(model, free_port, "--name", "a", "--restart", "on-failure")[0] == 0
    killed = user.services()[0]["pid"]
    os.kill(killed, signal.SIGKILL)
    until(lambda: user.services()[0]["restarts"] == 1)
    code, _, err = user.call("wait", "a", "--timeout", str(GENEROUS))
    assert code == 0, err
    (listed,) = user.services()
    assert listed["phase"] == "ready" and listed["pid"] != killed
    assert "Restart 1 of 5 in 1 s" in user.call("logs", "a", "--launcher")[1]
    (user.folder("a") / "engine.log").write_text("this life\n")
    assert "Application startup complete" in user.call("logs", "a", "--previous", "-n", "5")[1]


def test_secrets_are_handed_over_and_never_written(
    user: Keeper, model: Path, free_port: int
) -> None:
    code, _, err = user.detach(model, free_port, "--name", "a", VLLM_API_KEY="sesame-77")
    assert code == 0, err
    launcher = psutil.Process(user.services()[0]["launcher_pid"])
    assert launcher.environ()["VLLM_API_KEY"] == "sesame-77"
    for process in (launcher, *launcher.children(recursive=True)):
        assert "sesame" not in " ".join(process.cmdline())
    for path in user.folder("a").rglob("*"):
        assert b"sesame" not in path.read_bytes(), path
    assert user.folder("a").stat().st_mode & 0o077 == 0
    code, _, err = user.call("restart", "a")
    assert code == 2 and "VLLM_API_KEY" in err
    # refused before the running one was ended
    assert user.services()[0]["launcher_pid"] == launcher.pid


def test_running_requests_are_waited_for(
    user: Keeper, model: Path, free_port: int, tmp_path: Path
) -> None:
    load = tmp_path / "load"
    load.write_text("3")
    assert user.detach(model, free_port, "--name", "a", TRIVIAL_LOAD=str(load))[0] == 0
    assert user.services()[0]["requests"] == {"running": 3, "waiting": 2}
    code, out, err = user.call("stop", "a", "--drain", "1", "--json")
    assert code == 0 and json.loads(out)["stopped"][0]["requests_cut"] == 5
    assert "waiting for 5 running requests" in err


def test_ctrl_c_while_waiting_leaves_the_service(user: Keeper, model: Path, free_port: int) -> None:
    words = ("-w", str(model), "-n", "2", "-p", str(free_port), "--name", "a", "--detach")
    process = user.start(*words, do="hang")
    until(lambda: [s["phase"] for s in user.services()] == ["warmup_prompt"])
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=GENEROUS)
    assert process.returncode == 130 and "is still starting" in err
    assert [s["done"] for s in user.services()] == [2]
    code, _, err = user.call("wait", "a", "--timeout", "0.5")
    assert code == 1 and "did not answer within 0.5 s" in err


def test_two_of_one_name_and_nonsense(
    user: Keeper, model: Path, free_port: int, pids: Path
) -> None:
    assert user.detach(model, free_port, "--name", "a")[0] == 0
    before = living(pids)
    code, _, err = user.detach(model, free_port + 1, "--name", "a")
    assert code == 2 and "is already running" in err
    assert living(pids) == before
    for words, code, sentence in (
        (("stop", "nobody"), 2, "no service 'nobody'"),
        (("stop", "../a"), 2, "no service"),
        (("stop",), 2, "--all"),
        (("stop", "a", "--all"), 2, "--all"),
        (("stop", "a", "--drain", "-1"), 2, "--drain"),
        (("logs", "a", "--previous", "-f"), 2, "--previous"),
        (("logs", "a", "--previous"), 1, "engine.log.1"),
        (("wait", "a", "--timeout", "0"), 2, "--timeout"),
        (("status", "nobody"), 2, "no service"),
        (("serve", "-w", "m", "--no-wait"), 2, "--detach"),
        (("serve", "-w", "m", "--restart", "always"), 2, "on-failure"),
    ):
        got, _, err = user.call(*words)
        assert (got, sentence in err) == (code, True), (words, err)
    assert living(pids) == before


def test_a_log_is_followed_to_the_end(user: Keeper, model: Path, free_port: int) -> None:
    assert user.detach(model, free_port, "--name", "a")[0] == 0
    argv = [sys.executable, "-m", "gaudi_launch", "logs", "-f", "a"]
    with subprocess.Popen(argv, env=user.environment, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        lines = [reader.stdout.readline() for _ in range(3)]
        assert "vLLM API server version" in lines[0]
        assert user.call("stop", "a")[0] == 0
        rest = reader.stdout.read()
        assert reader.wait(GENEROUS) == 0 and "Application startup complete" in rest
    with subprocess.Popen([*argv[:-2], "a"], env=user.environment, stdout=subprocess.PIPE) as cut:
        assert cut.stdout is not None
        cut.stdout.close()
        assert cut.wait(GENEROUS) in (0, 1)


def test_a_restart_that_cannot_be(user: Keeper, model: Path, free_port: int, machine: Path) -> None:
    assert user.detach(model, free_port, "--name", "a")[0] == 0
    assert user.call("stop", "a")[0] == 0
    with reserve((1,), machine):
        code, _, err = user.call("restart", "a")
    assert code == 3 and "its cards 1 are used by other processes" in err
    assert [(s["name"], s["phase"]) for s in user.services("-a")] == [("a", "stopped")]
    (user.folder("a") / "job.json").write_text('{"schema": 1, "name": 7}')
    code, _, err = user.call("restart", "a")
    assert code == 1 and "cannot be read as a service" in err
    (user.folder("a") / "state.json").write_text("not json")
    # an unreadable state costs its own facts, not the service's place in the list (security.md
    # P2-6)
    assert [(s["name"], s["phase"]) for s in user.services("-a")] == [("a", "lost")]


def test_a_port_of_a_service_that_warms_up_is_refused_by_its_name(
    user: Keeper, model: Path, free_port: int, pids: Path
) -> None:
    assert user.detach(model, free_port, "--name", "a", "--no-wait", do="hang")[0] == 0
    until(lambda: living(pids))
    begun = living(pids)
    code, _, err = user.detach(model, free_port, "--name", "b")
    assert code == 3 and f"Port {free_port} is reserved for the service 'a'" in err
    assert living(pids) == begun and not user.folder("b").exists()
    # its own restart takes the port again
    code, out, err = user.call("restart", "a")
    assert code == 0 and "answers at" in out, err


def test_a_service_without_p_takes_the_next_free_port_and_keeps_it(
    user: Keeper, model: Path
) -> None:
    def serve() -> tuple[int, str, str]:
        words = ("serve", str(model), "-n", "2", "--name", "a", "--no-doctor", "--detach")
        return user.call(*words, "--python", str(user.python))

    with contextlib.ExitStack() as stack:
        # another program may use it
        with contextlib.suppress(OSError):
            stack.enter_context(socket.create_server(("127.0.0.1", 30001)))
        code, _, err = serve()
        assert code == 0 and err.startswith("Port 30001 is in use; this service takes port "), err
        port = int(user.services()[0]["url"].rpartition(":")[2])
        assert port > 30001
        code, _, err = serve()
        assert code == 2 and "is already running" in err
        assert user.call("stop", "a")[0] == 0
        stack.close()
        assert serve()[0] == 0
        assert user.services()[0]["url"].endswith(f":{port}")
        assert user.call("stop", "a")[0] == 0
        stack.enter_context(socket.create_server(("127.0.0.1", port)))
        code, _, err = serve()
        assert code == 3 and f"Port {port} is in use" in err


def test_of_five_launches_on_one_port_one_wins(user: Keeper, model: Path, free_port: int) -> None:
    words = (
        *("--no-doctor", "--python", str(user.python), "--detach", "-n", "1"),
        *("-p", str(free_port)),
    )
    launches = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "gaudi_launch", "serve", "-w", str(model), *words),
                *("--name", f"s{number}"),
            ],
            env=user.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(5)
    ]
    ended = [(launch.communicate(timeout=GENEROUS), launch.returncode) for launch in launches]
    codes = sorted(code for _, code in ended)
    assert codes == [0] + [3] * 4, ended
    (alive,) = user.services()
    assert alive["phase"] == "ready"
    (won,) = [number for number, (_, code) in enumerate(ended) if code == 0]
    assert alive["name"] == f"s{won}"
