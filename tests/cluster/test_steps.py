"""A cluster's steps: what is run, printed and copied. The DeepSeek-R1 story whole, as a golden
file."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.cluster import steps
from gaudi_launch.cluster.differences import FolderFacts, Seen
from gaudi_launch.cluster.inventory import Member
from gaudi_launch.cluster.layout import Layout
from gaudi_launch.cluster.parts import (
    Addresses,
    Cluster,
    ClusterEngine,
    Node,
    PlannedWhole,
    assemble,
)
from gaudi_launch.cluster.steps import (
    HostStep,
    copies,
    ray_steps,
    render,
    render_stop,
    service_step,
    ssh_environment,
    ssh_words,
)
from gaudi_launch.engines.detect import Installed
from gaudi_launch.engines.registry import find
from gaudi_launch.host import snapshot
from gaudi_launch.host.hardware import Host, Interface
from gaudi_launch.host.simulated import make
from gaudi_launch.messages import message
from gaudi_launch.planning.plan import Command, EngineIdentity, Placement, Plan, Setting
from tests.support.places import DATA

GOLDEN = DATA / "golden" / "cluster-deepseek-r1.txt"
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
COPYING = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=15", "ServerAliveCountMax=3")


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


def test_ray_starts_in_the_foreground_of_its_own_session() -> None:
    made = cluster(*AB)
    (head,), (worker,) = (
        ray_steps(made, made.engines[0], True),
        ray_steps(made, made.engines[0], False),
    )
    assert head.argv == (
        *(
            "python3",
            "-m",
            "ray.scripts.scripts",
            "start",
            "--head",
            "--port=8850",
            "--include-dashboard=false",
        ),
        *(
            "--node-ip-address=10.0.0.1",
            '--resources={"HPU":2}',
            "--disable-usage-stats",
            "--block",
        ),
    )
    assert worker.argv == (
        *("python3", "-m", "ray.scripts.scripts", "start", "--address=10.0.0.1:8850"),
        *(
            "--node-ip-address=10.0.0.2",
            '--resources={"HPU":2}',
            "--disable-usage-stats",
            "--block",
        ),
    )
    assert (head.env, worker.env) == ({"VLLM_HOST_IP": "10.0.0.1"}, {"VLLM_HOST_IP": "10.0.0.2"})
    assert (head.background, head.name, head.secrets) == (True, "ray", ())


def test_no_window_asks_for_a_password() -> None:
    given = {"DISPLAY": ":0", "SSH_ASKPASS": "x", "SSH_AUTH_SOCK": "/s", "HOME": "/h"}
    wanted = {"SSH_AUTH_SOCK": "/s", "HOME": "/h", "SSH_ASKPASS_REQUIRE": "never"}
    assert ssh_environment(given) == wanted


def test_secrets_are_only_named() -> None:
    made = cluster(*AB)
    step = service_step(made.engines[0], ("VLLM_API_KEY",))
    assert (step.secrets, step.env) == (("VLLM_API_KEY",), {"A": "b c"})
    assert "API_KEY" not in render(step, "c")


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


def test_files_are_written_before_the_command_that_reads_them() -> None:
    step = service_step(cluster(*AB).engines[0])
    with_file = replace(step, files={"/tmp/x y/f": "it's"})
    made = shlex.split(render(with_file, "c"))[-1]
    plain = shlex.split(render(step, "c"))[-1]
    folder, text = "'/tmp/x y'", shlex.quote("it's")
    assert made == (
        f"[ ! -L {folder} ] && {{ [ -d {folder} ] || mkdir -p -m 700 {folder}; }} "
        f"&& [ -O {folder} ] && chmod 700 {folder} "
        f"&& printf %s {text} > '/tmp/x y/f' && {plain}"
    )


def seen(one: Member, model: FolderFacts, recipes: FolderFacts, *tools: str) -> Seen:
    return Seen(
        one, folders={"/models/M": model, "/cache": recipes}, tools=tools or ("rsync", "scp")
    )


def test_copies_go_from_the_first_that_has_all_of_it() -> None:
    three = (*AB, member("c"))
    made = cluster(*three)
    found, missing = copies(
        made,
        [
            # a download that has only begun
            seen(three[0], FolderFacts(1, 2), FolderFacts(2, 9)),
            seen(three[1], FolderFacts(5, 100), FolderFacts()),
            # a copy that was cut off
            seen(three[2], FolderFacts(5, 70), FolderFacts(7, 1)),
        ],
    )
    assert missing == []
    rsync = (
        "rsync",
        "-a",
        "--copy-links",
        "--partial",
        "--mkpath",
        "-e",
        " ".join(["ssh", *options(*COPYING)]),
        "--",
    )
    assert [(c.source, c.target, c.step.argv) for c in found] == [
        ("b", "admin@10.0.0.1", (*rsync, "/models/M/", "admin@10.0.0.1:/models/M/")),
        ("b", "admin@10.0.0.3", (*rsync, "/models/M/", "admin@10.0.0.3:/models/M/")),
        ("a", "admin@10.0.0.2", (*rsync, "/cache/", "admin@10.0.0.2:/cache/")),
    ]  # fmt: skip


def test_without_rsync_scp_copies() -> None:
    found, _ = copies(
        cluster(*AB),
        [
            seen(AB[0], FolderFacts(1, 1), FolderFacts(), "scp"),
            seen(AB[1], FolderFacts(), FolderFacts(), "rsync", "scp"),
        ],
    )
    assert [copy.step.argv for copy in found] == [
        (
            "scp",
            "-r",
            "-p",
            "-q",
            *options(*COPYING),
            "--",
            "/models/M",
            "admin@10.0.0.2:/models/",
        )
    ]


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


def test_deepseek_r1_on_two_nodes(inventory: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(
            [
                "cluster",
                "plan",
                *DEEPSEEK,
                "--inventory",
                inventory,
                "-c",
                "/data/cache",
                "--dry-run",
            ]
        )
        == 0
    )
    text = capsys.readouterr().out
    assert text == GOLDEN.read_text()


def test_what_the_guides_scripts_set(inventory: str, capsys: pytest.CaptureFixture[str]) -> None:
    """HabanaAI/vllm-fork@deepseek_r1:scripts/quickstart/set_head_node.sh, value for value where
    both set one."""
    assert run(["cluster", "plan", *DEEPSEEK, "-q", "--inventory", inventory, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    head, worker = shown["engines"][0]["nodes"]
    assert {name: head["env"][name] for name in (
        "VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME", "HABANA_VISIBLE_MODULES",
        "VLLM_EP_SIZE", "VLLM_GRAPH_RESERVED_MEM", "VLLM_GRAPH_PROMPT_RATIO",
        "PT_HPU_ENABLE_LAZY_COLLECTIVES", "PT_HPU_LAZY_MODE", "PT_HPU_WEIGHT_SHARING",
        "PT_HPUGRAPH_DISABLE_TENSOR_CACHE", "VLLM_DELAYED_SAMPLING",
        "VLLM_MLA_PERFORM_MATRIX_ABSORPTION", "VLLM_MLA_DISABLE_REQUANTIZATION",
        "VLLM_RAY_DISABLE_LOG_TO_DRIVER", "RAY_IGNORE_UNHANDLED_ERRORS", "VLLM_REQUANT_FP8_INC",
        "VLLM_ENABLE_RUNTIME_DEQUANT", "VLLM_MOE_N_SLICE", "VLLM_HPU_MARK_SCALES_AS_CONST",
        "INC_FORCE_NAIVE_SCALING",
    )} == {
        "VLLM_HOST_IP": "192.168.1.101", "GLOO_SOCKET_IFNAME": "ens8f0",
        "HCCL_SOCKET_IFNAME": "ens8f0", "HABANA_VISIBLE_MODULES": "0,1,2,3,4,5,6,7",
        "VLLM_EP_SIZE": "16", "VLLM_GRAPH_RESERVED_MEM": "0.2", "VLLM_GRAPH_PROMPT_RATIO": "0",
        "PT_HPU_ENABLE_LAZY_COLLECTIVES": "true", "PT_HPU_LAZY_MODE": "1",
        "PT_HPU_WEIGHT_SHARING": "0", "PT_HPUGRAPH_DISABLE_TENSOR_CACHE": "1",
        "VLLM_DELAYED_SAMPLING": "true", "VLLM_MLA_PERFORM_MATRIX_ABSORPTION": "0",
        "VLLM_MLA_DISABLE_REQUANTIZATION": "0", "VLLM_RAY_DISABLE_LOG_TO_DRIVER": "1",
        "RAY_IGNORE_UNHANDLED_ERRORS": "1", "VLLM_REQUANT_FP8_INC": "1",
        "VLLM_ENABLE_RUNTIME_DEQUANT": "1", "VLLM_MOE_N_SLICE": "1",
        "VLLM_HPU_MARK_SCALES_AS_CONST": "false", "INC_FORCE_NAIVE_SCALING": "1",
    }  # fmt: skip
    # where the checkout is, snapshots do not say
    assert "QUANT_CONFIG" not in head["env"]
    assert [blocker["id"] for blocker in shown["blockers"]] == ["cluster.no_quant"]
    own = {"VLLM_HOST_IP": "192.168.1.106"}
    assert worker["env"] == {**head["env"], **own}
    argv = shown["engines"][0]["argv"]
    pairs = dict(pairwise(argv))
    assert {name: pairs[name] for name in (
        "--host", "--port", "--tensor-parallel-size", "--kv-cache-dtype", "--num-scheduler-steps",
        "--max-model-len", "--gpu_memory_utilization", "--distributed_executor_backend",
        "--block-size", "--max-num-seqs",
    )} == {
        "--host": "192.168.1.101", "--port": "8688", "--tensor-parallel-size": "16",
        "--kv-cache-dtype": "auto", "--num-scheduler-steps": "1", "--max-model-len": "32768",
        "--gpu_memory_utilization": "0.9", "--distributed_executor_backend": "ray",
        "--block-size": "128", "--max-num-seqs": "512",
    }  # fmt: skip
    assert (shown["layout"]["tensor"], shown["layout"]["expert"]) == (16, 16)


def test_a_quantisation_file_of_the_user(
    inventory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, dtype in (("x_bf16kv.json", "auto"), ("x_with_fp8kv_config.json", "fp8_inc")):
        words = ("-q", "--quant-config", f"/data/{name}", "--inventory", inventory, "--json")
        assert run(["cluster", "plan", *SMALL, *words]) == 0
        shown = json.loads(capsys.readouterr().out)
        engine = shown["engines"][0]
        assert engine["nodes"][1]["env"]["QUANT_CONFIG"] == f"/data/{name}"
        assert engine["argv"][engine["argv"].index("--kv-cache-dtype") + 1] == dtype
        assert shown["blockers"] == []


def test_what_the_user_decided_stays(inventory: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--memory-utilization", "0.7", "-u", "0.0.0.0", "-p", "9000", "--ray-port", "7000")
    assert run(["cluster", "plan", *SMALL, *words, "--inventory", inventory, "--json"]) == 0
    engine = json.loads(capsys.readouterr().out)["engines"][0]
    argv = engine["argv"]
    assert [
        argv[argv.index(name) + 1] for name in ("--gpu_memory_utilization", "--host", "--port")
    ] == [
        "0.7",
        "0.0.0.0",
        "9000",
    ]
    assert (engine["url"], engine["ray_address"]) == (
        "http://192.168.1.101:9000",
        "192.168.1.101:7000",
    )


def test_pages_in_both_languages(inventory: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "plan", *SMALL, "--inventory", inventory]) == 0
    page = capsys.readouterr().out
    for part in (
        "gaudi-1",
        "192.168.1.106 (ens8f0)",
        "Layout: tensor 16",
        "VLLM_EP_SIZE",
        "Memory per card",
    ):
        assert part in page
    assert run(["cluster", "plan", *SMALL, "--inventory", inventory, "--lang", "zh"]) == 0
    assert "布局：张量 16" in capsys.readouterr().out


_PLAN = ("cluster", "plan", "-w", "Qwen/Qwen2-72B-Instruct", "--engine", "vllm-fork@1.22", "--json")


def nodes_of(
    capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[list[tuple[str, list[int]]], list[str]]:
    """(address, modules) of each host, and the ids of what is in the way."""
    assert run([*_PLAN, *words]) == 0
    shown = json.loads(capsys.readouterr().out)
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


def test_what_is_in_the_way_names_its_host(
    inventory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = "10.0.0.7=simulated:hls2,10.0.0.8=simulated:hls2+failed=7"
    assert run([*_PLAN, "-n", "4", "--hosts", hosts]) == 0
    blockers = json.loads(capsys.readouterr().out)["blockers"]
    assert blockers and all(one["message"].startswith("10.0.0.8: ") for one in blockers)


@pytest.mark.parametrize(
    ("words", "code", "id"),
    [
        ((), 2, "cluster.which_hosts"),
        (("--hosts", "a", "--inventory", "x.yaml"), 2, "cluster.which_hosts"),
        (("--inventory", "/nowhere.yaml"), 2, "cluster.bad_inventory"),
        (("--hosts", "-oProxyCommand=x"), 2, "cluster.bad_host"),
        (("--hosts", "a=/nowhere.json"), 2, "host.snapshot_file"),
        (("--hosts", "a=simulated:hls9"), 2, "host.unknown_machine"),
        (("--hosts", "10.0.0.1=simulated:hls2,me@10.0.0.1=simulated:hls2"), 2, "cluster.twice"),
        (("--hosts", "a=simulated:hls2,"), 2, "cluster.bad_host"),
        (("--hosts", "a=simulated:hls2,local", "--python", "/no/python"), 3, "cluster.no_ssh"),
        (("--hosts", "a=simulated:hls2,b=seven.json"), 3, "cluster.uneven"),
        (("--hosts", "a=simulated:hls2+busy=3,b=simulated:hls2"), 3, "cluster.no_place"),
        (("--hosts", "a=simulated:hls2", "-m", "0,1"), 2, "cluster.not_here"),
        (("--hosts", "a=simulated:hls2", "--machine", "simulated:hls2"), 2, "cluster.not_here"),
        (("--hosts", "a=simulated:hls2", "--tuning", "reference"), 2, "cluster.not_here"),
        (("--hosts", "a=simulated:hls2", "-n", "9"), 3, "cluster.few_cards"),
        (("--hosts", "a=simulated:hls2", "--tensor-parallel", "x"), 2, "plan.number"),
        (("--hosts", "a=simulated:hls2", "--tensor-parallel", "3"), 2, "cluster.sizes"),
        (("--hosts", "a=simulated:hls2", "--interface", "ib9"), 2, "cluster.no_interface"),
        (("--hosts", "a=simulated:hls2", "--name", "../x"), 2, "serve.bad_name"),
        (
            ("--hosts", "a=simulated:hls2,b=simulated:hls2", "--ray-port", "8000", "-p", "8000"),
            2,
            "cluster.one_port",
        ),
        (("--hosts", "a=simulated:hls2", "--", "--port", "many"), 2, "plan.number"),
        (("--hosts", "a=simulated:hls2", "--", "--max-model-len=0"), 2, "plan.number"),
        (("--hosts", "a=simulated:hls2", "--", "-tp", "4"), 2, "plan.own_option"),
        (("--hosts", "a=simulated:hls2", "--", "--pipeline_parallel_size=2"), 2, "plan.own_option"),
        (("--hosts", "a=simulated:hls2", "--", "--data-parallel-size", "2"), 2, "plan.own_option"),
        (("--hosts", "a=simulated:hls2", "--engine", "tgi"), 2, "cluster.no_engine"),
        (("--hosts", "a=simulated:hls2", "--engine", "vllm-gaudi"), 2, "cluster.unvalidated"),
        (("--hosts", "a=simulated:hls2,b=simulated:hls2", "--engine", "cpu"), 2, "cluster.no_ray"),
    ],
)
def test_wrong_input_is_a_sentence(
    inventory: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: int,
    id: str,
) -> None:
    # a machine that lost a card; also a snapshot of a simulated machine
    monkeypatch.chdir(Path(inventory).parent)
    host = make("hls2")
    Path("seven.json").write_text(json.dumps(snapshot.to_json(replace(host, cards=host.cards[:7]))))
    assert run([*_PLAN, *words]) == code
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["id"], error["exit_code"]) == (id, code)


def test_words_behind_the_dashes_count(capsys: pytest.CaptureFixture[str]) -> None:
    def planned(*words: str) -> dict[str, Any]:
        hosts = "10.0.0.1=simulated:hls2,10.0.0.2=simulated:hls2"
        assert run([*_PLAN, "--hosts", hosts, *words]) == 0
        return dict(json.loads(capsys.readouterr().out))

    ours = planned("-l", "16384", "-b", "8", "-p", "9001")
    own = ("--max-model-len", "16K", "--max-num-seqs=8", "--port", "9001")
    theirs = planned("--", *own)
    assert theirs["memory"] == ours["memory"]
    assert {each["name"] for each in theirs["settings"]} == {
        each["name"] for each in ours["settings"]
    }
    assert [each["beaten"] for each in theirs["settings"]] == [
        each["beaten"] for each in ours["settings"]
    ]
    stated = {each["name"]: (each["value"], each["source"]) for each in theirs["settings"]}
    assert (stated["--max-model-len"], stated["--max-num-seqs"]) == (("16K", "flag"), ("8", "flag"))
    assert theirs["engines"][0]["url"] == ours["engines"][0]["url"] == "http://10.0.0.1:9001"
    both = planned("-l", "8192", "--", *own)
    assert [warning["id"] for warning in both["warnings"]] == [
        "plan.engine_ended",
        "plan.overruled",
        "plan.kv_replicated",
        "cluster.open_ray",
    ]


def test_no_such_cluster(inventory: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("status", "down"):
        assert run(["cluster", command, "--json"]) == 2
        assert json.loads(capsys.readouterr().out)["error"]["id"] == "cluster.unknown"
    assert run(["cluster", "down", "--hosts", "a,b", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and all("kill -TERM" in line for line in lines)
    assert run(["cluster", "down", "--hosts", "a,b", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "hosts": ["a", "b"],
        "commands": lines,
    }


def test_files_of_the_engine_lie_on_every_host(
    inventory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "-w",
        "Qwen/Qwen2-72B-Instruct",
        "--engine",
        "vllm-gaudi",
        "--force",
        "--inventory",
        inventory,
    )
    assert run(["cluster", "plan", *words, "--json"]) == 0
    commands = json.loads(capsys.readouterr().out)["commands"]
    assert len(commands) == 3
    for command in commands:
        text = shlex.split(command)[-1]
        path = text.partition("VLLM_BUCKETING_FROM_FILE=")[2].split()[0]
        assert path.startswith("/tmp/gaudi-launch-cluster/") and f"> {path} && " in text


def test_quantisation_files_are_found_in_the_checkout() -> None:
    installed = Installed("python3", "deepseek_r1", {}, {"source": "/workspace/vllm-fork"})
    made = cluster(*AB)
    settings = tuple(
        Setting(name, value, "env", "flag", WHY)
        for name, value in (("VLLM_REQUANT_FP8_INC", "1"), ("QUANT_CONFIG", "scripts/x.json"))
    )
    plan = replace(made.plan, engine=EngineIdentity("vllm-fork", "deepseek_r1"), settings=settings)
    host = Host(interfaces=(Interface("ens1", True, ("10.0.0.1",)),))
    seen = [
        Seen(replace(one, address=f"10.0.0.{at}", interface="ens1"), host, installed=installed)
        for at, one in enumerate(AB, 1)
    ]
    engine = find("deepseek_r1")
    found = assemble("c", made.layout, PlannedWhole(plan, engine), seen, Addresses(1))
    env = found.engines[0].nodes[1].env
    assert (
        env["QUANT_CONFIG"]
        == "/workspace/vllm-fork/scripts/quant_configs/inc_quant_per_channel_bf16kv.json"
    )
    assert env["INC_MEASUREMENT_DUMP_PATH_PREFIX"] == "/workspace/vllm-fork"
    assert [warning.id for warning in found.warnings] == ["cluster.open_ray"]
    other = replace(seen[1], installed=replace(installed, facts={"source": "/elsewhere"}))
    differing = assemble(
        "c", made.layout, PlannedWhole(plan, engine), [seen[0], other], Addresses(1)
    )
    assert [warning.id for warning in differing.warnings].count("cluster.relative") == 1
    own = PlannedWhole(plan, engine, frozenset({"QUANT_CONFIG"}))
    mine = assemble("c", made.layout, own, seen, Addresses(1))
    assert "QUANT_CONFIG" not in mine.engines[0].nodes[1].env


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
