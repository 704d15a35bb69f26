"""Installed releases that no facts are shipped for are read by the program that makes them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.buckets.ladder_rules import LadderRules
from gaudi_launch.core.engines.facts.installed import InstalledFacts, read_installed
from gaudi_launch.core.engines.facts.source import UNTIL
from gaudi_launch.core.engines.known_versions import installed_versions, releases, version_of
from gaudi_launch.core.engines.version_facts import names_of, reads_variable
from gaudi_launch.core.launch.route import checked_plan
from gaudi_launch.core.launch.todo import CheckedPlan
from gaudi_launch.core.planning.launch_options import LaunchOptions
from tests.support.cli import reading
from tests.support.places import TOP
from tests.support.refusals import raising
from tests.support.stand_in_release import StandInRelease, install, packages

OVER, PLAIN = "gaudi.buckets_over_cache", StandInRelease("0.98.0")
CHANGED = StandInRelease(
    "0.99.0",
    LadderRules(decode_top="cut", cut=2),
    (*PLAIN.options, "--new-one", "--new-two"),
    (*PLAIN.variables, "VLLM_NEW_VARIABLE"),
)


PLAN = "plan Qwen3-32B -n 1 -b 256 -l 32768 --machine simulated:hls2 --json --python"
ALIKE = ("argv", "env", "settings", "buckets", "num_blocks", "memory")
# its number has shipped facts, and its files are others
PATCHED = replace(CHANGED, version="0.26.0")


@pytest.fixture(autouse=True)
def _apart(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("VLLM_EXPONENTIAL_BUCKETING", "true")
    yield
    installed_versions.cache_clear()


def planned(python: Path) -> CheckedPlan:
    return checked_plan(
        LaunchOptions(
            model="Qwen3-32B",
            python=str(python),
            cards=1,
            max_num_seqs=256,
            max_model_len=32768,
            machine="simulated:hls2",
        )
    )


def facts_of(python: Path) -> dict[str, str]:
    site = str(packages(python))
    return {"plugin": PLAIN.version, "plugin_source": site, "source": site, "vllm": "0.26.0"}


def ran(folder: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, check=True, stdout=subprocess.PIPE
    )
    return done.stdout.decode()


def kept(tmp_path: Path) -> list[dict[str, Any]]:
    files = sorted((tmp_path / "cache").rglob("engine-facts/*.json"))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def test_a_release_without_facts_is_planned_by_its_own_code(tmp_path: Path) -> None:
    stand_ins = (PLAIN, CHANGED, PATCHED)
    plans = [planned(install(tmp_path / each.version, each)).plan for each in stand_ins]
    tops = [max(each[2] for each in plan.buckets.decode) for plan in plans if plan.buckets]
    cut = 2 * (plans[1].num_blocks or 0)
    assert tops == [65536, cut, cut]
    for plan, release in zip(plans, stand_ins, strict=True):
        assert plan.engine.version == release.version
        said = [each for each in plan.warnings if each.id.startswith("plan.facts_")]
        assert [(each.id, each.values) for each in said] == [
            ("plan.facts_installed", {"version": release.version}),
            ("plan.facts_only_read", {"version": release.version, "names": "state blocks"}),
        ]
        ids = {each.id for each in plan.warnings} & {OVER, "plan.engine_buckets"}
        assert ids == ({OVER} if release is PLAIN else set())
    facts = version_of("vllm-gaudi", "0.99.0")
    assert facts is not None
    assert {*names_of(facts).options} == {*CHANGED.options}
    assert reads_variable(facts, "VLLM_NEW_VARIABLE")
    assert LadderRules(**facts.buckets) == CHANGED.rules


def test_every_command_uses_the_facts_of_the_installation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--python", str(install(tmp_path / "a", CHANGED))]
    found = reading(capsys, "engines", "diff", "vllm-gaudi@0.26", "vllm-gaudi@0.99", *words)
    assert "VLLM_NEW_VARIABLE" in found["variables"]["added"]
    assert run(["engines", "--all", *words]) == 0
    assert "0.99.0 (facts read from its installation," in " ".join(capsys.readouterr().out.split())
    assert run(["warmup", "-w", "Qwen3-32B", "--machine", "simulated:hls2", *words]) == 0
    assert "Facts of 0.99.0 read" in " ".join(capsys.readouterr().out.split())


def test_the_facts_are_read_once_for_the_same_files(tmp_path: Path) -> None:
    python = install(tmp_path / "a", PLAIN)
    first = planned(python).plan
    (found,) = kept(tmp_path)
    # the kept facts count, not another reading
    mark = next((tmp_path / "cache").rglob("engine-facts/*.json"))
    mark.write_text(mark.read_text(encoding="utf-8").replace("2026", "1999"), encoding="utf-8")
    again = planned(python).plan
    assert again.engine.facts_date.startswith("1999")
    assert (again.settings, again.buckets) == (first.settings, first.buckets)
    assert found["version"] == "0.98.0" and len(kept(tmp_path)) == 1
    mark.write_text(json.dumps({**found, "late": True, "date": "1999"}), encoding="utf-8")
    assert planned(python).plan.engine.facts_date == found["date"] == kept(tmp_path)[0]["date"]
    features = packages(python) / "vllm_gaudi/extension/features.py"
    features.write_text('import os\nos.environ.get("VLLM_OTHER")\n', encoding="utf-8")
    planned(python)
    assert len(kept(tmp_path)) == 2


def test_without_time_everything_is_assumed_and_nothing_kept(tmp_path: Path) -> None:
    python = install(tmp_path / "a", PATCHED)
    before = UNTIL.set(time.monotonic())
    told = {each.id: each.values for each in planned(python).plan.warnings}
    UNTIL.reset(before)
    assert told["plan.facts_assumed"]["names"] == "options, buckets, models" and not kept(tmp_path)
    assert "plan.facts_assumed" not in {each.id for each in planned(python).plan.warnings}


def test_the_shipped_facts_are_what_the_probe_keeps_and_plan_the_same(tmp_path: Path) -> None:
    python = install(tmp_path / "a", replace(PLAIN, version="0.26.0"))
    for folder in ("gaudi_launch", "profiles", "scripts"):
        shutil.copytree(TOP / folder, tmp_path / folder)
    shipped = tmp_path / "profiles/engines/support/vllm-gaudi-0.26.0.json"
    shipped.unlink()
    facts, site = "scripts/engine_facts.py", str(packages(python))

    def plan() -> Any:
        ran(tmp_path, facts, "index")
        return json.loads(ran(tmp_path, "-m", "gaudi_launch", *PLAN.split(), str(python)))

    own = plan()
    (found,) = kept(tmp_path)
    words = ["read", "vllm-gaudi", "0.26.0", "--checkout", site, "--repository", "installed"]
    words += ["--commit", "", "--date", found["date"], "--upstream", site]
    words += ["--upstream-version", "0.26.0", "--python", os.path.relpath(python, tmp_path)]
    ran(tmp_path, facts, *words)
    assert json.loads(shipped.read_text(encoding="utf-8")) == found
    told = [plan(), own]
    ids = [{each["id"] for each in made["warnings"]} for made in told]
    assert ["plan.facts_installed" in each for each in ids] == [False, True]
    assert [told[0][name] for name in ALIKE] == [own[name] for name in ALIKE]


def test_what_the_installation_cannot_answer_is_named(tmp_path: Path) -> None:
    python = install(tmp_path / "a", PLAIN)
    (packages(python) / "vllm/utils/argparse_utils.py").write_text("import absent\n")
    (packages(python) / "vllm_gaudi/extension/bucketing/common.py").write_text("raise OSError\n")
    newest = next(each for each in reversed(releases("vllm-gaudi")) if each.complete)
    with raising("plan.buckets_fail"):
        planned(python)
    found = read_installed(str(python), facts_of(python))
    assert found == InstalledFacts(
        "0.98.0", ("buckets",), newest.label, ("options", "state blocks")
    )


@pytest.mark.parametrize(
    ("version", "id", "near"),
    [
        ("0.30", "support.no_facts", "vllm-gaudi@0.26.0"),
        ("0.18.1", "support.no_facts", "vllm-gaudi@0.19.0"),
        ("0.21.0.post1", "support.no_facts", "vllm-gaudi@0.21.0"),
        ("0.10.1", "support.not_executed", "vllm-gaudi@0.11.2"),
        ("main", "support.not_executed", "vllm-gaudi@0.26.0"),
    ],
)
def test_a_named_release_is_planned_only_where_its_code_was_executed(
    version: str, id: str, near: str
) -> None:
    with pytest.raises(LaunchError) as refused:
        checked_plan(
            LaunchOptions(
                model="Qwen3-8B", engine=f"vllm-gaudi@{version}", machine="simulated:hls2"
            )
        )
    known = [each.label for each in reversed(releases("vllm-gaudi")) if each.executed]
    assert (refused.value.id, refused.value.exit_code) == (id, 2)
    assert refused.value.text.values == {
        "found": f"vllm-gaudi@{version}",
        "known": ", ".join(known),
        "near": near,
        "date": "2026-08-06",
    }
