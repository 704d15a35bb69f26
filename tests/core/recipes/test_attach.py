"""A plan with its recipe cache, and one run of an engine on it."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.buckets.warmup_time import Estimate, per_graph
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Command, EngineIdentity, Plan, Setting
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.recipes import keeper
from gaudi_launch.core.recipes.attach import VARIABLE, CacheJob, with_cache
from gaudi_launch.core.recipes.keeper import kept
from gaudi_launch.core.recipes.key import KeyParts, parts_of
from gaudi_launch.core.recipes.ledger import read_ledger
from tests.support.recipes import BUCKETS, PARTS, fill

HOST = Host(product="gaudi2", driver_version="1.21.3")
REQUEST = Request("m")
BASIS = message("cache.flat", path="basis")
OTHER = Setting("A", "b", "env", "computed", BASIS)
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


def reason(graphs: int = 4, per_graph: float = 64, assumed: bool = True) -> Any:
    id = "cache.limit_assumed" if assumed else "cache.limit_measured"
    return message(id, graphs=graphs, per_graph=per_graph)


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
    share = per_graph(None, True).low_seconds / per_graph(None, False).low_seconds
    estimate = found.plan.estimate
    assert estimate is not None
    assert (estimate.low_seconds, estimate.high_seconds) == (100.0 * share, 200.0 * share)
    assert estimate.reason == message("cache.estimate", basis=BASIS.render(), warm=4)
    # 1000 bytes in four graphs; a skipped warm-up needs nothing then
    measured = message("cache.limit_measured", graphs=4, per_graph=0.0)
    assert found.plan.settings[-1].reason == measured
    assert found.plan.warnings == made.warnings


@pytest.mark.parametrize(("option", "dtype"), [("inc", "fp8"), ("awq", None)])
def test_a_cache_with_some_graphs(tmp_path: Path, option: str, dtype: str | None) -> None:
    quantized = Setting("--quantization", option, "option", "computed", BASIS)
    made = plan(settings=(quantized,))
    filled(tmp_path, made, Buckets(BUCKETS.prompt, BUCKETS.decode[:1]))
    found = with_cache(made, REQUEST, HOST, tmp_path)
    assert found is not None and found.plan.estimate is not None
    share = per_graph(dtype, True).low_seconds / per_graph(dtype, False).low_seconds
    factor = 0.25 + 0.75 * share
    assert found.plan.estimate == Estimate(100.0 * factor, 200.0 * factor, BASIS, cached=3)
    assert (found.plan.cache["state"], found.plan.cache["new_graphs"]) == ("partial", 1)


class Running:
    """One run of an engine on a cache: what it says, and its ledger."""

    def __init__(self, root: Path, **changes: Any) -> None:
        self.root = root
        self.said: list[str] = []
        self.job = CacheJob(root, PARTS, BUCKETS.prompt, BUCKETS.decode, **changes)

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


def test_a_skipped_warmup_is_recorded_without_graphs(tmp_path: Path) -> None:
    running = Running(tmp_path, skips_warmup=True)
    running()
    assert running.ledger == (True, Buckets([], []), (5.0,), 900, 3)


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

    monkeypatch.setattr(keeper.Session, "finish", finish)
    running = Running(tmp_path)
    running()
    why = "No space left on device"
    assert running.said == [message("cache.not_written", path=str(tmp_path), why=why).render()]


def test_the_files_of_the_engine_are_shared(tmp_path: Path) -> None:
    tmp_path.chmod(0o2775)
    Running(tmp_path)()
    assert (tmp_path / PARTS.key / "a.recipe").stat().st_mode & 0o060 == 0o060
