"""hl-smi shared by several programs: the calls that reach it, counted on a clock of the test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gaudi_launch.core.host.hl_smi import HlSmiOutput
from gaudi_launch.core.host.shared_hl_smi import SharedHlSmi


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Program:
    """An hl-smi that counts its calls."""

    calls: list[str] = field(default_factory=list)

    def __call__(self, arguments: Sequence[str]) -> HlSmiOutput:
        self.calls.append(" ".join(arguments))
        return HlSmiOutput(f"answer {len(self.calls)}")


def text(shared: SharedHlSmi, arguments: tuple[str, ...] = (), most_age: float = 1.0) -> str | None:
    found = shared.latest(arguments, most_age)
    return None if found is None else found.output.text


@pytest.fixture
def program() -> Program:
    return Program()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_two_programs_make_one_call_per_second(
    tmp_path: Path, program: Program, clock: Clock
) -> None:
    top, exporter = (SharedHlSmi(program, tmp_path, clock) for _ in range(2))
    for _ in range(100):
        assert text(top) == text(exporter)
        clock.now += 0.1
    assert len(program.calls) in (9, 10)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"answers": {"": 1}, "last_call": 0}', '{"answers": 3}']
)
def test_a_damaged_file_is_written_again(
    tmp_path: Path, program: Program, clock: Clock, content: str
) -> None:
    (tmp_path / "answers.json").write_text(content)
    assert text(SharedHlSmi(program, tmp_path, clock)) == "answer 1"
    assert text(SharedHlSmi(program, tmp_path, clock)) == "answer 1"


def test_without_a_folder_it_is_still_one_call_per_second(
    tmp_path: Path, program: Program, clock: Clock
) -> None:
    (tmp_path / "file").write_text("")
    shared = SharedHlSmi(program, tmp_path / "file" / "folder", clock)
    for _ in range(40):
        shared.latest((), 0.0)
        clock.now += 0.25
    assert len(program.calls) == 10
