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

from gaudi_launch.cli.main import run
from gaudi_launch.cli.terminal import Terminal
from gaudi_launch.commands.cache.case import PruneLimits
from gaudi_launch.commands.doctor.case import DoctorRequest
from gaudi_launch.commands.inspect.support.case import SupportOptions
from gaudi_launch.commands.render.case import SystemdOptions
from gaudi_launch.commands.warmup.case import WarmupRequest
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.doctor.findings import Wants
from gaudi_launch.core.launch.fit import FitOptions, ServedLengths
from gaudi_launch.core.launch.model_setup import Wanted
from gaudi_launch.core.launch.options import LaunchOptions
from gaudi_launch.core.launch.serve import ServeMode
from gaudi_launch.core.render.deliver import Destination
from gaudi_launch.extensions.cluster.case import ClusterOptions, HostOptions
from gaudi_launch.extensions.fp8.case import CalibrateOptions
from gaudi_launch.extensions.kubernetes.case import KubernetesForm
from gaudi_launch.extensions.kubernetes.kube.case import KubeAccess, LogOptions
from gaudi_launch.extensions.kubernetes.options import KubernetesOptions
from gaudi_launch.extensions.kubernetes.with_options import read_with
from gaudi_launch.extensions.offline.case import InstallOptions
from gaudi_launch.extensions.offline.pack import PackOptions
from gaudi_launch.extensions.recommend.case import RecommendOptions
from gaudi_launch.extensions.stack.change import ChangeOptions
from gaudi_launch.extensions.stack.init import InitOptions
from gaudi_launch.extensions.watch.top.case import WatchRequest

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
    Case("cache list -c /c --machine m", "commands.cache.case:listing", (_C, "m")),
    Case("cache show key -c /c", "commands.cache.case:indexed", (_C, "key")),
    Case(
        "cache verify key --quick -c /c",
        "commands.cache.case:verify",
        (_C, "key"),
        {"quick": True},
    ),
    Case("cache verify -c /c", "commands.cache.case:verify", (_C, None), {"quick": False}),
    Case(
        "cache prune --max-size 1G --older 2d --yes -c /c",
        "commands.cache.case:prune",
        (_C, PruneLimits("1G", "2d")),
        {"remove": True},
    ),
    Case("cache prune -c /c", "commands.cache.case:prune", (_C, PruneLimits()), {"remove": False}),
    Case(
        "cache sync key me@host:/d -c /c",
        "commands.cache.case:sync_command",
        (_C, "key", "me@host:/d"),
    ),
    Case(
        f"cache adopt -c /c {LAUNCH}",
        "commands.cache.case:adopt",
        (replace(LAUNCHED, cache_dir="/c"),),
    ),
    Case(
        "fp8 calibrate /m -n 2 --dataset d -m 0,1 --python p --batch 3 --samples 4 --eager "
        "--scripts s --trust-remote-code --force",
        "extensions.fp8.case:calibrate",
        (CalibrateOptions("/m", "2", "d", "0,1", "p", "3", "4", True, Path("s"), True, True),),
    ),
    Case("fp8 calibrate /m", "extensions.fp8.case:calibrate", (CalibrateOptions("/m"),)),
    Case(
        "bench compare a b --plot p.svg",
        "extensions.bench.case:comparison",
        (["a", "b"], Path("p.svg")),
    ),
    Case(
        f"cluster plan {LAUNCH} --hosts a,b --name n --tensor-parallel 2 --pipeline-parallel 3"
        " --data-parallel 4 --ray-port 5 --interface eth0 --enter x",
        "extensions.cluster.case:read",
        (LAUNCHED, ClusterOptions("a,b", None, "n", "x", "2", "3", "4", "5", "eth0")),
        {"ask": True},
    ),
    Case(
        "cluster plan /m --hosts a=simulated:hls2",
        "extensions.cluster.case:read",
        (MODEL, ClusterOptions("a=simulated:hls2")),
        {"ask": False},
    ),
    # a host without a snapshot is asked
    Case(
        "cluster plan /m --hosts a=simulated:hls2,b",
        "extensions.cluster.case:read",
        (MODEL, ClusterOptions("a=simulated:hls2,b")),
        {"ask": True},
    ),
    Case(
        "cluster up /m --inventory i",
        "extensions.cluster.case:read",
        (MODEL, ClusterOptions(inventory="i")),
        {"ask": True},
    ),
    Case(
        "cluster up /m --hosts a",
        "extensions.cluster.case:read",
        (MODEL, ClusterOptions("a")),
        {"ask": True},
    ),
    Case("cluster status --name n", "extensions.cluster.case:status", ("n",)),
    Case("cluster status", "extensions.cluster.case:status", ("",)),
    Case(
        "cluster down --hosts a --name n --enter x --python p",
        "extensions.cluster.case:to_end",
        (HostOptions("a", None, "n", "x"), "p"),
    ),
    Case("cluster down", "extensions.cluster.case:to_end", (HostOptions(), None)),
    Case(
        "doctor --machine m --python p -w /m --only a,b --skip c --deep -n 2 -m 0,1 --port 80"
        " --nodes 2 --hugepages 3 --image i",
        "commands.doctor.case:check",
        (
            DoctorRequest(
                *("m", "p", "/m", ("a", "b"), ("c",), True),
                Wants(2, (0, 1), 2, 80, 3, True, "i"),
            ),
        ),
    ),
    Case(
        "doctor",
        "commands.doctor.case:check",
        (DoctorRequest(None, None, None, (), (), False, Wants()),),
    ),
    Case("doctor --undo", "commands.doctor.case:undo", ()),
    Case(
        "fit /m -n 1,2 --accelerator gaudi3 -l 8k -b 9 -i 1 -o 2 -d fp8 --engine e --force",
        "core.launch.fit:fit",
        (FitOptions("/m", "1,2", "gaudi3", "fp8", "e", ServedLengths("8k", "9", "1", "2"), True),),
    ),
    Case("fit /m", "core.launch.fit:fit", (FitOptions("/m"),)),
    Case(f"kube status name {_KUBE}", "extensions.kubernetes.kube.case:status", ("name", ACCESS)),
    Case("kube status", "extensions.kubernetes.kube.case:status", ("", NOWHERE)),
    Case(
        f"kube logs name {_KUBE} -f --previous --tail 5 --pod p",
        "extensions.kubernetes.kube.case:logs",
        ("name", ACCESS, LogOptions("5", "p", True, True)),
    ),
    Case(
        "kube logs name",
        "extensions.kubernetes.kube.case:logs",
        ("name", NOWHERE, LogOptions("1000")),
    ),
    Case(
        f"kube delete name {_KUBE} --volumes",
        "extensions.kubernetes.kube.case:removal",
        ("name", ACCESS),
        {"volumes": True},
    ),
    Case(
        "kube delete name",
        "extensions.kubernetes.kube.case:removal",
        ("name", NOWHERE),
        {"volumes": False},
    ),
    Case("bench s --learn a b", "extensions.bench.learn:learn", (["a", "b"], "s")),
    Case("bench --unlearn", "extensions.bench.learn:unlearn", ()),
    Case(
        "offline pack -o /o --engine cpu --model demo --with-cache --image --python p"
        " --platform x -c /c",
        "extensions.offline.pack:pack",
        (PackOptions("cpu", "demo", Path("/o"), True, True, "p", "x", _C),),
    ),
    Case(
        "offline pack -o /o --engine cpu --model demo",
        "extensions.offline.pack:pack",
        (PackOptions("cpu", "demo", Path("/o")),),
    ),
    Case("offline show /p", "extensions.offline.case:show", (Path("/p"),)),
    Case(
        "offline install /p --python p --force -c /c",
        "extensions.offline.case:install",
        (InstallOptions(Path("/p"), "p", _C, True),),
    ),
    Case("offline install /p", "extensions.offline.case:install", (InstallOptions(Path("/p")),)),
    Case(
        "pull me/m --from hf --to /t --revision r --repo-type dataset --all --trust-remote-code"
        " --verify",
        "core.launch.model_setup:fetch",
        (Wanted("me/m", "hf", Path("/t"), "r", "dataset", True, True, True),),
    ),
    Case("pull me/m", "core.launch.model_setup:fetch", (Wanted("me/m"),)),
    Case(
        f"recommend {LAUNCH} --for latency",
        "extensions.recommend.case:read",
        (LAUNCHED, RecommendOptions(goal="latency")),
        {"over_servers": True},
    ),
    Case(
        f"render script {LAUNCH} --to /o --name n",
        "commands.render.case:script",
        (LAUNCHED, Destination("/o", "n")),
    ),
    Case(
        f"render docker {LAUNCH} --image i --json",
        "commands.render.case:docker",
        (LAUNCHED, "i", Destination(None, several=True)),
    ),
    Case(
        f"render systemd {LAUNCH} --user --run-as me --with-tuning",
        "commands.render.case:systemd",
        (LAUNCHED, SystemdOptions(True, "me", True), STDOUT),
    ),
    Case(
        f"render systemd {LAUNCH}",
        "commands.render.case:systemd",
        (LAUNCHED, SystemdOptions(), STDOUT),
    ),
    Case(
        f"render systemd {LAUNCH} --stack s --user",
        "extensions.stack.stack_render:systemd",
        (Path("s"), LAUNCHED, SystemdOptions(user=True), STDOUT),
    ),
    Case(
        "render compose --stack s --image i",
        "extensions.stack.stack_render:compose",
        (Path("s"), LaunchOptions(), "i", STDOUT),
    ),
    Case(
        "render ray-serve --stack s --to /o/ --machine m --force --json",
        "extensions.stack.stack_render:ray_serve",
        (
            Path("s"),
            LaunchOptions(machine="m", force=True),
            Destination("/o/", several=True),
        ),
    ),
    Case(f"render ray-serve {LAUNCH}", "extensions.ray.case:ray_serve", (LAUNCHED, STDOUT)),
    Case(
        "render monitoring --to /o/ --target h:1 --force --json",
        "extensions.watch.monitoring:render_monitoring",
        ("h:1", Destination("/o/", several=True)),
        {"force": True},
    ),
    Case(
        f"render kubernetes {LAUNCH} --image i --name n --webui",
        "extensions.kubernetes.case:render_kubernetes",
        (
            LAUNCHED,
            KubernetesOptions(image="i", name="n", webui=True),
            KubernetesForm(read_with),
        ),
    ),
    Case(
        "render kubernetes --stack s --helm /h",
        "extensions.stack.stack_render:kubernetes",
        (
            Path("s"),
            LaunchOptions(),
            KubernetesOptions(),
            KubernetesForm(read_with, helm=True),
        ),
    ),
    Case("restart name --drain 5m", "core.launch.stop:restart", ("name", 300.0)),
    Case("restart name", "core.launch.stop:restart", ("name", 30.0)),
    Case(
        f"serve {LAUNCH} --name s --detach --no-wait --restart on-failure --no-doctor --verbose"
        " --phase-timeout 9 --in docker --image i",
        "core.launch.serve:start",
        (
            LAUNCHED,
            ServeMode("s", True, False, "9", "on-failure", True, place="docker", image="i"),
        ),
    ),
    Case("serve /m", "core.launch.serve:start", (MODEL, ServeMode(quiet=True))),
    Case("serve /m --verbose --quiet", "core.launch.serve:start", (MODEL, ServeMode(quiet=True))),
    Case(
        "stack init a b --to /f -p 80 --engine e --python p --machine m",
        "extensions.stack.init:init",
        (["a", "b"], InitOptions(Path("/f"), "80", "m", "e", "p")),
    ),
    Case("stack init a", "extensions.stack.init:init", (["a"], InitOptions(Path("stack.yaml")))),
    Case("stack plan /f --machine m", "extensions.stack.stack_plan:plan", (Path("/f"), "m")),
    Case("stack plan /f", "extensions.stack.stack_plan:plan", (Path("/f"), None)),
    Case(
        "stack up /f --no-wait --no-doctor",
        "extensions.stack.case:up",
        (Path("/f"),),
        {"no_doctor": True, "wait": False},
    ),
    Case(
        "stack up /f", "extensions.stack.case:up", (Path("/f"),), {"no_doctor": False, "wait": True}
    ),
    Case(
        "stack apply /f --no-doctor --drain 5m",
        "extensions.stack.case:apply",
        (Path("/f"), ChangeOptions(no_doctor=True, drain=300.0), None),
    ),
    Case("stack restart chat --stack s", "extensions.stack.case:target", ("chat", "s")),
    Case("stack logs", "extensions.stack.case:target", ("", "")),
    Case("stack down /f --drain 5", "extensions.stack.case:down", ("/f", 5.0)),
    Case("stack down /f", "extensions.stack.case:down", ("/f", 30.0)),
    Case("stack ps /f", "extensions.stack.case:ps", ("/f",)),
    Case("stack ps", "extensions.stack.case:ps", (None,)),
    Case("status name --history 30m", "commands.services.status.case:status", ("name", 1800.0)),
    Case("status name", "commands.services.status.case:status", ("name", None)),
    Case(
        "support /m --engine e --accelerator gaudi3 --python p",
        "commands.inspect.support.case:support",
        (SupportOptions("/m", "e", "gaudi3", "p"),),
    ),
    Case("support --list --engine e", "commands.inspect.support.case:selected", ("e",)),
    Case(
        "top --hosts a --inventory i --machine m --interval 2 --timeout 3 --once",
        "extensions.watch.top.case:once",
        (WatchRequest("a", "i", "m", 2.0, 3.0),),
    ),
    Case("top --once", "extensions.watch.top.case:once", (WatchRequest("", "", None, 1.0, 5.0),)),
    Case(
        f"warmup {LAUNCH} --trace t --graphs 1 --overhead 2 --constant a=1",
        "commands.warmup.case:read",
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
