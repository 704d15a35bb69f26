"""What every rendered file says of itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gaudi_launch.core.planning.container import Container
from gaudi_launch.core.render.text import heading, with_exported, with_files
from tests.support.plans import odd, planned


def test_cards_are_named_where_there_are_any() -> None:
    plan, _ = planned(modules=(0, 1, 2, 3))
    first = "vllm-fork@1.21 serving /models/Qwen2-72B-Instruct"
    assert heading(plan)[0] == f"{first} on cards (module IDs) 0,1,2,3, at http://127.0.0.1:30001"
    without = replace(plan, placement=replace(plan.placement, modules=()))
    assert heading(without)[0] == f"{first}, at http://127.0.0.1:30001"


def test_variables_that_the_user_exported() -> None:
    plan = odd(("python3",), {"VLLM_A": "plan"})
    found = with_exported(plan, {"VLLM_A": "user", "VLLM_B": "user", "HOME": "/h"})
    assert found == replace(plan, command=replace(plan.command, env={
        "VLLM_A": "plan", "VLLM_B": "user",
    }))  # fmt: skip
    contained = replace(plan, command=replace(plan.command, container=Container("i", ())))
    assert with_exported(contained, {"VLLM_B": "user"}) is contained


def test_files_of_a_plan_move_into_a_folder(current_folder: Path, tmp_path: Path) -> None:
    plan = odd(("python3", "--file", "/tmp/x/a", "/tmp/x/b"), {"B": "/tmp/x/b", "C": "c"})
    assert with_files(plan, tmp_path) == (plan, {})
    files = {"/tmp/x/a": "one", "/tmp/x/b": "two"}
    plan = replace(plan, command=replace(plan.command, files=files))
    moved, texts = with_files(plan, Path("out"))
    out = str(tmp_path / "out")
    assert texts == {"a": "one", "b": "two"}
    assert moved == replace(plan, command=replace(
        plan.command,
        argv=("python3", "--file", f"{out}/a", f"{out}/b"),
        env={"B": f"{out}/b", "C": "c"},
        files={f"{out}/a": "one", f"{out}/b": "two"},
    ))  # fmt: skip
