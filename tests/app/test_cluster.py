"""cluster: hosts and their facts, what prevents a launch, secrets, and the record at the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import cluster as cases
from gaudi_launch.app.cluster import (
    ClusterCase,
    ClusterOptions,
    ClusterToEnd,
    HostOptions,
    check_ready,
    down,
    folder_of,
    members,
    read,
    request_of,
    to_end,
    up,
)
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.cluster import lifecycle, ssh, state
from gaudi_launch.cluster.differences import HostDifference, Seen
from gaudi_launch.cluster.inventory import Member, parse_hosts
from gaudi_launch.cluster.lifecycle import EndedPart
from gaudi_launch.cluster.readiness import Waits
from gaudi_launch.doctor import Finding, Wants
from gaudi_launch.engines.detect import Installed
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.hardware import Host
from gaudi_launch.messages import message
from gaudi_launch.paths import state_dir
from gaudi_launch.planning.request import Request
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

TWO = "a=simulated:hls2,b=simulated:hls2"
MODEL = "Qwen/Qwen2-72B-Instruct"
OPTIONS = LaunchOptions(model=MODEL)


def hosts_of(case: ClusterCase) -> list[str]:
    return [node.member.name for node in case.cluster.nodes]


# --- the case ------------------------------------------------------------------------------------


def test_hosts_and_sizes_make_one_cluster() -> None:
    words = ClusterOptions(
        hosts=TWO, name="big", tensor="8", pipeline="2", ray_port="8900", interface="ens8f0"
    )
    case = read(OPTIONS, words, ask=False)
    layout = case.cluster.layout
    assert (case.cluster.name, case.cluster.ray_port, hosts_of(case)) == ("big", 8900, ["a", "b"])
    assert (layout.tensor, layout.pipeline, layout.data) == (8, 2, 1)
    assert [node.interface for node in case.cluster.nodes] == ["ens8f0", "ens8f0"]
    assert (case.copies, case.missing, case.asked, case.differences) == ((), (), False, ())
    # each has an address of its own, and was judged by the doctor
    assert len({node.address for node in case.cluster.nodes}) == 2
    assert [len(one.findings) > 0 for one in case.seen] == [True, True]
    usual = read(OPTIONS, ClusterOptions(hosts=TWO), ask=False)
    assert (usual.cluster.name, usual.cluster.ray_port) == ("cluster", 8850)


@pytest.mark.parametrize(
    "words",
    [{"tensor": "0"}, {"pipeline": "x"}, {"data": "5000"}, {"ray_port": "70000"}, {"name": "a/b"}],
)
def test_sizes_ports_and_names_have_limits(words: dict[str, str]) -> None:
    with pytest.raises(LaunchError) as raised:
        read(OPTIONS, ClusterOptions(hosts=TWO, **words), ask=False)
    assert raised.value.exit_code is ExitCode.USAGE


def test_hosts_are_asked_for_the_folders_of_the_model_and_the_recipes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []
    copying: list[Any] = []

    def gather(found: Any, folders: Any, keep: Path, *, ask: bool) -> Any:
        asked.append((folders, keep, ask))
        return [(Seen(member), member.snapshot) for member in found]

    def copies(cluster: Any, seen: Any) -> Any:
        copying.append(len(seen))
        return ["copy"], [message("services.drain", found=1)]

    monkeypatch.setattr(ssh, "gather", gather)
    monkeypatch.setattr("gaudi_launch.cluster.steps.copies", copies)
    options = LaunchOptions(model=MODEL, cache_dir="/shared/recipes")
    case: Any = read(options, ClusterOptions(hosts=TWO), ask=True)
    folder = state_dir() / "clusters" / "cluster"
    assert asked == [(["/shared/recipes"], folder, True)]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (case.copies, case.missing) == (("copy",), (message("services.drain", found=1),))
    assert (copying, case.asked) == ([2], True)


def test_an_unknown_hub_id_is_warned_of_and_a_folder_of_the_hosts_is_not() -> None:
    typo = cases._unknown_name(Request("Qwen/Qwen2-72B-Intsruct"))
    assert [each.id for each in typo] == ["plan.name_sizeless", "models.offline", "plan.name_near"]
    assert cases._unknown_name(Request(MODEL)) == ()
    assert cases._unknown_name(Request("/on/the/hosts")) == ()
    case = read(
        replace(OPTIONS, model="Qwen/Qwen2-72B-Intsruct"), ClusterOptions(hosts=TWO), ask=False
    )
    assert case.cluster.warnings[0] == typo[0]


def test_the_doctor_judges_a_host_by_its_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def quick(host: Host, config: Any, wants: Wants, engine: Any) -> list[str]:
        asked.append((host.origin, wants, engine and engine.name))
        return ["finding"]

    monkeypatch.setattr("gaudi_launch.doctor.quick", quick)
    [member] = parse_hosts("a=simulated:hls2", None, "")
    one = Seen(member, installed=Installed("/p", "vllm-fork@1.21"))
    request = Request(MODEL, cards=4)
    judged: Any = cases._judged(one, "simulated:hls2", request, 1, 3)
    assert asked == [("simulated:hls2", Wants(cards=4, nodes=3, gaudi=True), "vllm-fork@1.21")]
    assert (judged.findings, len(judged.machine.cards)) == (("finding",), 8)
    cases._judged(replace(one, installed=None), "simulated:hls2", Request("m", engine="cpu"), 0, 2)
    assert asked[-1][1:] == (Wants(cards=None, nodes=2, gaudi=False), None)
    assert cases._judged(one, None, request, 1, 3) is one


# --- options -------------------------------------------------------------------------------------


def test_hosts_are_named_in_one_way(tmp_path: Path) -> None:
    for words in (HostOptions(), HostOptions(hosts="a", inventory="f")):
        with refused("cluster.which_hosts", ExitCode.USAGE):
            members(words, None)
    found = members(HostOptions(hosts="a,b", enter="docker exec -i x"), "/p")
    assert [(each.name, each.python, each.enter) for each in found] == [
        (name, "/p", ("docker", "exec", "-i", "x")) for name in ("a", "b")
    ]
    file = tmp_path / "hosts.yaml"
    file.write_text("schema: 1\nhosts:\n- {name: h, ssh: user@h}\n")
    [listed] = members(HostOptions(inventory=str(file), enter="enter it"), "/p")
    assert (listed.name, listed.ssh, listed.python, listed.enter) == (
        "h",
        "user@h",
        "/p",
        ("enter", "it"),
    )


@pytest.mark.parametrize(
    ("given", "flag"),
    [
        ({"modules": "0"}, "-m"),
        ({"machine": "simulated:hls2"}, "--machine"),
        ({"tuning": "reference"}, "--tuning reference"),
    ],
)
def test_options_about_this_machine_are_refused(given: dict[str, str], flag: str) -> None:
    with refused("cluster.not_here", ExitCode.USAGE, flag=flag):
        request_of(LaunchOptions(model="m", **given))  # type: ignore[arg-type]


def test_variables_about_this_machines_cards_do_not_apply_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HABANA_VISIBLE_MODULES", "HABANA_VISIBLE_DEVICES", "HLS_MODULE_ID"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("VLLM_SKIP_WARMUP", "true")
    found = request_of(LaunchOptions(model="m")).environment
    assert found["VLLM_SKIP_WARMUP"] == "true"
    assert not {"HABANA_VISIBLE_MODULES", "HABANA_VISIBLE_DEVICES", "HLS_MODULE_ID"} & set(found)


# --- launch and end ------------------------------------------------------------------------------


def test_everything_that_prevents_a_launch_is_named() -> None:
    case = read(OPTIONS, ClusterOptions(hosts=TWO), ask=False)
    text = message("services.drain", found="x")
    failed, fine = (
        Finding(f"host.{status}", status, text, text, "", message("services.drain", found=status))
        for status in ("fail", "warn")
    )
    trouble = message("services.drain", found="trouble")
    seen = (
        replace(case.seen[0], trouble=trouble, findings=()),
        replace(case.seen[1], findings=(fine, failed)),
    )
    bad, small = (
        HostDifference(level, "driver", {}, message("services.drain", found=level))
        for level in ("fail", "warn")
    )
    blocking = message("cluster.made_up")
    other = message("services.drain", found="warning")
    missing = message("services.drain", found="missing")
    blocked = replace(
        case,
        cluster=replace(case.cluster, warnings=(other, blocking)),
        seen=seen,
        differences=(bad, small),
        missing=(missing,),
    )
    finding = message(
        "cluster.finding", host="b", check="host.fail", message=failed.message.render()
    )
    assert blocked.blockers == [trouble, finding, bad.message, blocking, missing]
    with pytest.raises(LaunchError) as raised:
        check_ready(blocked)
    error = raised.value
    assert (error.id, error.exit_code, dict(error.text.values)) == (
        "cluster.blocked",
        ExitCode.MACHINE,
        {"count": 5},
    )
    assert error.detail == "\n".join(f"  {each.render()}" for each in blocked.blockers)
    free = replace(
        case, cluster=replace(case.cluster, warnings=(other,)), seen=(), differences=(small,)
    )
    check_ready(free)


def test_a_launch_gets_the_secrets_and_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr(lifecycle, "up", lambda *words: called.append(words))
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("VLLM_API_KEY", "")
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    case = read(OPTIONS, ClusterOptions(hosts=TWO, name="big"), ask=False)
    tell: Any = print
    up(case, OPTIONS, tell, ready_seconds=5.0)
    secrets = {"HF_TOKEN": "secret"}
    assert called == [
        (case.cluster, case.copies, secrets, folder_of("big"), tell, Waits(ready=5.0))
    ]


def test_a_cluster_to_end_is_on_the_given_hosts_else_on_the_recorded_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded = (Member("r", "r"),)
    asked: list[Path] = []

    def remembered(folder: Path) -> Any:
        asked.append(folder)
        return SimpleNamespace(members=recorded)

    monkeypatch.setattr(state, "remembered", remembered)
    given = to_end(HostOptions(hosts="a", name="big"), "/p")
    assert (given.name, given.members) == ("big", parse_hosts("a", "/p", ""))
    assert asked == []
    found = to_end(HostOptions(), None)
    assert found == ClusterToEnd(folder_of("cluster"), recorded)
    assert asked == [folder_of("cluster")]
    found_status: Any = cases.status
    monkeypatch.setattr(lifecycle, "status", lambda running, key: ("state", key))
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    running, shown = found_status("")
    assert (running.members, shown, asked[1:]) == (
        recorded,
        ("state", "secret"),
        [folder_of("cluster")],
    )


def test_the_record_is_removed_when_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of("cluster")
    folder.mkdir(parents=True)
    record = folder / state.FILE_NAME
    record.write_text("{}")
    cluster = ClusterToEnd(folder, (Member("a", "a"),))
    trouble = message("services.drain", found=1)
    parts = [EndedPart("a", "service", None), EndedPart("a", "ray", trouble)]
    asked: list[Any] = []
    monkeypatch.setattr(lifecycle, "down", lambda *words: asked.append(words) or parts)  # type: ignore[func-returns-value]
    assert down(cluster) == parts
    assert record.exists()
    parts.pop()
    assert down(cluster) == parts
    assert not record.exists()
    assert down(cluster) == parts
    assert asked == [(cluster.members, "cluster")] * 3
