"""Long tests run the vendor's tools; here small programs stand for them, as real processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.doctor import deep
from gaudi_launch.core.doctor.findings import DoctorFacts, Finding
from gaudi_launch.core.doctor.runner import CHECKS, judge
from gaudi_launch.core.host.hardware import Holder
from tests.support import doctor_machines as m

BY_ID = {check.id: check for check in CHECKS}
# the lines that the tools print at the end, as their manuals show them
DEMO = "print('[BENCHMARK]     NW Bandwidth                         : 258.209121 GB/s')"


def live(root: Path) -> DoctorFacts:
    facts = m.facts("hls2")
    return replace(facts, live=True, config=replace(facts.config, root=str(root), root_user=True))


def demo(root: Path, code: str) -> None:
    folder = root / "opt/hccl_demo"
    folder.mkdir(parents=True)
    (folder / "run_hccl_demo.py").write_text(code)


def qual(root: Path, script: str) -> None:
    folder = root / "opt/habanalabs/qual/gaudi2/bin"
    folder.mkdir(parents=True)
    (folder / "hl_qual").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "hl_qual").chmod(0o755)


def result(id: str, facts: DoctorFacts) -> tuple[str, str]:
    finding: Finding = judge(BY_ID[id], facts)
    return finding.status, finding.message.id


def test_all_reduce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HCCL_DEMO_HOME", raising=False)
    assert result("deep.all_reduce", live(tmp_path)) == ("skip", "doctor.deep.no_demo")
    demo(
        tmp_path,
        f"import os, sys\nassert os.environ['HCCL_COMM_ID'] and sys.argv[2] == '8'\n{DEMO}\n",
    )
    finding = judge(BY_ID["deep.all_reduce"], live(tmp_path))
    assert (finding.status, finding.found) == ("ok", "258.209121 GB/s")
    (tmp_path / "opt/hccl_demo/run_hccl_demo.py").write_text(
        "import sys\nsys.exit('synStatus=26')\n"
    )
    finding = judge(BY_ID["deep.all_reduce"], live(tmp_path))
    assert (finding.status, finding.found) == ("fail", "exit 1: synStatus=26")


def test_bandwidths(tmp_path: Path) -> None:
    facts = live(tmp_path)
    assert result("deep.memory_bandwidth", facts) == ("skip", "doctor.deep.no_qual")
    qual(tmp_path, 'echo "$@" > asked; echo "HBM 2.1 TB/s"; echo PASSED')
    assert result("deep.memory_bandwidth", facts) == ("ok", "doctor.ok")
    asked = tmp_path / "opt/habanalabs/qual/gaudi2/bin/asked"
    assert asked.read_text() == "-gaudi2 -c all -rmod parallel -mb -memOnly -dis_mon\n"
    assert result("deep.pcie_bandwidth", facts) == ("ok", "doctor.ok")
    assert asked.read_text() == "-gaudi2 -c all -rmod parallel -t 20 -p -b -dis_mon\n"
    assert result("deep.pcie_bandwidth", m.host(virtual_machine=True)(facts)) == (
        "skip",
        "doctor.deep.virtual",
    )
    user = m.settings(root_user=False)(facts)
    assert result("deep.pcie_bandwidth", user) == ("skip", "doctor.deep.root")


def test_busy_cards_and_time_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qual(tmp_path, "sleep 30")
    busy = m.cards(busy=True, holders=(Holder(4103, "python3"),))(live(tmp_path))
    assert result("deep.memory_bandwidth", busy) == ("skip", "doctor.deep.busy")
    monkeypatch.setattr(deep, "_SECONDS", 0.3)
    assert result("deep.memory_bandwidth", live(tmp_path)) == ("unknown", "doctor.timeout")
