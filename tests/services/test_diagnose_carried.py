"""Logs as they reach `why` in real life: through compose, kubectl, journalctl; cut off in the middle."""

from __future__ import annotations

import pytest

from gaudi_launch.services.diagnose import diagnose
from tests.services.test_diagnose import PROMPT

# what each way to a log puts in front of a line
CARRIERS = [
    "vllm-server-1  | ",
    "\x1b[36mvllm-1 |\x1b[0m ",
    "vllm-1  | 2026-11-21T03:02:41.123456789Z ",
    "2026-11-21T03:02:41.123456789+08:00 ",
    "[pod/qwen-7d9c-x2/engine] ",
    "Nov 21 03:02:41 gaudi01 vllm[4242]: ",
    "11月 21 03:02:41 gaudi01 gaudi-qwen[4242]: ",
    "2026-11-21T03:02:41+0800 gaudi01 vllm[4242]: ",
]


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_log_that_another_program_carried_is_judged_alike(carrier: str) -> None:
    lines = (
        "INFO 11-21 03:02:41 [api_server.py:1043] Set trust_remote_code=True to allow custom code\n"
        f"{PROMPT}Error: ShardFailed\nValueError: odd\n"
    )
    carried = "".join(f"{carrier}{line}\n" for line in lines.splitlines())
    found = diagnose(carried)
    assert found == diagnose(lines)
    assert ([cause.id for cause in found.causes], found.failed, found.phase) == (
        ["shard_failed"],
        True,
        "warmup_prompt",
    )


def test_how_far_an_unfinished_start_was() -> None:
    found = diagnose(PROMPT)
    assert (found.failed, found.phase, found.at) == (False, "warmup_prompt", (2, 4))
