"""Every option of a command reaches its use case, and what is not given has its default.

Options that are fields of a record are in test_record_options.
"""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.app.cache import PruneLimits
from gaudi_launch.app.calibrate import CalibrateOptions
from gaudi_launch.app.cluster import ClusterOptions, HostOptions
from gaudi_launch.app.doctor import DoctorRequest
from gaudi_launch.app.fit import FitOptions, ServedLengths
from gaudi_launch.app.kube import KubeAccess, LogOptions
from gaudi_launch.app.kubernetes import KubernetesForm
from gaudi_launch.app.kubernetes_options import KubernetesOptions
from gaudi_launch.app.model_setup import Wanted
from gaudi_launch.app.offline import InstallOptions
from gaudi_launch.app.offline_pack import PackOptions
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.recommend import RecommendOptions
from gaudi_launch.app.render import Destination, SystemdOptions
from gaudi_launch.app.serve import ServeMode
from gaudi_launch.app.stack_change import ChangeOptions
from gaudi_launch.app.stack_init import InitOptions
from gaudi_launch.app.support import SupportOptions
from gaudi_launch.app.top import WatchRequest
from gaudi_launch.app.warmup import WarmupRequest
from gaudi_launch.cli.main import run
from gaudi_launch.cli.terminal import Terminal
from gaudi_launch.cli.with_options import read_with
from gaudi_launch.doctor.findings import Wants
from gaudi_launch.errors import ExitCode, LaunchError

pytestmark = pytest.mark.usefixtures("plain_english")

LAUNCH = "-w /m -n 2 --machine simulated:hls2"
LAUNCHED = LaunchOptions(model="/m", cards="2", machine="simulated:hls2")
MODEL = LaunchOptions(model="/m")
STDOUT = Destination(None)


@dataclass(frozen=True)
class Case:
    """A command line, the function that it must call, and the arguments of that call.

    A reporter is not counted.
    """

    line: str
    place: str
    expected: tuple[Any, ...]
    named: Mapping[str, Any] = field(default_factory=dict)


ACCESS = KubeAccess("space", "/k", "there")
NOWHERE = KubeAccess("", "", "")
_KUBE = "-N space --kubeconfig /k --context there"
_C = Path("/c")

CASES = (
    Case("cache list -c /c --machine m", "app.cache:listing", (_C, "m")),
    Case("cache show key -c /c", "app.cache:indexed", (_C, "key")),
    Case(
        "cache verify key --quick -c /c",
        "app.cache:verify",
        (_C, "key"),
        {"quick": True},
    ),
    Case("cache verify -c /c", "app.cache:verify", (_C, None), {"quick": False}),
    Case(
        "cache prune --max-size 1G --older 2d --yes -c /c",
        "app.cache:prune",
        (_C, PruneLimits("1G", "2d")),
        {"remove": True},
    ),
    Case("cache prune -c /c", "app.cache:prune", (_C, PruneLimits()), {"remove": False}),
    Case("cache sync key me@host:/d -c /c", "app.cache:sync_command", (_C, "key", "me@host:/d")),
    Case(f"cache adopt -c /c {LAUNCH}", "app.cache:adopt", (replace(LAUNCHED, cache_dir="/c"),)),
    Case(
        "fp8 calibrate /m -n 2 --dataset d -m 0,1 --python p --batch 3 --samples 4 --eager "
        "--scripts s --trust-remote-code --force",
        "app.calibrate:calibrate",
        (CalibrateOptions("/m", "2", "d", "0,1", "p", "3", "4", True, Path("s"), True, True),),
    ),
    Case("fp8 calibrate /m", "app.calibrate:calibrate", (CalibrateOptions("/m"),)),
    Case("bench compare a b --plot p.svg", "app.bench:comparison", (["a", "b"], Path("p.svg"))),
    Case(
        f"cluster plan {LAUNCH} --hosts a,b --name n --tensor-parallel 2 --pipeline-parallel 3"
        " --data-parallel 4 --ray-port 5 --interface eth0 --enter x",
        "app.cluster:read",
        (LAUNCHED, ClusterOptions("a,b", None, "n", "x", "2", "3", "4", "5", "eth0")),
        {"ask": True},
    ),
    Case(
        "cluster plan /m --hosts a=simulated:hls2",
        "app.cluster:read",
        (MODEL, ClusterOptions("a=simulated:hls2")),
        {"ask": False},
    ),
    # a host without a snapshot is asked
    Case(
        "cluster plan /m --hosts a=simulated:hls2,b",
        "app.cluster:read",
        (MODEL, ClusterOptions("a=simulated:hls2,b")),
        {"ask": True},
    ),
    Case(
        "cluster up /m --inventory i",
        "app.cluster:read",
        (MODEL, ClusterOptions(inventory="i")),
        {"ask": True},
    ),
    Case(
        "cluster up /m --hosts a",
        "app.cluster:read",
        (MODEL, ClusterOptions("a")),
        {"ask": True},
    ),
    Case("cluster status --name n", "app.cluster:status", ("n",)),
    Case("cluster status", "app.cluster:status", ("",)),
    Case(
        "cluster down --hosts a --name n --enter x --python p",
        "app.cluster:to_end",
        (HostOptions("a", None, "n", "x"), "p"),
    ),
    Case("cluster down", "app.cluster:to_end", (HostOptions(), None)),
    Case(
        "doctor --machine m --python p -w /m --only a,b --skip c --deep -n 2 -m 0,1 --port 80"
        " --nodes 2 --hugepages 3 --image i",
        "app.doctor:check",
        (
            DoctorRequest(
                *("m", "p", "/m", ("a", "b"), ("c",), True),
                Wants(2, (0, 1), 2, 80, 3, True, "i"),
            ),
        ),
    ),
    Case("doctor", "app.doctor:check", (DoctorRequest(None, None, None, (), (), False, Wants()),)),
    Case("doctor --undo", "app.doctor:undo", ()),
    Case(
        "fit /m -n 1,2 --accelerator gaudi3 -l 8k -b 9 -i 1 -o 2 -d fp8 --engine e --force",
        "app.fit:fit",
        (FitOptions("/m", "1,2", "gaudi3", "fp8", "e", ServedLengths("8k", "9", "1", "2"), True),),
    ),
    Case("fit /m", "app.fit:fit", (FitOptions("/m"),)),
    Case(f"kube status name {_KUBE}", "app.kube:status", ("name", ACCESS)),
    Case("kube status", "app.kube:status", ("", NOWHERE)),
    Case(
        f"kube logs name {_KUBE} -f --previous --tail 5 --pod p",
        "app.kube:logs",
        ("name", ACCESS, LogOptions("5", "p", True, True)),
    ),
    Case("kube logs name", "app.kube:logs", ("name", NOWHERE, LogOptions("1000"))),
    Case(
        f"kube delete name {_KUBE} --volumes",
        "app.kube:removal",
        ("name", ACCESS),
        {"volumes": True},
    ),
    Case("kube delete name", "app.kube:removal", ("name", NOWHERE), {"volumes": False}),
    Case("bench s --learn a b", "app.bench_learn:learn", (["a", "b"], "s")),
    Case("bench --unlearn", "app.bench_learn:unlearn", ()),
    Case(
        "offline pack -o /o --engine cpu --model demo --with-cache --image --python p"
        " --platform x -c /c",
        "app.offline_pack:pack",
        (PackOptions("cpu", "demo", Path("/o"), True, True, "p", "x", _C),),
    ),
    Case(
        "offline pack -o /o --engine cpu --model demo",
        "app.offline_pack:pack",
        (PackOptions("cpu", "demo", Path("/o")),),
    ),
    Case("offline show /p", "app.offline:show", (Path("/p"),)),
    Case(
        "offline install /p --python p --force -c /c",
        "app.offline:install",
        (InstallOptions(Path("/p"), "p", _C, True),),
    ),
    Case("offline install /p", "app.offline:install", (InstallOptions(Path("/p")),)),
    Case(
        "pull me/m --from hf --to /t --revision r --repo-type dataset --all --trust-remote-code"
        " --verify",
        "app.model_setup:fetch",
        (Wanted("me/m", "hf", Path("/t"), "r", "dataset", True, True, True),),
    ),
    Case("pull me/m", "app.model_setup:fetch", (Wanted("me/m"),)),
    Case(
        f"recommend {LAUNCH} --for latency",
        "app.recommend:read",
        (LAUNCHED, RecommendOptions(goal="latency")),
        {"over_servers": True},
    ),
    Case(
        f"render script {LAUNCH} --to /o --name n",
        "app.render:script",
        (LAUNCHED, Destination("/o", "n")),
    ),
    Case(
        f"render docker {LAUNCH} --image i --json",
        "app.render:docker",
        (LAUNCHED, "i", Destination(None, several=True)),
    ),
    Case(
        f"render systemd {LAUNCH} --user --run-as me --with-tuning",
        "app.render:systemd",
        (LAUNCHED, SystemdOptions(True, "me", True), STDOUT),
    ),
    Case(f"render systemd {LAUNCH}", "app.render:systemd", (LAUNCHED, SystemdOptions(), STDOUT)),
    Case(
        f"render systemd {LAUNCH} --stack s --user",
        "app.stack_render:systemd",
        (Path("s"), LAUNCHED, SystemdOptions(user=True), STDOUT),
    ),
    Case(
        "render compose --stack s --image i",
        "app.stack_render:compose",
        (Path("s"), LaunchOptions(), "i", STDOUT),
    ),
    Case(
        "render ray-serve --stack s --to /o/ --machine m --force --json",
        "app.stack_render:ray_serve",
        (
            Path("s"),
            LaunchOptions(machine="m", force=True),
            Destination("/o/", several=True),
        ),
    ),
    Case(f"render ray-serve {LAUNCH}", "app.render:ray_serve", (LAUNCHED, STDOUT)),
    Case(
        "render monitoring --to /o/ --target h:1 --force --json",
        "app.monitoring:render_monitoring",
        ("h:1", Destination("/o/", several=True)),
        {"force": True},
    ),
    Case(
        f"render kubernetes {LAUNCH} --image i --name n --webui",
        "app.kubernetes:render_kubernetes",
        (
            LAUNCHED,
            KubernetesOptions(image="i", name="n", webui=True),
            KubernetesForm(read_with),
        ),
    ),
    Case(
        "render kubernetes --stack s --helm /h",
        "app.stack_render:kubernetes",
        (
            Path("s"),
            LaunchOptions(),
            KubernetesOptions(),
            KubernetesForm(read_with, helm=True),
        ),
    ),
    Case("restart name --drain 5m", "app.stop:restart", ("name", 300.0)),
    Case("restart name", "app.stop:restart", ("name", 30.0)),
    Case(
        f"serve {LAUNCH} --name s --detach --no-wait --restart on-failure --no-doctor --verbose"
        " --phase-timeout 9 --in docker --image i",
        "app.serve:start",
        (
            LAUNCHED,
            ServeMode("s", True, False, "9", "on-failure", True, place="docker", image="i"),
        ),
    ),
    Case("serve /m", "app.serve:start", (MODEL, ServeMode(quiet=True))),
    Case("serve /m --verbose --quiet", "app.serve:start", (MODEL, ServeMode(quiet=True))),
    Case(
        "stack init a b --to /f -p 80 --engine e --python p --machine m",
        "app.stack_init:init",
        (["a", "b"], InitOptions(Path("/f"), "80", "m", "e", "p")),
    ),
    Case("stack init a", "app.stack_init:init", (["a"], InitOptions(Path("stack.yaml")))),
    Case("stack plan /f --machine m", "app.stack_plan:plan", (Path("/f"), "m")),
    Case("stack plan /f", "app.stack_plan:plan", (Path("/f"), None)),
    Case(
        "stack up /f --no-wait --no-doctor",
        "app.stack:up",
        (Path("/f"),),
        {"no_doctor": True, "wait": False},
    ),
    Case("stack up /f", "app.stack:up", (Path("/f"),), {"no_doctor": False, "wait": True}),
    Case(
        "stack apply /f --no-doctor --drain 5m",
        "app.stack:apply",
        (Path("/f"), ChangeOptions(no_doctor=True, drain=300.0), None),
    ),
    Case("stack restart chat --stack s", "app.stack:target", ("chat", "s")),
    Case("stack logs", "app.stack:target", ("", "")),
    Case("stack down /f --drain 5", "app.stack:down", ("/f", 5.0)),
    Case("stack down /f", "app.stack:down", ("/f", 30.0)),
    Case("stack ps /f", "app.stack:ps", ("/f",)),
    Case("stack ps", "app.stack:ps", (None,)),
    Case("status name --history 30m", "app.status:status", ("name", 1800.0)),
    Case("status name", "app.status:status", ("name", None)),
    Case(
        "support /m --engine e --accelerator gaudi3 --python p",
        "app.support:support",
        (SupportOptions("/m", "e", "gaudi3", "p"),),
    ),
    Case("support --list --engine e", "app.support:selected", ("e",)),
    Case(
        "top --hosts a --inventory i --machine m --interval 2 --timeout 3 --once",
        "app.top:once",
        (WatchRequest("a", "i", "m", 2.0, 3.0),),
    ),
    Case("top --once", "app.top:once", (WatchRequest("", "", None, 1.0, 5.0),)),
    Case(
        f"warmup {LAUNCH} --trace t --graphs 1 --overhead 2 --constant a=1",
        "app.warmup:read",
        (LAUNCHED,),
        {
            "trace": "t",
            "goal": WarmupRequest(1, "2"),
            "constants": ["a=1"],
        },
    ),
)


def _comparable(argument: Any) -> Any:
    """Return an argument; None for one that has no value to compare."""
    if callable(argument):
        return None
    return argument


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.line)
def test_every_option_reaches_its_use_case(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def called(*arguments: Any, **named: Any) -> None:
        counted = [each for each in arguments if not isinstance(each, Terminal)]
        calls.append((tuple(map(_comparable, counted)), named))
        raise LaunchError("common.interrupted", ExitCode.MODEL)

    module, name = case.place.split(":")
    monkeypatch.setattr(importlib.import_module(f"gaudi_launch.{module}"), name, called)
    code = run(shlex.split(case.line))
    assert calls == [(case.expected, dict(case.named))]
    assert code == 5
