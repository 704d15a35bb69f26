"""Every option of a command reaches its use case, and what is not given has its default.

Options that are fields of a record are in test_record_options.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.cli.terminal import Terminal
from gaudi_launch.commands.cache import case as cache_case
from gaudi_launch.commands.doctor import case as doctor_case
from gaudi_launch.commands.doctor.case import DoctorRequest
from gaudi_launch.commands.inspect import case as inspect_case
from gaudi_launch.commands.inspect.fit import InspectOptions, ServedLengths
from gaudi_launch.commands.render import case as render_case
from gaudi_launch.commands.render.targets import (
    ComposeTarget,
    DockerTarget,
    ScriptTarget,
    SystemdTarget,
    unit_options,
)
from gaudi_launch.commands.services.status import case as status_case
from gaudi_launch.commands.warmup import case as warmup_case
from gaudi_launch.commands.warmup.case import WarmupRequest
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.doctor.findings import Wants
from gaudi_launch.core.launch import model_setup as launch_model_setup
from gaudi_launch.core.launch import serve as launch_serve
from gaudi_launch.core.launch import stop as launch_stop
from gaudi_launch.core.launch.model_setup import Wanted
from gaudi_launch.core.launch.serve import ServeMode
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.render.deliver import Destination
from gaudi_launch.extensions.bench import case as bench_case
from gaudi_launch.extensions.bench import learn as bench_learn
from gaudi_launch.extensions.cluster import case as cluster_case
from gaudi_launch.extensions.cluster.case import ClusterOptions, HostOptions
from gaudi_launch.extensions.fp8 import case as fp8_case
from gaudi_launch.extensions.fp8.case import CalibrateOptions
from gaudi_launch.extensions.kubernetes import case as kubernetes_case
from gaudi_launch.extensions.kubernetes.kube import case as kube_case
from gaudi_launch.extensions.kubernetes.kube.case import LogOptions
from gaudi_launch.extensions.kubernetes.kubectl import Kubectl
from gaudi_launch.extensions.kubernetes.options import KubernetesOptions
from gaudi_launch.extensions.offline import case as offline_case
from gaudi_launch.extensions.offline import pack as offline_pack
from gaudi_launch.extensions.offline.pack import PackOptions
from gaudi_launch.extensions.ray import case as ray_case
from gaudi_launch.extensions.recommend import case as recommend_case
from gaudi_launch.extensions.recommend.case import RecommendOptions
from gaudi_launch.extensions.stack import case as stack_case
from gaudi_launch.extensions.stack import init as stack_init
from gaudi_launch.extensions.stack import stack_plan as stack_stack_plan
from gaudi_launch.extensions.stack.change import ChangeOptions
from gaudi_launch.extensions.watch.top import case as top_case
from gaudi_launch.extensions.watch.top.case import WatchRequest

pytestmark = pytest.mark.usefixtures("plain_english")

LAUNCH = "-w /m -n 2 --machine simulated:hls2"
LAUNCHED = LaunchOptions(model="/m", cards=2, machine="simulated:hls2")
MODEL = LaunchOptions(model="/m")
STDOUT = Destination(None)


@dataclass(frozen=True)
class Case:
    """A command line, the function that it must call, and the arguments of that call.

    A reporter is not counted.
    """

    line: str
    use: Callable[..., Any]
    expected: tuple[Any, ...]
    named: Mapping[str, Any] = field(default_factory=dict)


ACCESS = Kubectl("space", "/k", "there")
NOWHERE = Kubectl("", "", "")
_KUBE = "-N space --kubeconfig /k --context there"
_C = Path("/c")

CASES = (
    Case("cache list -c /c --machine m", cache_case.listing, (_C, "m")),
    Case("cache show key -c /c", cache_case.indexed, (_C, "key")),
    Case(
        "cache verify key --quick -c /c",
        cache_case.verify,
        (_C, "key"),
        {"quick": True},
    ),
    Case("cache verify -c /c", cache_case.verify, (_C, None), {"quick": False}),
    Case(
        "cache prune --max-size 1G --older 2d --yes -c /c",
        cache_case.prune,
        (_C, "1G", "2d"),
        {"remove": True},
    ),
    Case("cache prune -c /c", cache_case.prune, (_C, None, None), {"remove": False}),
    Case(
        "cache sync key me@host:/d -c /c",
        cache_case.sync_command,
        (_C, "key", "me@host:/d"),
    ),
    Case(
        f"cache adopt -c /c {LAUNCH}",
        cache_case.adopt,
        (replace(LAUNCHED, cache_dir="/c"),),
    ),
    Case(
        "fp8 calibrate /m -n 2 --dataset d -m 0,1 --python p --batch 3 --samples 4 --eager "
        "--scripts s --trust-remote-code --force",
        fp8_case.calibrate,
        (CalibrateOptions("/m", "2", "d", "0,1", "p", "3", "4", True, Path("s"), True, True),),
    ),
    Case("fp8 calibrate /m", fp8_case.calibrate, (CalibrateOptions("/m"),)),
    Case(
        "bench compare a b --plot p.svg",
        bench_case.comparison,
        (["a", "b"], Path("p.svg")),
    ),
    Case(
        f"cluster plan {LAUNCH} --hosts a,b --name n --tensor-parallel 2 --pipeline-parallel 3"
        " --data-parallel 4 --ray-port 5 --interface eth0 --enter x",
        cluster_case.read,
        (LAUNCHED, ClusterOptions("a,b", None, "n", "x", 2, 3, 4, 5, "eth0")),
        {"ask": True},
    ),
    Case(
        "cluster plan /m --hosts a=simulated:hls2",
        cluster_case.read,
        (MODEL, ClusterOptions("a=simulated:hls2")),
        {"ask": False},
    ),
    # a host without a snapshot is asked
    Case(
        "cluster plan /m --hosts a=simulated:hls2,b",
        cluster_case.read,
        (MODEL, ClusterOptions("a=simulated:hls2,b")),
        {"ask": True},
    ),
    Case(
        "cluster up /m --inventory i",
        cluster_case.read,
        (MODEL, ClusterOptions(inventory="i")),
        {"ask": True},
    ),
    Case(
        "cluster up /m --hosts a",
        cluster_case.read,
        (MODEL, ClusterOptions("a")),
        {"ask": True},
    ),
    Case("cluster status --name n", cluster_case.status, ("n",)),
    Case("cluster status", cluster_case.status, ("",)),
    Case(
        "cluster down --hosts a --name n --enter x --python p",
        cluster_case.to_end,
        (HostOptions("a", None, "n", "x"), "p"),
    ),
    Case("cluster down", cluster_case.to_end, (HostOptions(), None)),
    Case(
        "doctor --machine m --python p -w /m --only a,b --skip c -n 2 -m 0,1 --port 80"
        " --nodes 2 --hugepages 3 --image i",
        doctor_case.check,
        (
            DoctorRequest(
                *("m", "p", "/m", ("a", "b"), ("c",)),
                Wants(2, (0, 1), 2, 80, 3, True, "i"),
            ),
        ),
    ),
    Case(
        "doctor",
        doctor_case.check,
        (DoctorRequest(None, None, None, (), (), Wants()),),
    ),
    Case("doctor --undo", doctor_case.undo, ()),
    Case(
        "inspect /m -n 1,2 --accelerator gaudi3 -l 8k -b 9 -i 1 -o 2 -d fp8 --engine e "
        "--revision r --all",
        inspect_case.inspect,
        (
            InspectOptions(
                "/m", "1,2", "gaudi3", "fp8", "e", ServedLengths("8k", "9", "1", "2"), "r"
            ),
        ),
    ),
    Case("inspect /m", inspect_case.inspect, (InspectOptions("/m", complete=False),)),
    Case(f"kube status name {_KUBE}", kube_case.status, ("name", ACCESS)),
    Case("kube status", kube_case.status, ("", NOWHERE)),
    Case(
        f"kube logs name {_KUBE} -f --previous --tail 5 --pod p",
        kube_case.logs,
        ("name", ACCESS, LogOptions("5", "p", True, True)),
    ),
    Case(
        "kube logs name",
        kube_case.logs,
        ("name", NOWHERE, LogOptions("1000")),
    ),
    Case(
        f"kube delete name {_KUBE} --volumes",
        kube_case.removal,
        ("name", ACCESS),
        {"volumes": True},
    ),
    Case(
        "kube delete name",
        kube_case.removal,
        ("name", NOWHERE),
        {"volumes": False},
    ),
    Case("bench s --learn a b", bench_learn.learn, (["a", "b"], "s")),
    Case("bench --unlearn", bench_learn.unlearn, ()),
    Case(
        "offline pack demo --to /o --engine cpu --with-cache --image --python p --platform x -c /c",
        offline_pack.pack,
        (PackOptions("cpu", "demo", Path("/o"), True, True, "p", "x", _C),),
    ),
    Case(
        "offline pack demo --to /o --engine cpu",
        offline_pack.pack,
        (PackOptions("cpu", "demo", Path("/o")),),
    ),
    Case("offline show /p", offline_case.show, (Path("/p"),)),
    Case(
        "offline install /p --python p --force -c /c",
        offline_case.install,
        (Path("/p"),),
        {"python": "p", "cache": _C, "force": True},
    ),
    Case(
        "offline install /p",
        offline_case.install,
        (Path("/p"),),
        {"python": None, "cache": None, "force": False},
    ),
    Case(
        "pull me/m --from hf --to /t --revision r --repo-type dataset --all --trust-remote-code"
        " --verify",
        launch_model_setup.fetch,
        (Wanted("me/m", "hf", Path("/t"), "r", "dataset", True, True, True),),
    ),
    Case("pull me/m", launch_model_setup.fetch, (Wanted("me/m"),)),
    Case(
        f"recommend {LAUNCH} --for latency",
        recommend_case.read,
        (LAUNCHED, RecommendOptions(goal="latency")),
        {"over_servers": True},
    ),
    Case(
        f"render script {LAUNCH} --to /o --name n",
        render_case.render,
        (ScriptTarget, None, LAUNCHED, Destination("/o", "n")),
    ),
    Case(
        f"render docker {LAUNCH} --image i --json",
        render_case.render,
        (DockerTarget, "i", LAUNCHED, Destination(None, several=True)),
    ),
    Case(
        f"render systemd {LAUNCH} --user --run-as me --with-tuning",
        render_case.render,
        (SystemdTarget, unit_options(user=True, run_as="me", with_tuning=True), LAUNCHED, STDOUT),
    ),
    Case(
        f"render systemd {LAUNCH}",
        render_case.render,
        (SystemdTarget, unit_options(), LAUNCHED, STDOUT),
    ),
    Case(
        f"render systemd {LAUNCH} --stack s --user",
        render_case.render_file,
        (SystemdTarget, unit_options(user=True), None, LAUNCHED, STDOUT),
    ),
    Case(
        "render compose --stack s --image i",
        render_case.render_file,
        (ComposeTarget, "i", None, LaunchOptions(), STDOUT),
    ),
    Case(
        "render ray-serve --stack s --to /o/ --machine m --force --json",
        ray_case.ray_serve_several,
        (
            Path("s"),
            None,
            LaunchOptions(machine="m", force=True),
            Destination("/o/", several=True),
        ),
    ),
    Case(f"render ray-serve {LAUNCH}", ray_case.ray_serve, (LAUNCHED, STDOUT)),
    Case(
        f"render kubernetes {LAUNCH} --image i --name n --webui",
        kubernetes_case.render_kubernetes,
        (
            LAUNCHED,
            KubernetesOptions(image="i", name="n", webui=True),
            None,
        ),
        {"helm": False},
    ),
    Case(
        "render kubernetes --stack s --helm /h",
        kubernetes_case.render_several,
        (Path("s"), None, LaunchOptions(), KubernetesOptions()),
        {"helm": True},
    ),
    Case("restart name --drain 5m", launch_stop.restart, ("name", 300.0)),
    Case("restart name", launch_stop.restart, ("name", 30.0)),
    Case(
        f"serve {LAUNCH} --name s --detach --no-wait --restart on-failure --no-doctor --verbose"
        " --phase-timeout 9 --in docker --image i",
        launch_serve.start,
        (
            LAUNCHED,
            ServeMode("s", True, False, "9", "on-failure", True, place="docker", image="i"),
        ),
    ),
    Case("serve /m", launch_serve.start, (MODEL, ServeMode(quiet=True))),
    Case("serve /m --verbose --quiet", launch_serve.start, (MODEL, ServeMode(quiet=True))),
    Case(
        "stack init a b --to /f -p 80 --engine e --python p --machine m",
        stack_init.init,
        (["a", "b"], Path("/f")),
        {"port": "80", "machine": "m", "engine": "e", "python": "p"},
    ),
    Case("stack plan /f --machine m", stack_stack_plan.plan, (Path("/f"), "m")),
    Case("stack plan /f", stack_stack_plan.plan, (Path("/f"), None)),
    Case(
        "stack up /f --no-wait --no-doctor",
        stack_case.up,
        (Path("/f"),),
        {"no_doctor": True, "wait": False},
    ),
    Case("stack up /f", stack_case.up, (Path("/f"),), {"no_doctor": False, "wait": True}),
    Case(
        "stack apply /f --no-doctor --drain 5m",
        stack_case.apply,
        (Path("/f"), ChangeOptions(no_doctor=True, drain=300.0), None),
    ),
    Case("stack restart chat --stack s", stack_case.target, ("chat", "s")),
    Case("stack logs", stack_case.target, ("", "")),
    Case("stack down /f --drain 5", stack_case.down, ("/f", 5.0)),
    Case("stack down /f", stack_case.down, ("/f", 30.0)),
    Case("stack ps /f", stack_case.ps, ("/f",)),
    Case("stack ps", stack_case.ps, (None,)),
    Case("status name --history 30m", status_case.status, ("name", 1800.0)),
    Case("status name", status_case.status, ("name", None)),
    Case(
        "top --hosts a --inventory i --machine m --interval 2 --timeout 3 --once",
        top_case.once,
        (WatchRequest("a", "i", "m", 2.0, 3.0),),
    ),
    Case("top --once", top_case.once, (WatchRequest("", "", None, 1.0, 5.0),)),
    Case(
        f"warmup {LAUNCH} --trace t --graphs 1 --overhead 2 --constant a=1",
        warmup_case.read,
        (LAUNCHED,),
        {
            "trace": "t",
            "goal": WarmupRequest(1, "2"),
            "constants": ["a=1"],
        },
    ),
)


def _comparable(argument: Any) -> Any:
    """Return an argument; a target's class; None for one that has no value to compare."""
    if isinstance(argument, render_case.RenderTarget):
        return type(argument)
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

    monkeypatch.setattr(sys.modules[case.use.__module__], case.use.__name__, called)
    code = run(shlex.split(case.line))
    assert calls == [(case.expected, dict(case.named))]
    assert code == 5
