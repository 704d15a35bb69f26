"""serve and its recipe cache, on the trivial engine: filled, used again, shared, interrupted, on
a network disk."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.host.simulated import write_tree
from tests.support.cli import called
from tests.support.processes import living, pids, trivial_python
from tests.support.serve import Gaudi, gaudi, machine, model, ready_lines
from tests.support.waiting import GENEROUS, until, unused_port

__all__ = ["gaudi", "machine", "model", "pids", "trivial_python"]


def free_port() -> str:
    return str(unused_port())


def serve_once(user: Gaudi, *words: str) -> str:
    """Serve until it answers, then stop it; what it said on stderr."""
    process = user.start(*words, "-p", free_port(), "--verbose")
    ready_lines(process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=GENEROUS)
    assert process.returncode == 130, err
    return err


def command(user: Gaudi, *words: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(called(user.environment, *words, "--json")[1])
    return document


def planned(user: Gaudi, *words: str) -> dict[str, Any]:
    return command(user, "plan", "--python", str(user.python), *words)


def test_the_second_start_is_a_hit_and_its_estimate_follows(
    gaudi: Gaudi, model: Path, tmp_path: Path
) -> None:
    root = tmp_path / "recipes"
    words = ("-w", str(model), "-n", "2", "-c", str(root))
    cold = planned(gaudi, *words)
    assert cold["cache"]["state"] == "miss" and not root.exists()
    folder = cold["env"]["PT_HPU_RECIPE_CACHE_CONFIG"].split(",")[0]
    assert folder == str(root / cold["cache"]["key"])
    assert "read graph" not in serve_once(gaudi, *words)
    warm = planned(gaudi, *words)
    assert (warm["cache"]["state"], warm["cache"]["new_graphs"]) == ("hit", 0)
    assert warm["estimate"]["warmup_seconds"]["high"] < cold["estimate"]["warmup_seconds"]["high"]
    assert "read graph_4.recipe" in serve_once(gaudi, *words)
    (row,) = command(gaudi, "cache", "list", "-c", str(root))["entries"]
    assert (row["state"], row["model"], row["cards"], row["files"]) == ("hit", "Small", 2, 4)
    assert command(gaudi, "cache", "verify", "-c", str(root))["sound"]


def test_other_cards_share_the_key_and_other_counts_do_not(
    gaudi: Gaudi, model: Path, tmp_path: Path
) -> None:
    words = ("-w", str(model), "-c", str(tmp_path / "recipes"))
    keys = [
        planned(gaudi, *words, "-m", cards)["cache"]["key"] for cards in ("0,1", "4,5", "0,1,2,3")
    ]
    assert keys[0] == keys[1] != keys[2]


def test_two_services_use_one_key_at_once(gaudi: Gaudi, model: Path, tmp_path: Path) -> None:
    words = ("-w", str(model), "-n", "2", "-c", str(tmp_path / "recipes"))
    serve_once(gaudi, *words)
    both = [gaudi.start(*words, "-p", free_port()) for _ in range(2)]
    for process in both:
        assert ready_lines(process)[0].startswith("Ready after ")
    (row,) = command(gaudi, "cache", "list", "-c", str(tmp_path / "recipes"))["entries"]
    assert row["in_use"]
    pruned = command(
        gaudi, "cache", "prune", "--max-size", "0", "--yes", "-c", str(tmp_path / "recipes")
    )
    assert pruned["removed"] == []
    for process in both:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=GENEROUS)


def test_a_launch_killed_in_its_warm_up_claims_nothing(
    gaudi: Gaudi, model: Path, tmp_path: Path, pids: Path
) -> None:
    words = ("-w", str(model), "-n", "2", "-c", str(tmp_path / "recipes"))
    process = gaudi.start(*words, "-p", free_port(), do="hang")
    until(lambda: list((tmp_path / "recipes").glob("*/graph_2.recipe")), "the second recipe")
    process.kill()
    process.communicate()
    for pid in living(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    found = planned(gaudi, *words)["cache"]
    assert found["state"] == "partial" and "interrupted" in found["because"]
    assert "read graph_1.recipe" in serve_once(gaudi, *words)
    assert planned(gaudi, *words)["cache"]["state"] == "hit"


def test_a_network_disk_is_copied_to_and_fro(
    gaudi: Gaudi, model: Path, machine: Path, tmp_path: Path
) -> None:
    root = tmp_path / "nfs"
    root.mkdir()
    shutil.rmtree(machine)
    mounts = f"/dev/sda1 / ext4 rw 0 0\nserver:/x {root} nfs4 rw 0 0\n"
    write_tree("hls2", machine, files={"proc/mounts": mounts})
    words = ("-w", str(model), "-n", "2", "-c", str(root))
    plan = planned(gaudi, *words)
    local = tmp_path / "cache" / "gaudi-launch" / "recipes-local" / plan["cache"]["key"]
    assert plan["env"]["PT_HPU_RECIPE_CACHE_CONFIG"].startswith(f"{local},false,")
    assert "cache.network" in [warning["id"] for warning in plan["warnings"]]
    serve_once(gaudi, *words)
    assert sorted(p.name for p in (root / plan["cache"]["key"]).iterdir()) == [
        f"graph_{n}.recipe" for n in range(1, 5)
    ]
    assert planned(gaudi, *words)["cache"]["state"] == "hit"


def test_skipping_warm_up_without_a_hit_says_what_compiles(
    gaudi: Gaudi, model: Path, tmp_path: Path
) -> None:
    plan = planned(gaudi, "-w", str(model), "-c", str(tmp_path / "recipes"), "-s")
    (warning,) = [w for w in plan["warnings"] if w["id"] == "cache.skip_incomplete"]
    assert str(plan["buckets"]["graphs"]) in warning["message"]


def test_a_flat_folder_of_the_scripts_works_unchanged(
    gaudi: Gaudi, model: Path, tmp_path: Path
) -> None:
    root = tmp_path / "old"
    root.mkdir()
    (root / "graph_1.recipe").write_bytes(b"old")
    assert "read graph_1.recipe" in serve_once(gaudi, "-w", str(model), "-c", str(root))
    assert (root / "graph_1.recipe").read_bytes() == b"old"
    plan = planned(gaudi, "-w", str(model), "-c", str(root))
    assert (plan["cache"]["state"], plan["cache"]["folder"]) == ("hit", str(root))


def test_reference_tuning_keeps_the_scripts_value(
    gaudi: Gaudi, model: Path, tmp_path: Path
) -> None:
    plan = planned(gaudi, "-w", str(model), "-c", "/data/cache", "--tuning", "reference")
    assert (
        plan["env"]["PT_HPU_RECIPE_CACHE_CONFIG"] == "/data/cache,false,16384"
        and plan["cache"] is None
    )


@pytest.mark.parametrize("kind", ["file", "missing-parent"])
def test_a_cache_that_cannot_be_used_costs_no_service(
    gaudi: Gaudi, model: Path, tmp_path: Path, kind: str
) -> None:
    root = tmp_path / "blocked"
    root.write_text("a file")
    err = serve_once(
        gaudi, "-w", str(model), "-c", str(root if kind == "file" else root / "deeper")
    )
    assert "is disabled" in err
