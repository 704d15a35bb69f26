"""A cluster of two hosts with real Ray: up, looked at, a host killed, down, and nothing left
behind.

The engine is a stand-in that asks Ray for HPUs as vLLM's executor does; the real one is in
test_cluster_real.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.two_hosts import TOP, Wire
from tests.support.waiting import GENEROUS, until

pytestmark = [pytest.mark.root, pytest.mark.e2e]


@pytest.fixture
def model(wire: Wire) -> Path:
    """A model that lies on host a's disk only, and its path there."""
    folder = wire.folder / "a" / "disk" / "Tiny"
    folder.mkdir()
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024,
        "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 8,
        "intermediate_size": 4096, "torch_dtype": "bfloat16", "max_position_embeddings": 8192,
        "vocab_size": 1000,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return wire.folder / "models" / "Tiny"


def words_for(wire: Wire, model: Path) -> list[str]:
    return [
        "-w",
        str(model),
        "--engine",
        "vllm-fork@1.22",
        "-n",
        "2",
        "--inventory",
        str(wire.inventory()),
    ]


def test_two_hosts_up_a_worker_killed_down(wire: Wire, model: Path) -> None:
    done = wire.launch("up", *words_for(wire, model), "--json", VLLM_API_KEY="s3cret-key")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["layout"]["tensor"], shown["layout"]["ray"], shown["blockers"]) == (4, True, [])
    # the second host got the model from the first
    copied = {path.name: path.read_bytes() for path in (wire.folder / "b/disk/Tiny").iterdir()}
    assert copied == {
        path.name: path.read_bytes() for path in (wire.folder / "a/disk/Tiny").iterdir()
    }
    assert f"Copy {model} from host-a to host-b" in done.stderr
    # every rank on a card of its own, two on each host, with its host's own variables
    placed = wire.get("/placement")
    assert placed["has_key"] is True
    seen = sorted(
        (w["ip"], w["HABANA_VISIBLE_MODULES"], w["GLOO_SOCKET_IFNAME"]) for w in placed["workers"]
    )
    a, b = wire.interfaces["a"], wire.interfaces["b"]
    assert seen == [
        (f"{wire.net}.1", "0", a), (f"{wire.net}.1", "1", a), (f"{wire.net}.2", "0", b),
        (f"{wire.net}.2", "1", b),
    ]  # fmt: skip
    assert {(w["ip"], w["VLLM_HOST_IP"]) for w in placed["workers"]} == {
        (f"{wire.net}.{n}", f"{wire.net}.{n}") for n in (1, 2)
    }
    # the key went to the engine alone, by no command line and into no file
    assert {w["VLLM_API_KEY"] for w in placed["workers"]} == {None}
    assert "s3cret-key" not in (wire.folder / "ssh.log").read_text() + done.stdout + done.stderr
    kept = [
        path
        for path in wire.folder.rglob("*")
        if path.is_file() and b"s3cret-key" in path.read_bytes()
    ]
    assert kept == []

    healthy = wire.launch("status", "--json")
    state = json.loads(healthy.stdout)
    assert (healthy.returncode, state["whole"], state["engines"][0]["ready"]) == (0, True, True)
    assert sorted(node["hpu"] for node in state["engines"][0]["ray_nodes"]) == [2, 2]

    # a second start must not touch the first
    second = wire.launch("up", *words_for(wire, model))
    assert (second.returncode, "already running" in second.stderr) == (3, True)
    assert wire.get("/health") == {}

    # host b dies: its Ray and all its ranks
    for pid in wire.pids("b"):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not wire.answers("/health"), "the engine's end")
    broken = wire.launch("status", "--json")
    state = json.loads(broken.stdout)
    by_name = {host["name"]: host["processes"] for host in state["hosts"]}
    assert (broken.returncode, state["whole"], state["engines"][0]["ready"]) == (1, False, False)
    assert by_name["host-b"] == {"ray": None}

    ended = wire.launch("down", "--json")
    assert ended.returncode == 0, ended.stderr
    assert {"host": "host-a", "what": "ray", "trouble": None} in json.loads(ended.stdout)["ended"]
    assert (wire.pids("a"), wire.pids("b")) == ([], [])
    assert wire.launch("status").returncode == 2


def test_a_host_that_is_not_there_and_versions_that_differ(wire: Wire, model: Path) -> None:
    words = ["-w", str(model), "--engine", "vllm-fork@1.22", "-n", "2"]
    alone = wire.launch("up", *words, "--inventory", str(wire.inventory("c")), "--json")
    assert alone.returncode in (2, 3)
    assert "No route to host" in alone.stdout + alone.stderr or "cluster.unreached" in alone.stdout
    other = {"a": "simulated:hls2", "b": "simulated:gaudi3-oam"}
    differs = wire.launch("up", *words, "--inventory", str(wire.inventory(**other)))
    assert differs.returncode == 3, differs.stdout
    assert "the cards are of different kinds" in differs.stderr
    # nothing was started by either
    assert (wire.pids("a"), wire.pids("b")) == ([], [])


def test_an_engine_that_dies_takes_all_down(wire: Wire, model: Path) -> None:
    # an engine on each host: quicker than one over both, and ended in the same way
    wrong = ("--", "--swap-space", "1000000")
    done = wire.launch("up", *words_for(wire, model), "--data-parallel", "2", *wrong)
    assert done.returncode == 4, done.stderr
    assert "invalid choice: '1000000'" in done.stderr
    assert (wire.pids("a"), wire.pids("b")) == ([], [])


def test_ctrl_c_takes_all_down(wire: Wire, model: Path) -> None:
    env = {
        **os.environ,
        "PATH": f"{wire.folder / 'bin'}:{os.environ['PATH']}",
        "FAKE_HOSTS": str(wire.folder),
        "XDG_STATE_HOME": str(wire.folder / "own-state"),
        "PYTHONPATH": str(TOP),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "gaudi_launch", "cluster", "up", *words_for(wire, model)],
        env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as started:  # fmt: skip
        assert started.stderr is not None
        for line in started.stderr:
            if "Waiting for 2 hosts" in line:
                break
        assert wire.pids("a") and wire.pids("b")
        # as a terminal does it: to everything in the foreground
        os.killpg(started.pid, signal.SIGINT)
        rest = started.stderr.read()
        assert started.wait(GENEROUS) == 130
    assert "Stopping the started processes" in rest
    # a question to Ray that Ctrl-C broke off leaves its host once it has noticed
    until(lambda: not wire.pids("a") and not wire.pids("b"), "the end of all", 20)


def test_the_printed_commands_do_the_same(wire: Wire, model: Path) -> None:
    inventory = str(wire.inventory())
    printed = wire.launch("plan", *words_for(wire, model), "--dry-run")
    assert printed.returncode == 0, printed.stderr
    lines = [line for line in printed.stdout.splitlines() if not line.startswith("#")]
    starts, stops = lines[:3], lines[3:]
    assert len(stops) == 4 and inventory
    env = {
        **os.environ,
        "PATH": f"{wire.folder / 'bin'}:{os.environ['PATH']}",
        "FAKE_HOSTS": str(wire.folder),
    }
    for home in "ab":  # the printed lines name the usual state folder
        (wire.folder / home / ".local").mkdir(exist_ok=True)
    for line in starts:
        subprocess.run(["sh", "-c", line], env=env, check=True, timeout=GENEROUS)
        wire.wait_for_ray()
    log = wire.folder / "a/.local/state/gaudi-launch/cluster/cluster/host-a/service.log"
    try:
        until(lambda: wire.answers("/placement"), "an answer")
    except AssertionError:
        pytest.fail(log.read_text())
    assert len(wire.get("/placement")["workers"]) == 4
    for line in stops:
        subprocess.run(["sh", "-c", line], env=env, check=True, timeout=GENEROUS)
    until(lambda: not wire.pids("a") and not wire.pids("b"), "the end of all")
