"""A cluster's steps: what is run, printed and copied. The DeepSeek-R1 story whole, as a golden
file."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.host import snapshot
from gaudi_launch.core.host.simulated import make
from gaudi_launch.core.hosts import steps
from gaudi_launch.core.hosts.differences import FolderFacts, Seen
from gaudi_launch.core.hosts.inventory import Member
from gaudi_launch.core.hosts.layout import Layout
from gaudi_launch.core.hosts.parts import Cluster, ClusterEngine, Node
from gaudi_launch.core.hosts.steps import (
    HostStep,
    copies,
    render,
    render_stop,
    service_step,
    ssh_words,
)
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Command, EngineIdentity, Plan
from tests.support.cli import reading

WHY = message("cluster.as_asked")


def member(name: str, **changes: Any) -> Member:
    return Member(name, f"admin@{name}", **changes)


def cluster(*members: Member) -> Cluster:
    nodes = tuple(
        Node(
            one,
            f"10.0.0.{at}",
            "ens1",
            (0, 1),
            {"VLLM_HOST_IP": f"10.0.0.{at}", "RAY_ADDRESS": "10.0.0.1:8850"},
        )
        for at, one in enumerate(members, 1)
    )
    command = Command(("python3", "-m", "engine", "--name", "it's"), {"A": "b c"})
    layout = Layout(4, 1, 1, 0, 2, 2, WHY, "")
    plan = Plan(
        EngineIdentity("vllm-fork", "1.22"),
        {"path": "/models/M"},
        Placement(()),
        (),
        command,
        "http://x:1",
    )
    return Cluster(
        "c",
        layout,
        (ClusterEngine(nodes, command, "http://10.0.0.1:1"),),
        (),
        plan,
        "/models/M",
        "/cache",
        8850,
    )


AB = (member("a"), member("b"))


def options(*values: str) -> list[str]:
    """Return ssh's options in their order."""
    return [word for value in values for word in ("-o", value)]


def test_ssh_gets_one_quoted_word_behind_the_host() -> None:
    words = ssh_words(AB[0], ["env", "X=$(reboot)", "it's", "a b"])
    assert words[:-2] == ["ssh", "-T", *options(
        "BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=15", "ServerAliveCountMax=3",
        "ControlMaster=no", "ClearAllForwardings=yes", "RemoteCommand=none",
    ), "--"]  # fmt: skip
    assert words[-2] == "admin@a"
    assert shlex.split(words[-1]) == ["env", "X=$(reboot)", "it's", "a b"]
    boxed = replace(AB[0], enter=("docker", "exec", "-i", "my box"))
    assert shlex.split(ssh_words(boxed, ["id"])[-1]) == ["docker", "exec", "-i", "my box", "id"]
    assert ssh_words(Member("l", "local"), ["id", "-u"]) == ["id", "-u"]


def test_printed_lines_are_shell_words() -> None:
    step = service_step(cluster(*AB).engines[0])
    *ssh, words = shlex.split(render(step, "c"))
    assert ssh == ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", "admin@a"]
    assert "nohup setsid env 'A=b c' python3 -m engine --name 'it'\"'\"'s' >> " in words
    boxed = replace(step, member=replace(step.member, enter=("docker", "exec", "-i", "box")))
    inside = shlex.split(shlex.split(render(boxed, "c"))[-1])
    assert inside[:6] == ["docker", "exec", "-i", "box", "sh", "-c"] and len(inside) == 7
    here = HostStep(Member("l", "local"), ("echo", "a b"), WHY)
    assert shlex.split(render(here, "c")) == ["sh", "-c", "echo 'a b'"]
    assert [shlex.split(line)[7] for line in render_stop(AB, "c")] == [
        "admin@a",
        "admin@b",
        "admin@b",
        "admin@a",
    ]


def seen(one: Member, model: FolderFacts, recipes: FolderFacts, *tools: str) -> Seen:
    return Seen(
        one, folders={"/models/M": model, "/cache": recipes}, tools=tools or ("rsync", "scp")
    )


def test_nobody_has_the_model() -> None:
    found, missing = copies(cluster(*AB), [seen(one, FolderFacts(), FolderFacts()) for one in AB])
    assert (found, missing) == ([], [message("cluster.no_model", path="/models/M")])
    # whoever could not be asked may have it
    lost = replace(seen(AB[1], FolderFacts(), FolderFacts()), trouble=WHY)
    assert copies(cluster(*AB), [seen(AB[0], FolderFacts(), FolderFacts()), lost]) == ([], [])
    hub = replace(cluster(*AB), model="Qwen/Qwen3-8B", recipes=None)
    assert copies(hub, [seen(one, FolderFacts(), FolderFacts()) for one in AB]) == ([], [])


@pytest.fixture
def inventory(tmp_path: Path, plain_english: None) -> str:
    path = tmp_path / "cluster.json"
    hosts = [
        {
            "name": f"gaudi-{n}",
            "address": f"192.168.1.10{n}",
            "interface": "ens8f0",
            "snapshot": "simulated:hls2",
        }
        for n in (1, 6)
    ]
    path.write_text(json.dumps({"schema": 1, "hosts": hosts}))
    return str(path)


MODEL = ("-w", "/models/DeepSeek-R1-G2", "--engine", "deepseek_r1", "--trust-remote-code")
SMALL, DEEPSEEK = (*MODEL, "-l", "4096", "-b", "32"), (*MODEL, "-l", "32768", "-b", "512")


_PLAN = ("cluster", "plan", "-w", "Qwen/Qwen2-72B-Instruct", "--engine", "vllm-fork@1.22", "--json")


def nodes_of(
    capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[list[tuple[str, list[int]]], list[str]]:
    """(address, modules) of each host, and the ids of what is in the way."""
    shown = reading(capsys, *_PLAN, *words)
    nodes = shown["engines"][0]["nodes"]
    return [(node["address"], node["modules"]) for node in nodes], [
        one["id"] for one in shown["blockers"]
    ]


def test_simulated_hosts_are_told_apart(inventory: str, capsys: pytest.CaptureFixture[str]) -> None:
    four, eight = [0, 1, 2, 3], list(range(8))
    # nothing can be started at a made-up address
    found = nodes_of(capsys, "--hosts", "a=simulated:hls2,b=simulated:hls2")
    assert found == ([("10.20.30.40", eight), ("10.20.30.41", eight)], ["cluster.made_up"])
    path = Path(inventory).with_name("a.json")
    path.write_text(json.dumps(snapshot.to_json(make("hls2"))))
    assert nodes_of(capsys, "--hosts", f"a={path},b={path}") == found
    # the address that ssh was given is the user's own word
    found = nodes_of(capsys, "--hosts", "10.0.0.7=simulated:hls2,me@fd00::1=simulated:hls2")
    assert found == ([("10.0.0.7", eight), ("fd00::1", eight)], [])
    path = Path(inventory).with_name("addresses.json")
    hosts = [
        {"name": name, "address": f"fd00:0::{name}", "snapshot": "simulated:hls2"} for name in "ab"
    ]
    path.write_text(json.dumps({"schema": 1, "hosts": hosts}))
    assert nodes_of(capsys, "--inventory", str(path)) == (
        [("fd00::a", eight), ("fd00::b", eight)],
        [],
    )
    # free cards of one group, and hosts of different sizes where a number is asked for
    two = "10.0.0.7=simulated:gaudi2e-8+busy=2,10.0.0.8=simulated:gaudi2e-4"
    assert nodes_of(capsys, "--hosts", two, "-n", "4") == (
        [("10.0.0.7", [4, 5, 6, 7]), ("10.0.0.8", four)],
        [],
    )


def test_a_printed_command_writes_into_no_folder_of_another(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    trap = tmp_path / "trap"
    trap.symlink_to(elsewhere)

    def written(folder: Path) -> int:
        words = f"{steps._write_words(f'{folder}/file', 'text')}true"
        return subprocess.run(["sh", "-c", words], check=False).returncode

    assert written(trap) == 1
    assert list(elsewhere.iterdir()) == []
    own = tmp_path / "own"
    assert (written(own), written(own)) == (0, 0)
    assert (own / "file").read_text() == "text"
    assert own.stat().st_mode & 0o777 == 0o700


@pytest.mark.root
def test_a_printed_command_refuses_a_folder_of_another_user(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    words = f"{steps._write_words(f'{folder}/file', 'text')}true"
    assert subprocess.run(["sh", "-c", words], check=False).returncode == 1
    assert list(folder.iterdir()) == []
