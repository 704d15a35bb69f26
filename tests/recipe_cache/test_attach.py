"""A plan with its recipe cache, and one run of an engine on it."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.buckets.bucket_list import Buckets
from gaudi_launch.buckets.warmup_time import per_graph
from gaudi_launch.host.hardware import Host
from gaudi_launch.messages import message
from gaudi_launch.planning.container import Container
from gaudi_launch.planning.plan import (
    Command,
    EngineIdentity,
    Estimate,
    Placement,
    Plan,
    Setting,
)
from gaudi_launch.planning.request import Request
from gaudi_launch.recipe_cache import attach, cache_root
from gaudi_launch.recipe_cache.attach import (
    VARIABLE,
    CacheJob,
    default_root,
    kept,
    with_cache,
    without_cache,
)
from gaudi_launch.recipe_cache.key import KeyParts, parts_of
from gaudi_launch.recipe_cache.key_locks import held
from gaudi_launch.recipe_cache.ledger import read_ledger
from tests.support.recipes import BUCKETS, PARTS, fill

HOST = Host(product="gaudi2", driver_version="1.21.3")
REQUEST = Request("m")
BASIS = message("cache.flat", path="basis")
OTHER = Setting("A", "b", "env", "computed", BASIS)
DOCS = "docs: Runtime Environment Variables"
FREE = 1 << 50


def plan(**changes: Any) -> Plan:
    """Return a plan of four graphs, whose cache another rule has set."""
    old = Setting(VARIABLE, "/old,false,1", "env", "computed", BASIS)
    command = Command(("python", "-m", "e"), {"A": "b", VARIABLE: "/old,false,1"})
    made = Plan(
        EngineIdentity("vllm-fork", "1.21"),
        {"name": "m", "path": "/m"},
        Placement((0, 1)),
        (old, OTHER),
        command,
        "http://x:1",
        buckets=BUCKETS,
        estimate=Estimate(100.0, 200.0, BASIS),
        warnings=(message("cache.miss_first"),),
    )
    return replace(made, **changes)


@pytest.fixture(autouse=True)
def disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=FREE))


def reason(graphs: int = 4, per_graph: float = 64, free: int = FREE, assumed: bool = True) -> Any:
    id = "cache.limit_assumed" if assumed else "cache.limit_measured"
    return message(id, graphs=graphs, per_graph=per_graph, room=int(free * 0.9 / (1 << 20)))


def test_a_cache_that_does_not_exist_yet(tmp_path: Path) -> None:
    made = plan()
    found = with_cache(made, REQUEST, HOST, tmp_path, machine_root=tmp_path)
    assert found is not None
    parts = parts_of(made, HOST, None)
    root = default_root(tmp_path)
    folder = root / parts.key
    value = f"{folder},false,16384"
    because = message("cache.miss_first")
    use = cache_root.Use("miss", parts.key, folder, BUCKETS, because)
    setting = Setting(VARIABLE, value, "env", "computed", reason(), DOCS)
    expected = replace(
        made,
        settings=(OTHER, setting),
        command=replace(made.command, env={"A": "b", VARIABLE: value}),
        cache={
            "state": "miss",
            "key": parts.key,
            "folder": str(folder),
            "because": because.render(),
            "new_graphs": 4,
        },
    )
    assert found == attach.Cached(expected, parts, root, use, None)
    assert found.job == CacheJob(root, parts, BUCKETS, None, because.render(), False)
    assert root == tmp_path / "recipes"
    # nothing is written
    assert [*tmp_path.iterdir()] == []


def test_a_cache_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    found = with_cache(
        plan(), replace(REQUEST, cache_dir="~/mine"), HOST, tmp_path, machine_root=tmp_path
    )
    assert found is not None
    assert found.root == tmp_path / "me" / "mine"
    assert found.plan.settings[-1].source == "flag"
    monkeypatch.chdir(tmp_path)
    found = with_cache(plan(), replace(REQUEST, cache_dir="near"), HOST, tmp_path)
    assert found is not None and found.root == tmp_path / "near"


CONTAINER = Container("image", ())


@pytest.mark.parametrize(
    ("changes", "request_changes"),
    [
        ({}, {"tuning": "reference"}),
        ({"placement": Placement(())}, {}),
        ({"command": replace(plan().command, container=CONTAINER)}, {}),
        ({}, {"environment": {VARIABLE: "/own"}}),
    ],
)
def test_caches_that_are_not_ours(
    tmp_path: Path, changes: dict[str, Any], request_changes: dict[str, Any]
) -> None:
    request = replace(REQUEST, **request_changes)
    assert with_cache(plan(**changes), request, HOST, tmp_path) is None


def test_a_plan_for_another_machine_reads_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> Any:
        raise AssertionError

    monkeypatch.setattr(shutil, "disk_usage", read)
    monkeypatch.setattr(cache_root, "look_up", read)
    monkeypatch.setattr(attach, "file_system", read)
    quant = tmp_path / "quant.json"
    quant.write_text("{}")
    made = plan(command=Command(("e",), {"QUANT_CONFIG": str(quant)}), skips_warmup=True)
    found = with_cache(made, REQUEST, HOST, tmp_path, look=False)
    assert found is not None
    parts = parts_of(made, HOST, None)
    folder = tmp_path / "recipes" / parts.key
    assert found.use == cache_root.Use(
        "miss", parts.key, folder, BUCKETS, message("cache.not_looked")
    )
    assert (found.plan.cache["state"], found.local) == ("unknown", None)
    assert found.plan.settings[-1].reason == reason()
    assert found.plan.warnings[1:] == (message("cache.skip_incomplete", new=4),)


def test_the_quantisation_file_is_a_part_of_the_key(tmp_path: Path) -> None:
    quant = tmp_path / "quant.json"
    quant.write_text("{}" + " " * (1 << 20))
    made = plan(command=Command(("e",), {"QUANT_CONFIG": str(quant)}))
    found = with_cache(made, REQUEST, HOST, tmp_path)
    assert found is not None
    # its first MiB
    assert found.parts == parts_of(made, HOST, quant.read_bytes()[: 1 << 20])
    quant.unlink()
    found = with_cache(made, REQUEST, HOST, tmp_path)
    assert found is not None and found.parts == parts_of(made, HOST, None)


def mounted(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "mounts").write_text(f"server:/x {tmp_path}/shared nfs4 rw 0 0\n")


def test_a_cache_on_a_network_file_system_is_copied(tmp_path: Path) -> None:
    mounted(tmp_path)
    request = replace(REQUEST, cache_dir=str(tmp_path / "shared"))
    found = with_cache(plan(), request, HOST, tmp_path, machine_root=tmp_path)
    assert found is not None
    local = tmp_path / "recipes-local" / found.parts.key
    assert (found.local, found.job.local) == (local, local)
    assert found.plan.command.env[VARIABLE] == f"{local},false,16384"
    assert found.plan.cache["folder"] == str(tmp_path / "shared" / found.parts.key)
    assert found.plan.warnings[1:] == (
        message("cache.network", path=str(tmp_path / "shared"), local=str(local)),
    )


def test_a_disk_that_is_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted(tmp_path)
    (tmp_path / "shared").mkdir()
    asked: list[Path] = []

    def usage(path: Path) -> Any:
        asked.append(path)
        if not path.exists():
            raise FileNotFoundError
        return SimpleNamespace(free=100 << 20)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    request = replace(REQUEST, cache_dir=str(tmp_path / "shared"))
    found = with_cache(plan(), request, HOST, tmp_path, machine_root=tmp_path)
    assert found is not None and found.local is not None
    # of the disk that the engine writes to
    assert asked == [found.local, found.local.parent, tmp_path]
    assert found.plan.warnings[1] == message("cache.limit_small", path=str(found.local), mib=90)
    assert found.plan.command.env[VARIABLE] == f"{found.local},false,90"


def test_a_disk_that_is_unknown_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def usage(path: Path) -> Any:
        raise OSError

    monkeypatch.setattr(shutil, "disk_usage", usage)
    found = with_cache(plan(), REQUEST, HOST, tmp_path)
    assert found is not None and found.plan.command.env[VARIABLE].endswith(",false,1")


def filled(tmp_path: Path, made: Plan, buckets: Buckets) -> KeyParts:
    parts = parts_of(made, HOST, None)
    fill(tmp_path / "recipes", parts, buckets)
    return parts


def test_a_cache_with_every_graph(tmp_path: Path) -> None:
    made = plan(skips_warmup=True)
    filled(tmp_path, made, BUCKETS)
    found = with_cache(made, REQUEST, HOST, tmp_path)
    assert found is not None
    assert (found.use.state, found.job.because) == ("hit", "")
    share = per_graph(None, True).low / per_graph(None, False).low
    estimate = found.plan.estimate
    assert estimate is not None
    assert (estimate.low_seconds, estimate.high_seconds) == (100.0 * share, 200.0 * share)
    assert estimate.reason == message("cache.estimate", basis=BASIS.render(), warm=4)
    # 1000 bytes in four graphs; a skipped warm-up needs nothing then
    measured = message("cache.limit_measured", graphs=4, per_graph=0.0, room=FREE * 9 // 10 >> 20)
    assert found.plan.settings[-1].reason == measured
    assert found.plan.warnings == made.warnings


@pytest.mark.parametrize(("option", "dtype"), [("inc", "fp8"), ("awq", None)])
def test_a_cache_with_some_graphs(tmp_path: Path, option: str, dtype: str | None) -> None:
    quantized = Setting("--quantization", option, "option", "computed", BASIS)
    made = plan(settings=(quantized,))
    filled(tmp_path, made, Buckets(BUCKETS.prompt, BUCKETS.decode[:1]))
    found = with_cache(made, REQUEST, HOST, tmp_path)
    assert found is not None and found.plan.estimate is not None
    share = per_graph(dtype, True).low / per_graph(dtype, False).low
    factor = 0.25 + 0.75 * share
    assert found.plan.estimate == Estimate(100.0 * factor, 200.0 * factor, BASIS, cached=3)
    assert (found.plan.cache["state"], found.plan.cache["new_graphs"]) == ("partial", 1)


@pytest.mark.parametrize("changes", [{"buckets": None}, {"buckets": Buckets([], [])}])
def test_without_buckets_the_estimate_stays(tmp_path: Path, changes: dict[str, Any]) -> None:
    made = plan(**changes)
    filled(tmp_path, made, Buckets([], []))
    found = with_cache(made, REQUEST, HOST, tmp_path)
    assert found is not None and found.plan.estimate == made.estimate
    assert found.job.buckets == Buckets([], [])
    without = with_cache(plan(estimate=None), REQUEST, HOST, tmp_path)
    assert without is not None and without.plan.estimate is None


def test_an_engine_without_a_cache() -> None:
    command = Command(("e",), {"A": "b", VARIABLE: "/x"}, cpus=(1,))
    assert without_cache(command) == replace(command, env={"A": "b"})


def test_a_warmup_that_is_skipped_leaves_no_graphs(tmp_path: Path) -> None:
    command = Command(("e",), {"VLLM_SKIP_WARMUP": "true"})
    found = with_cache(plan(command=command), REQUEST, HOST, tmp_path)
    assert found is not None and found.job.skips_warmup


@pytest.mark.parametrize(
    "job",
    [
        CacheJob(Path("/r"), PARTS, BUCKETS),
        CacheJob(Path("/r"), PARTS, BUCKETS, Path("/l"), "why", True),
    ],
)
def test_a_job_is_stored_and_read(job: CacheJob) -> None:
    assert CacheJob.from_json(json.loads(json.dumps(job.to_json()))) == job


class Running:
    """One run of an engine on a cache: what it says, and its ledger."""

    def __init__(self, root: Path, **changes: Any) -> None:
        self.root = root
        self.said: list[str] = []
        self.job = CacheJob(root, PARTS, BUCKETS, **changes)

    def __call__(self, seconds: float | None = 5.0, num_blocks: int | None = 900) -> None:
        with kept(self.job, self.said.append, 0.0) as keeper:
            folder = self.job.local or self.root / PARTS.key
            (folder / "a.recipe").write_bytes(b"abc")
            if seconds is not None:
                keeper.warm(seconds, num_blocks)

    @property
    def ledger(self) -> tuple[object, ...]:
        found = read_ledger(self.root, PARTS.key)
        assert found is not None
        return found.complete, found.buckets, found.filled_seconds, found.num_blocks, found.bytes


def test_a_warm_engine_leaves_a_ledger(tmp_path: Path) -> None:
    running = Running(tmp_path, because="why")
    running()
    assert running.ledger == (True, BUCKETS, (5.0,), 900, 3)
    assert running.said == ["why"]
    again = Running(tmp_path)
    again()
    assert again.said == []


def test_an_engine_that_never_answered_leaves_none(tmp_path: Path) -> None:
    running = Running(tmp_path, because="why")
    running(None)
    assert running.ledger == (False, Buckets([], []), (), None, 0)


def test_a_skipped_warmup_is_recorded_without_graphs(tmp_path: Path) -> None:
    running = Running(tmp_path, skips_warmup=True)
    running()
    assert running.ledger == (True, Buckets([], []), (5.0,), 900, 3)


def test_the_copy_on_a_local_disk_is_brought_back(tmp_path: Path) -> None:
    root, local = tmp_path / "root", tmp_path / "far" / "local"
    running = Running(root, local=local)
    running()
    copying = message("cache.copying", path=str(root), local=str(local)).render()
    assert running.said == [copying]
    assert (root / PARTS.key / "a.recipe").read_bytes() == b"abc"
    assert running.ledger == (True, BUCKETS, (5.0,), 900, 3)
    # what was compiled after it was warm; and the next run gets all of it
    with kept(running.job, running.said.append, 0.0) as keeper:
        keeper.warm(1.0, 900)
        (local / "late.recipe").write_bytes(b"later")
    assert (root / PARTS.key / "late.recipe").read_bytes() == b"later"
    shutil.rmtree(local)
    with kept(running.job, running.said.append, 0.0):
        assert sorted(path.name for path in local.iterdir()) == ["a.recipe", "late.recipe"]


def test_a_fill_by_another_launch_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    original = cache_root.opened

    def opened(*words: Any, wait_seconds: float) -> Any:
        waited.append(wait_seconds)
        return original(*words)

    said: list[str] = []
    job = CacheJob(tmp_path, PARTS, BUCKETS, because="why")
    monkeypatch.setattr(cache_root, "opened", opened)
    with held(tmp_path, PARTS.key, exclusive=True, fill=True):
        try:
            with kept(job, said.append):
                raise AssertionError
        except Exception as error:
            assert type(error).__name__ == "LaunchError"
    # for an hour
    assert (said, waited) == ([message("cache.waiting", key=PARTS.key).render()], [3600.0])


def test_files_that_were_removed_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / PARTS.key
    folder.mkdir()
    for name in ("a.recipe", "b.recipe"):
        (folder / name).touch()
    running = Running(tmp_path)
    running()
    assert running.said == [message("cache.repaired", count=2).render()]


def test_a_ledger_that_cannot_be_written_does_not_end_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish(*_: object) -> None:
        assert threading.current_thread() is not threading.main_thread()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_root.Session, "finish", finish)
    running = Running(tmp_path)
    running()
    why = "No space left on device"
    assert running.said == [message("cache.not_written", path=str(tmp_path), why=why).render()]


def test_the_files_of_the_engine_are_shared(tmp_path: Path) -> None:
    tmp_path.chmod(0o2775)
    Running(tmp_path)()
    assert (tmp_path / PARTS.key / "a.recipe").stat().st_mode & 0o060 == 0o060
