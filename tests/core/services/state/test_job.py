"""The record of a service: whatever is stored comes back, and nothing else is a job."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.planning.container import Container
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Command, EngineIdentity, Plan
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.recipes.attach import Cached
from gaudi_launch.core.recipes.cache_root import Use
from gaudi_launch.core.recipes.key import KeyParts
from gaudi_launch.core.services.state import store
from gaudi_launch.core.services.state.job import FILE, ServiceJob, check_restart, job_of, read_job
from tests.support.refusals import refused

COMMAND = Command(
    argv=("python3", "-m", "vllm"),
    env={"A": "1"},
    unset=("B",),
    cpus=(1, 2),
    memory_node=0,
    working_dir="/w",
    files={"/f": "text"},
)
JOB = ServiceJob(
    name="chat",
    model="m",
    model_path="/m",
    engine="vllm-gaudi@0.26.0",
    url="http://127.0.0.1:1",
    command=COMMAND,
    modules=(0, 1),
    graphs=7,
    dtype="fp8",
    limits={"load": 60.0},
    bind=False,
    restart="on-failure",
    environment={"HF_HOME": "/h"},
    secrets=("HF_TOKEN",),
    container="c",
    api="generate",
    simulated=True,
    health_only=True,
)


def test_a_job_is_stored_and_read(tmp_path: Path) -> None:
    assert store.write(tmp_path, FILE, JOB)
    assert read_job(tmp_path) == JOB


def test_older_jobs_name_their_engine_only(tmp_path: Path) -> None:
    document = codec.write(JOB)
    for name in ("api", "simulated", "health_only"):
        del document[name]
    store.write(tmp_path, FILE, {**document, "engine": "vllm-gaudi@0.26.0"})
    found = read_job(tmp_path)
    assert (found.api, found.simulated, found.health_only) == ("openai", False, False)


PLAN = Plan(
    engine=EngineIdentity("vllm-gaudi", "0.26.0"),
    model={"name": "m", "path": "/m"},
    placement=Placement((0, 1)),
    settings=(),
    command=replace(COMMAND, working_dir=None),
    url="http://127.0.0.1:1",
    dtype="fp8",
)


def test_the_job_of_a_plan(current_folder: Path) -> None:
    request = Request(
        model="/m",
        environment={"HF_HOME": "/h", "HF_TOKEN": "hf_private", "VLLM_API_KEY": "", "OTHER": "1"},
    )
    made = job_of(PLAN, request, "chat")
    assert made == ServiceJob(
        name="chat",
        model="m",
        model_path="/m",
        engine="vllm-gaudi@0.26.0",
        url="http://127.0.0.1:1",
        command=replace(COMMAND, working_dir=str(current_folder)),
        modules=(0, 1),
        dtype="fp8",
        environment=made.environment,
        secrets=("HF_TOKEN",),
    )
    assert made.environment["HF_HOME"] == "/h"
    assert not {"HF_TOKEN", "OTHER"} & set(made.environment)
    assert "hf_private" not in json.dumps(codec.write(made))


def test_a_plan_with_a_container_graphs_and_a_cache() -> None:
    buckets = Buckets([[1, 128, 0]], [[1, 1, 128], [2, 1, 128]])
    parts = KeyParts(model="m")
    cached = Cached(
        PLAN,
        parts,
        Path("/c"),
        Use("hit", "k", Path("/c/k"), Buckets([], []), message("cache.hit")),
    )
    command = replace(COMMAND, container=Container("i", (), name="box"))
    plan = replace(PLAN, command=command, buckets=buckets)
    made = job_of(plan, Request(model="/m"), "chat", cached)
    assert (made.container, made.graphs, made.cache) == ("box", buckets.graphs, cached.job)
    assert made.command.working_dir == "/w"
    shown = replace(PLAN, engine=replace(PLAN.engine, simulated=True, api="generate"))
    made = job_of(shown, Request(model="/m"), "chat")
    assert (made.modules, made.simulated, made.api, made.bind) == ((), True, "generate", True)
    assert (made.container, made.graphs, made.cache, made.restart) == ("", 0, None, "no")


def test_a_policy_of_restarts_is_one_of_two() -> None:
    assert [check_restart(word) for word in ("no", "on-failure")] == ["no", "on-failure"]
    with refused("services.restart_word", ExitCode.USAGE, found="always", known="no, on-failure"):
        check_restart("always")
