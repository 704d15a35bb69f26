"""What a step's output says of its progress."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.core.services.process.step import StepProgress, read_progress, run_step


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", None),
        ("nothing to count", None),
        (
            (
                "Processed prompts:   3%|x         | 1/32 [00:05]\rProcessed prompts:   6%|x | "
                "2/32 [00:06]"
            ),
            ("Processed prompts", 2, 32),
        ),
        (
            "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01]\n",
            ("Loading safetensors checkpoint shards", 1, 2),
        ),
        ("Batch finished: 32/1000 samples done; ETA: 3 min\n", ("Batch finished", 32, 1000)),
        ("Odd count: 1/0", None),
    ],
)
def test_counts(text: str, found: tuple[str, int, int] | None) -> None:
    assert read_progress(text) == (StepProgress(*found) if found else None)


@given(st.text(max_size=300))
def test_no_output_is_a_traceback(text: str) -> None:
    read_progress(text)


def test_status_log_and_silence(tmp_path: Path) -> None:
    seen: list[StepProgress] = []
    program = "import sys; print('Batch finished: 1/2'); sys.exit(7)"
    assert (
        run_step((sys.executable, "-c", program), {}, tmp_path, tmp_path / "l" / "log", seen.append)
        == 7
    )
    assert (tmp_path / "l" / "log").read_text() == "Batch finished: 1/2\n"
    sleep = (sys.executable, "-c", "import time; time.sleep(60)")
    assert run_step(sleep, {}, tmp_path, tmp_path / "log", quiet_seconds=0.5) is None
