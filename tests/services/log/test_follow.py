"""Every recorded engine log, phases and counts compared whole; and any text in any pieces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.services.diagnosis.diagnose import diagnose
from gaudi_launch.services.log.follow import Follower, LaunchProgress, _gib
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


def test_time_left_learns_from_the_graphs_done() -> None:
    follower = Follower()
    # the line is written before the graph is warmed up: at [3/4] two of four are done
    lefts = [
        follower.feed(WARMUP.format(number), number * 10.0).left_seconds for number in range(1, 5)
    ]
    assert lefts == [None, 30.0, 20.0, 10.0]


def test_a_bar_that_skips_counts_is_no_slower() -> None:
    follower = Follower()
    bar = "Decode warmup processing:  50%|##   | {}/100 [00:01<00:02]\r"
    lefts = [
        follower.feed(bar.format(done), second).left_seconds
        for done, second in ((0, 0.0), (10, 5.0), (50, 25.0))
    ]
    assert lefts == [None, 45.0, 25.0]
    assert follower.progress.phases[-1].items == 50


def test_only_one_rank_counts() -> None:
    follower = Follower()
    for prefix in (
        "",
        "(VllmWorkerProcess pid=1) ",
        "(Worker_TP3 pid=2) ",
        "(RayWorkerWrapper pid=3, ip=10.0.0.1) ",
    ):
        follower.feed(prefix + WARMUP.format(1), 0.0)
    for prefix in ("(Worker_TP0 pid=5) ", "\x1b[1;36m(EngineCore_DP0 pid=4)\x1b[0;0m "):
        follower.feed(prefix + WARMUP.format(2), 1.0)
    assert [(phase.name, phase.items) for phase in follower.progress.phases] == [
        ("start", 0),
        ("warmup_prompt", 2),
    ]


def test_of_two_replicas_one_counts() -> None:
    follower = Follower()
    for prefix in ("(Worker_DP0_TP0 pid=1) ", "(Worker_DP1_TP0 pid=2) ", "(EngineCore_DP1 pid=3) "):
        follower.feed(prefix + WARMUP.format(3 if "DP1" in prefix else 1), 0.0)
    assert (follower.progress.done, follower.progress.phases[-1].items) == (1, 1)


def test_a_crash_of_another_rank_is_seen() -> None:
    progress = follow(WARMUP.format(1) + "(Worker_TP3 pid=9) RuntimeError: Graph compile failed.\n")
    assert progress.phase == "failed"


# as tqdm 4.67 writes it to a pipe: CR first, the postfix behind (vllm-gaudi@091bbadd
# hpu_model_runner.py warmup_graphs: desc with a colon of its own, unit item, postfix idx/total)
BAR = "\r{} warmup processing:  {}%|###3      | {}/{} [00:0{}<00:00,  1.5item/s, {}/{}]"


def bar(kind: str, done: int, total: int, second: int) -> str:
    return BAR.format(kind, 100 * done // total, done, total, second, max(0, done - 1), total)


def test_the_plugins_bars_with_carriage_returns() -> None:
    follower = Follower()
    lefts = [
        follower.feed(bar("Prompt", done, 4, done), float(done)).left_seconds for done in range(5)
    ]
    # a piece is whole when the next one begins
    assert lefts == [None, None, 3.0, 2.0, 1.0]
    follower.feed(
        "\nINFO 07-27 23:22:27 [hpu_model_runner.py:5110] Graph/Prompt captured:4 used_mem:1 GiB\n",
        5.0,
    )
    follower.feed(bar("Decode", 1, 2, 1) + bar("Decode", 2, 2, 2) + "\n", 6.0)
    phases = [(phase.name, phase.items) for phase in follower.progress.phases]
    assert phases == [("start", 0), ("warmup_prompt", 4), ("warmup_decode", 2)]
    assert follower.progress.facts["captured_prompt"] == 4


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


def test_a_second_look_at_buckets_is_no_step_back() -> None:
    """Mixed models run some prompts again behind the decode pass ("Running validation warmup")."""
    text = (
        bar("Prompt", 4, 4, 1)
        + "\n"
        + bar("Decode", 8, 8, 2)
        + "\n"
        + bar("Prompt", 1, 2, 3)
        + "\n"
    )
    assert [phase.name for phase in follow(text).phases] == [
        "start",
        "warmup_prompt",
        "warmup_decode",
    ]


@pytest.mark.parametrize(
    "url", ["http://0.0.0.0:8000", "http://[::1]:8000", "https://host.example:8000"]
)
def test_the_port_of_an_address(url: str) -> None:
    assert follow(f"INFO Starting vLLM API server on {url}\n").facts["port"] == 8000


def test_the_plugins_bars_end_with_carriage_returns() -> None:
    bar = "Prompt warmup processing:  {}%|##   | {}/8 [00:01<00:02,  3.5item/s, idx={}/8]\r"
    follower = Follower()
    for number in range(9):
        follower.feed(bar.format(number * 12, number, number), float(number))
    follower.feed("Decode warmup processing:  50%|##   | 2/4 [00:01<00:02]\r", 9.0)
    progress = follower.progress
    assert (progress.phase, progress.done, progress.total) == ("warmup_decode", 2, 4)
    assert [(p.name, p.begin, p.end) for p in progress.phases][1] == ("warmup_prompt", 0.0, 9.0)


def test_thousands_separators() -> None:
    progress = follow(
        "INFO GPU KV cache size: 12,345 tokens\n"
        "INFO Maximum concurrency for 4,352 tokens per request: 1,010.59x\n"
    )
    assert progress.facts == {"kv_tokens": 12345, "max_concurrency": 1010.59, "max_model_len": 4352}


TGI = [
    ("text_generation_launcher", "Args {"),
    ("text_generation_launcher", "Starting check and download process for me/m"),
    ("text_generation_launcher", "Starting shard"),
    ("text_generation_launcher", "Waiting for shard to be ready..."),
    ("text_generation_launcher", "Shard ready in 21.1s"),
    ("text_generation_router_v3", "Warming up model"),
    ("text_generation_launcher", "KV-cache blocks: 3685, size: 128"),
    (
        "text_generation_launcher",
        "[Warmup][Prompt][1/48] batch_size:1 seq_len:128 bypass:False free_mem:9 GB",
    ),
    (
        "text_generation_launcher",
        "[Warmup][Prompt][3/48] batch_size:1 seq_len:256 bypass:True free_mem:9 GB",
    ),
    ("text_generation_launcher", "Prefill warmup successful.\n"),
    (
        "text_generation_launcher",
        "[Warmup][Decode][1/30] batch_size:32 num_blocks:128 bypass:False free_mem:9 GB",
    ),
    ("text_generation_launcher", "warmup hpu graph time 321s warmup shape count 51"),
    ("text_generation_router_v3", "Setting max batch total tokens to 471680"),
    ("text_generation_router::server", "Connected"),
]


def tgi_line(target: str, message: str, *, as_json: bool) -> str:
    if as_json:
        return (
            json.dumps({"timestamp": "2025", "level": "INFO", "message": message, "target": target})
            + "\n"
        )
    return (
        f"\x1b[2m2025-01-01T00:00:00.000000Z\x1b[0m \x1b[32m INFO\x1b[0m {target}: "
        f"{message.strip()}\n"
    )


@pytest.mark.parametrize("as_json", [False, True])
def test_tgi_from_its_start_to_connected(as_json: bool) -> None:
    progress = follow(
        "".join(tgi_line(target, message, as_json=as_json) for target, message in TGI)
    )
    assert [(phase.name, phase.items) for phase in progress.phases] == [
        ("start", 0),
        ("load", 0),
        # shapes over the prefill budget are passed over and counted: what was warmed stands in the
        # last line
        ("warmup_prompt", 3),
        ("warmup_decode", 1),
        ("ready", 0),
    ]
    assert progress.facts == {"num_blocks": 3685, "warmup_seconds": 321, "warmup_shapes": 51}
    text = "".join(tgi_line(target, message, as_json=as_json) for target, message in TGI[:11])
    assert (follow(text).done, follow(text).total) == (1, 30)
    assert follow(text).bucket == "batch_size:32 num_blocks:128"


def test_the_padded_tgi_says_less() -> None:
    said = [
        "Warming up model",
        "",
        "Following prefill warmup successfully.",
        "Prefill batch size list:[1, 2]",
    ]
    text = "".join(tgi_line("text_generation_launcher", line, as_json=False) for line in said)
    assert [phase.name for phase in follow(text).phases] == [
        "start",
        "warmup_prompt",
        "warmup_decode",
    ]
    both = "\nFollowing prefill warmup successfully.\nPrefill batch size list:[1, 2]\n"
    assert follow(tgi_line("x", both, as_json=True)).phase == "warmup_decode"


@pytest.mark.parametrize(
    "line",
    [
        "Error: ShardCannotStart",
        'Error: ArgumentValidation("`max_input_tokens` must be < `max_total_tokens`")',
        "error: unexpected argument '--max-batch' found",
        "error: the argument '--num-shard <NUM_SHARD>' cannot be used multiple times",
        "error: invalid value 'yes' for '--sharded <SHARDED>'",
    ],
)
def test_tgi_that_stops(line: str) -> None:
    assert follow(f"{line}\n").phase == "failed"


ODD = ["{", '{"message": 3}', "[1]", '{"fields": {"message": "Connected"}}', "{" * 60000]


@pytest.mark.parametrize("line", ODD, ids=range(len(ODD)))
def test_lines_that_look_like_json(line: str) -> None:
    assert follow(f"{line}\n").phase == ("ready" if "Connected" in line else "start")


def test_an_ordered_stop_is_no_crash() -> None:
    text = (
        "INFO:     Application startup complete.\nINFO:     Shutting down\n"
        "vllm.EngineDeadError: EngineCore died\n"
    )
    assert follow(text).phase == "stopping"
    assert not diagnose(text, exit_status=0).failed


def test_shapes_that_compile_at_run_time_are_kept_as_warnings() -> None:
    line = (
        "WARNING 04-09 11:25:43 [hpu_model_runner.py:1227] Configuration: (prompt, 1, 4096) was "
        "not warmed-up!\n"
    )
    assert follow(line * 300).warnings == ("was not warmed-up!",) * 200


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


def test_an_endless_line_is_cut() -> None:
    follower = Follower()
    for _ in range(50):
        follower.feed("x" * 100_000, 0.0)
    assert follower.feed("\n" + WARMUP.format(1), 1.0).phase == "warmup_prompt"


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


def decode(number: int, total: int) -> str:
    return WARMUP.format(number).replace("[Prompt]", "[Decode]").replace("/4]", f"/{total}]")


def test_time_left_counts_the_phases_that_are_planned_after_this_one() -> None:
    follower = Follower({"warmup_prompt": 4, "warmup_decode": 6})
    lefts = [
        follower.feed(WARMUP.format(number), number * 10.0).left_seconds for number in range(1, 5)
    ]
    assert lefts == [None, 90.0, 80.0, 70.0]
    # decode begins with the speed of the prompts, and then learns its own
    lefts = [
        follower.feed(decode(number, 6), 50.0 + 2 * number).left_seconds for number in range(1, 4)
    ]
    assert lefts == [60.0, 10.0, 8.0]


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
