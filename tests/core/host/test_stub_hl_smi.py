"""hl-smi of a simulated machine: its output to each question."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.host import stub_hl_smi
from gaudi_launch.core.host.simulated_files import hl_smi_of
from gaudi_launch.core.host.stub_hl_smi import answer
from tests.support.cli import golden
from tests.support.machines import SMALL

QUESTIONS = (
    "",
    "-v",
    "--version",
    "-L",
    "topo",
    "topo -c",
    "topo -N",
    "topo -c -N",
    "-n link -i 0000:2a:00.0",
    "--nic link -i 0000:aa:00.0",
    "-n link -i 0000:bb:00.0",
    "-n other -i 0000:2a:00.0",
    "-Q index,memory.used,power.draw -f csv",
    "--query-aip index,memory.used -f csv,noheader",
    "-Q index,memory.used -f csv,nounits",
    "-Q index,memory.used -f csv,noheader,nounits",
    "-Q index,odd -f csv",
    "-Q index",
    "-x index -f csv",
    "-i 0000:2a:00.0 -x 300",
    "-i 0000:2a:00.0 -p",
)
VARIANTS = {"failed": (0,), "busy": (1,), "hot": (1,), "pending-rows": (0,)}
"""A machine with one card of each condition."""


def machine() -> dict[str, Any]:
    return hl_smi_of(SMALL, VARIANTS)


def test_the_output_to_each_question() -> None:
    parts = []
    for question in QUESTIONS:
        text, code = answer(machine(), question.split())
        parts.append(f"$ hl-smi {question}\n{text}# {code}\n")
    golden("simulated-hl-smi.txt", "".join(parts))


def test_the_program_answers_from_its_file_and_keeps_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stub_hl_smi, "__file__", str(tmp_path / "hl-smi"))
    file = tmp_path / "hl-smi.json"
    file.write_text(json.dumps(machine()))

    def run(*arguments: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["hl-smi", *arguments])
        with pytest.raises(SystemExit) as ended:
            stub_hl_smi.main()
        return ended.value.code, capsys.readouterr().out

    written = file.read_bytes()
    assert run("topo", "-N") == (0, answer(machine(), ["topo", "-N"])[0])
    assert run("-i", "0000:2a:00.0", "-p", "many") == (1, "no such device\n")
    assert file.read_bytes() == written
    assert run("-i", "0000:2a:00.0", "-p", "300") == (0, "")
    assert [card["cap"] for card in json.loads(file.read_text())["cards"]] == [
        300,
        machine()["cards"][1]["cap"],
    ]
