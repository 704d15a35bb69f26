"""Whatever is asked of TGI: its launcher's own option table takes our words, or the user gets a
sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from gaudi_launch.extensions.tgi.engine import Tgi
from gaudi_launch.extensions.tgi.options import VERSIONS, read_words
from tests.support.options_table import Refused, parse
from tests.support.tgi_plans import HERE, HLS2, LLAMA, LLAVA, container, options, table


def test_the_launchers_own_table_refuses_what_is_not_in_it() -> None:
    for words in (
        ["--max-batch"],
        ["--quantize", "int3"],
        ["--num-shard", "two"],
        ["--sharded", "yes"],
    ):
        with pytest.raises(Refused):
            parse(table("3.3.5"), words)
    with pytest.raises(Refused):
        parse(table("3.2.3"), ["--prometheus-port", "1"])


LAUNCHER = st.sampled_from(
    [
        (), ("--json-output",), ("--max-best-of", "3"), ("--waiting-served-ratio=0.5",), ("-g",
                                                                                          "30"),
                                                                                          ("-e",),
        ("--max-batch-size", "8"), ("--revision", "main"), ("--usage-stats", "on"),
        ("--payload-limit", "9000000"),
        ("--kv-cache-dtype", "fp8_e4m3fn"), ("--prometheus-port", "9001"), ("--cors-allow-origin",
                                                                            "http://a"),
    ]
)  # fmt: skip
REQUESTS = st.builds(
    Request,
    model=st.sampled_from(["me/q", "/m/q", LLAMA, LLAVA]),
    cards=st.sampled_from([None, 1, 2, 4, 8]),
    host=st.sampled_from([None, "0.0.0.0", "::1", "x"]),
    port=st.one_of(st.none(), st.integers(1, 65535)),
    dtype=st.sampled_from([None, None, "bfloat16", "fp8", "awq"]),
    input_range=st.one_of(st.none(), st.tuples(st.integers(1, 900), st.integers(900, 60000))),
    output_range=st.one_of(st.none(), st.tuples(st.integers(1, 900), st.integers(900, 9000))),
    max_num_batched_tokens=st.one_of(st.none(), st.integers(128, 70000)),
    max_model_len=st.one_of(st.none(), st.integers(128, 70000)),
    max_num_seqs=st.one_of(st.none(), st.integers(1, 300)),
    cache_dir=st.sampled_from([None, "/c"]),
    skip_warmup=st.sampled_from([False, False, True]),
    profile=st.sampled_from([False, False, True]),
    quant_config=st.sampled_from([None, None, "q/c.json"]),
    memory_utilization=st.sampled_from([None, None, "0.8"]),
    tuning=st.sampled_from(["auto", "reference"]),
    trust_remote_code=st.sampled_from([None, True]),
    served_name=st.sampled_from([None, "name"]),
    force=st.booleans(),
    environment=st.just(HERE),
)


@settings(max_examples=150, deadline=None)
@given(request_=REQUESTS, version=st.sampled_from(VERSIONS), first=LAUNCHER, second=LAUNCHER)
def test_any_request_makes_words_that_the_launcher_takes(
    request_: Request, version: str, first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    request_ = replace(request_, extra=(*first, *second))
    try:
        made = make_plan(
            request_, HLS2, known_model(request_.model, must_exist=False), Tgi(version)
        )
    except LaunchError as error:
        assert error.exit_code != 0 and str(error)
        return
    argv = container(made).argv
    parsed = parse(table(version), argv)
    # the launcher stops on an option that is said twice, and its entry point cuts words at blanks
    assert len(options(made)) == sum(word.startswith("--") for word in argv)
    assert not any(character.isspace() for word in argv for character in word)
    assert parsed.max_batch_size >= 1
    assert (parsed.sharded, parsed.num_shard) in (
        ("true", len(made.placement.modules)),
        (None, None),
    )
    assert (parsed.num_shard is None) == (len(made.placement.modules) == 1)


@given(st.lists(st.text(max_size=20), max_size=6), st.sampled_from(VERSIONS), st.booleans())
def test_any_words_are_taken_or_refused(words: list[str], version: str, force: bool) -> None:
    try:
        found = read_words(words, version, force)
    except LaunchError as error:
        assert error.exit_code == ExitCode.USAGE
    else:
        assert all(name.startswith("--") for name in found)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (
            "-g 30 -e --revision=main",
            {"--graceful-termination-timeout": "30", "--env": None, "--revision": "main"},
        ),
        ("-g30", {"--graceful-termination-timeout": "30"}),
        ("--max-batch-size 4 --max-batch-size 8", {"--max-batch-size": "8"}),
    ],
)
def test_options_are_read_as_the_launcher_reads_them(
    words: str, found: dict[str, str | None]
) -> None:
    assert read_words(words.split(), "3.3.5") == found
