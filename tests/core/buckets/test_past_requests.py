"""Past requests from every form they come in, and from none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.buckets.past_requests import (
    INPUT_COLUMNS,
    OUTPUT_COLUMNS,
    TIME_COLUMNS,
    parse,
    parse_metrics,
    read_past,
)
from tests.support.http_answers import server
from tests.support.places import TOP
from tests.support.refusals import failing

CSV = "t_seconds,input_tokens,output_tokens\n2.5,10,3\n1.5,20,4\n3.0,0,4\n4.0,7,x\n"
PAGE = """\
# TYPE vllm:request_prompt_tokens histogram
vllm:request_prompt_tokens_bucket{le="100.0",model_name="m"} 0.0
vllm:request_prompt_tokens_bucket{le="200.0",model_name="m"} 30.0
vllm:request_prompt_tokens_bucket{le="+Inf",model_name="m"} 40.0
vllm:request_generation_tokens_bucket{engine="0",le="10.0"} 40.0
vllm:request_generation_tokens_bucket{engine="0",le="+Inf"} 40.0
"""


def test_names_and_times_of_public_traces() -> None:
    header = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    text = header + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    assert parse(text).requests == [(0.0, 374, 44), (pytest.approx(4.314579, abs=1e-5), 396, 109)]
    text = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    assert parse(text + "5,GPT-4,472,18,490,API log\n").requests == [(0.0, 472, 18)]


@pytest.mark.parametrize(("own", "block", "then"), [({}, 512, 0.0035), ({"chat_id": 7}, 16, 3.5)])
def test_two_forms_of_hashes(own: dict[str, int], block: int, then: float) -> None:
    same = {**own, "input_length": 5 * block + 1, "output_length": 2}
    rows = [
        {**same, "timestamp": at, "hash_ids": [1, 2, 3, *range(last, last + 3)]}
        for at, last in ((27.0, 10), (30.5, 20))
    ]
    found = parse("\n".join(map(json.dumps, rows)))
    assert found.requests == [(0.0, 5 * block + 1, 2), (pytest.approx(then), 5 * block + 1, 2)]
    assert [each.tokens for each in found.shared] == [0, 3 * block]


@given(st.lists(st.sampled_from(("8,3", "8,0", "0,3", "8", "8,x", f"{10**9},3", "-1,3"))))
def test_every_line_is_a_request_or_is_counted(lines: list[str]) -> None:
    found = parse("\n".join(("input_tokens,output_tokens", *lines)))
    assert len(found.requests) == lines.count("8,3")
    assert found.left_out == len(lines) - len(found.requests)
    assert len(found.notes) == bool(found.left_out)


def test_metrics_histograms() -> None:
    found = parse_metrics(PAGE)
    tokens = [tokens for _, tokens, _ in found]
    assert all(101 <= count <= 251 for count in tokens)
    assert 0.7 < sum(count <= 200 for count in tokens) / len(tokens) < 0.8
    assert {output for _, _, output in found} <= set(range(1, 11))
    assert parse_metrics(PAGE.replace("40.0", "0.0").replace("30.0", "0.0")) == []


def test_a_running_server() -> None:
    with server({"/metrics": (200, PAGE.encode())}) as (url, _):
        assert read_past(url).requests == parse_metrics(PAGE)
    with failing("warmup.metrics_unreachable", ExitCode.FAILED):
        read_past(url)


@pytest.mark.parametrize(
    "content", [b"", b"hello\nworld", b"\x1f\x8bbroken", b"\xff\xfe\x00", b"{}", b"[[1,2]]"]
)
def test_what_is_no_trace(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content)
    with pytest.raises(LaunchError) as caught:
        read_past(str(path))
    assert caught.value.exit_code == ExitCode.USAGE


@given(
    st.text()
    | st.builds(lambda text: PAGE + text, st.text())
    | st.builds(lambda t: CSV + t, st.text())
)
def test_any_text(text: str) -> None:
    found = parse(text).requests
    assert found == sorted(found, key=lambda request: request[0])
    assert all(time >= 0 and tokens > 0 and output > 0 for time, tokens, output in found)


@pytest.mark.parametrize("page", ["traces.md", "traces_zh.md"])
def test_every_name_of_a_column_is_documented(page: str) -> None:
    text = (TOP / "docs" / page).read_text(encoding="utf-8").lower()
    names = (*TIME_COLUMNS, *INPUT_COLUMNS, *OUTPUT_COLUMNS)
    assert [name for name in names if f"`{name}`" not in text] == []


def test_the_examples_of_the_documentation_are_read() -> None:
    text = (TOP / "docs" / "traces.md").read_text(encoding="utf-8")
    rows = [
        line.split("|")[2]
        for line in text.split("| form | example |")[1].splitlines()
        if line.count("|") == 3
    ]
    table, lines, answers = (re.findall(r"`(.+?)`", row) for row in rows[1:4])
    assert parse("\n".join(table)).requests == [(0.0, 812, 120)]
    assert [parse(each).requests for each in (*lines, *answers)] == [[(0.0, 812, 120)]] * 2
