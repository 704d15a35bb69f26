"""Every recorded engine log, phases and counts compared whole; and any text in any pieces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.core.services.diagnosis.diagnose import diagnose
from gaudi_launch.core.services.log.follow import Follower, LaunchProgress, _gib
from tests.support.places import DATA, SHARED
from tests.support.speed import within

LOGS = sorted((DATA / "logs").glob("*.txt.gz"))
SHARED = SHARED / "samples" / "vllm-logs"
GOLDEN = json.loads((DATA / "golden" / "logs.json").read_text(encoding="utf-8"))


def follow(text: str) -> LaunchProgress:
    """A log fed a line a second."""
    follower = Follower()
    for second, line in enumerate(text.splitlines(keepends=True)):
        follower.feed(line, float(second))
    return follower.feed("\n", 1e6)


def summary(text: str) -> dict[str, Any]:
    progress, found = follow(text), diagnose(text)
    return {
        "phase": progress.phase,
        "done": [progress.done, progress.total],
        "bucket": progress.bucket,
        "phases": [[phase.name, phase.items] for phase in progress.phases],
        "facts": dict(progress.facts),
        "warnings": len(progress.warnings),
        "failed": found.failed,
        "failed_in": found.phase,
        "causes": [cause.id for cause in found.causes],
    }


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name.removesuffix(".txt.gz"))
def test_every_recorded_log(path: Path) -> None:
    text = gzip.decompress(path.read_bytes()).decode("utf-8", errors="replace")
    assert summary(text) == GOLDEN[path.name.removesuffix(".gz")]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared samples are not here")
def test_no_shared_log_is_missing() -> None:
    assert {path.name for path in SHARED.glob("*.txt")} - {"SOURCES.md"} == set(GOLDEN)


WARMUP = (
    "INFO 11-21 03:03:01 [hpu_model_runner.py:2587] [Warmup][Prompt][{}/4] batch_size:1 "
    "seq_len:128 free_mem:0 B\n"
)


# as tqdm 4.67 writes it to a pipe: CR first, the postfix behind (vllm-gaudi@091bbadd
# hpu_model_runner.py warmup_graphs: desc with a colon of its own, unit item, postfix idx/total)
BAR = "\r{} warmup processing:  {}%|###3      | {}/{} [00:0{}<00:00,  1.5item/s, {}/{}]"


def bar(kind: str, done: int, total: int, second: int) -> str:
    return BAR.format(kind, 100 * done // total, done, total, second, max(0, done - 1), total)


def test_the_bars_of_several_ranks_are_one() -> None:
    """Ranks draw on the same standard error, each a little behind the other, and no bar has a
    prefix."""
    follower = Follower()
    seen = []
    for done in range(1, 5):
        for rank in (0, 1, 2):
            follower.feed(bar("Prompt", max(0, done - rank), 4, done), float(done))
            seen.append(follower.progress.done)
    follower.feed("\n(Worker_TP0 pid=7) INFO Graph/Prompt captured:4 used_mem:1 GiB\n", 5.0)
    follower.feed(
        bar("Decode", 1, 8, 1) + bar("Prompt", 4, 4, 5) + bar("Decode", 2, 8, 2) + "\n", 6.0
    )
    assert seen == sorted(seen)
    phases = [(phase.name, phase.items) for phase in follower.progress.phases]
    assert phases == [("start", 0), ("warmup_prompt", 4), ("warmup_decode", 2)]
    assert (follower.progress.done, follower.progress.total) == (2, 8)


def test_the_plugins_bars_end_with_carriage_returns() -> None:
    bar = "Prompt warmup processing:  {}%|##   | {}/8 [00:01<00:02,  3.5item/s, idx={}/8]\r"
    follower = Follower()
    for number in range(9):
        follower.feed(bar.format(number * 12, number, number), float(number))
    follower.feed("Decode warmup processing:  50%|##   | 2/4 [00:01<00:02]\r", 9.0)
    progress = follower.progress
    assert (progress.phase, progress.done, progress.total) == ("warmup_decode", 2, 4)
    assert [(p.name, p.begin, p.end) for p in progress.phases][1] == ("warmup_prompt", 0.0, 9.0)


ODD = ["{", '{"message": 3}', "[1]", '{"fields": {"message": "Connected"}}', "{" * 60000]


@pytest.mark.parametrize("line", ODD, ids=range(len(ODD)))
def test_lines_that_look_like_json(line: str) -> None:
    assert follow(f"{line}\n").phase == ("ready" if "Connected" in line else "start")


@given(st.lists(st.text(max_size=60), max_size=20), st.lists(st.integers(0, 80), max_size=30))
def test_any_text_in_any_pieces(lines: list[str], cuts: list[int]) -> None:
    text = "\n".join(lines)
    whole = Follower()
    whole.feed(text + "\n", 0.0)
    pieces = Follower()
    begin = 0
    for cut in sorted({min(c, len(text)) for c in cuts}):
        pieces.feed(text[begin:cut], 0.0)
        begin = cut
    pieces.feed(text[begin:] + "\n", 0.0)
    assert pieces.progress == whole.progress


NEARLY = (
    *(
        "[Warmup][Prompt][",
        "1/",
        "99999999999999999999/",
        "] batch_size:",
        "captured:",
        "# hpu blocks: ",
        "Error: ",
    ),
    *(
        "Maximum concurrency for ",
        "1,,2",
        " tokens per request: ",
        "1.2.3x",
        "(",
        "pid=",
        ")",
        "\r",
        "\0",
        "\x1b[",
    ),
)
PARTS = st.sampled_from(NEARLY)


@given(st.lists(PARTS, max_size=40))
def test_lines_that_are_nearly_right(parts: list[str]) -> None:
    text = "".join(parts)
    Follower().feed(text + "\n", 0.0)
    diagnose(text)


@pytest.mark.parametrize(
    "line",
    [
        "Prompt warmup processing:" + "1" * 65_000,
        "Loading safetensors checkpoint shards" + " " * 65_000,
        "Loading safetensors checkpoint shards" + "1" * 65_000,
        "\x1b]" * 32_000,
    ],
    ids=["bar", "spaces", "shards", "escapes"],
)
def test_a_hostile_line_does_not_hold_the_launcher(line: str) -> None:
    with within(2):
        Follower().feed(line + "\n", 0.0)


def test_the_speed_of_reading_shards_says_nothing_of_the_warm_up() -> None:
    follower = Follower({"warmup_prompt": 4, "warmup_decode": 6})
    shards = (
        "Loading safetensors checkpoint shards:  50% Completed | {}/4 [00:01<00:01,  1.0s/it]\n"
    )
    assert [follower.feed(shards.format(done), float(done)).left_seconds for done in (1, 2, 3)] == [
        None,
        2.0,
        1.0,
    ]
    assert follower.feed(WARMUP.format(1), 5.0).left_seconds is None


@pytest.mark.parametrize(
    ("size", "gib"),
    [
        ("536870912 B", 0.5),
        ("1024 KiB", 0.001),
        ("512 MiB", 0.5),
        ("1.5 GiB", 1.5),
        ("2 TiB", 2048.0),
        ("1.23456 GiB", 1.2346),
    ],
)
def test_sizes_of_any_unit_are_shown_in_gib(size: str, gib: float) -> None:
    text, unit = size.split()
    assert _gib(text, unit) == gib
