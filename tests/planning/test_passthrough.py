"""vLLM options behind ``--`` that decide what a plan decides: the plan goes by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gaudi_launch.engines.registry import find
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import Message, message
from gaudi_launch.planning.engine_args import engine_args
from gaudi_launch.planning.parse import MOST_SEQS, MOST_TOKENS
from gaudi_launch.planning.passthrough import (
    with_own_words,
    with_user_args,
)
from gaudi_launch.planning.plan import Kind, Overridden, Setting
from gaudi_launch.planning.request import Request
from gaudi_launch.planning.secret_args import SECRET_FILE


def read(*words: str, lacks: tuple[str, ...] = (), **given: object) -> Request:
    return with_own_words(Request("/m", extra=words, **given), find("vllm-gaudi").identity, lacks)  # type: ignore[arg-type]


def bounds(name: str, found: str, most: int) -> Message:
    return message("plan.number", flag=name, found=found, least=1, most=most)


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (("--max-model-len", "32768"), "max_model_len", 32768),
        (("--max_model_len=32k",), "max_model_len", 32000),
        (("--max-model-len", "1.5K"), "max_model_len", 1536),
        (("--max-model-len", "auto"), "max_model_len", None),
        (("--max-num-batched-tokens", "2M"), "max_num_batched_tokens", 2 << 20),
        (("--max-num-seqs", "7", "--seed", "1", "--max-num-seqs=9"), "max_num_seqs", 9),
        (("-tp", "4"), "cards", 4),
        (("--tensor_parallel_size=2",), "cards", 2),
        (("--max-num-prefill-seqs", "3"), "max_prefill_seqs", 3),
        (("--tensor-parallel-size", "64"), "cards", 64),
        (("--host", "node1"), "host", "node1"),
        (("--served-model-name", "m"), "served_name", "m"),
        (("--max-model-len", "-1"), "max_model_len", None),
        (("--port", "9000"), "port", 9000),
        (("--trust-remote-code",), "trust_remote_code", True),
        (("--seed", "1"), "max_num_seqs", None),
    ],
)
def test_a_word_is_read(words: tuple[str, ...], field: str, value: object) -> None:
    found = read(*words)
    assert (getattr(found, field), found.extra, found.overruled) == (value, words, ())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--max-model-len",), bounds("--max-model-len", "", MOST_TOKENS)),
        (("--max-model-len", "many"), bounds("--max-model-len", "many", MOST_TOKENS)),
        (("--max-model-len", "99T"), bounds("--max-model-len", "99T", MOST_TOKENS)),
        (("--max-num-seqs", "0"), bounds("--max-num-seqs", "0", MOST_SEQS)),
        (("--max-num-seqs", "1K"), bounds("--max-num-seqs", "1K", MOST_SEQS)),
        (("-tp", "65"), bounds("--tensor-parallel-size", "65", 64)),
        (("-tp", "0"), bounds("--tensor-parallel-size", "0", 64)),
        (("--port=70000",), bounds("--port", "70000", 65535)),
        (("--host", "--seed"), message("plan.no_value", option="--host")),
        (("--model=other",), message("plan.own_option", option="--model", ours="-w")),
    ],
)
def test_a_word_that_the_engine_would_stop_on(words: tuple[str, ...], expected: Message) -> None:
    with pytest.raises(LaunchError) as caught:
        read(*words)
    assert (caught.value.exit_code, caught.value.text) == (ExitCode.USAGE, expected)


def shown(settings: Sequence[Setting], *user: str, file: tuple[str, ...] = ()) -> list[Setting]:
    return [*with_user_args(settings, engine_args(user=user, file=file))]


def ours(name: str, value: str | None, kind: Kind = "option") -> Setting:
    return Setting(name, value, kind, "computed", message("plan.dense"), "origin")


def theirs(name: str, value: str | None, id: str = "plan.passed") -> Setting:
    return Setting(name, value, "option", "flag", message(id))


def test_the_users_arguments_replace_ours_in_their_place() -> None:
    settings = [ours("--seed", "0"), ours("--port", "1"), ours("--seed", "5", "env")]
    beaten = (Overridden("0", "computed"),)
    assert shown(settings, "--seed", "3", "--new") == [
        replace(theirs("--seed", "3"), beaten=beaten),
        settings[1],
        settings[2],
        theirs("--new", None),
    ]
    assert shown(settings, "--seed", "0")[0] == theirs("--seed", "0")
    both = shown([ours("--seed", "0"), ours("--seed", "1")], "--seed", "3")
    assert both == [replace(theirs("--seed", "3"), beaten=(*beaten, Overridden("1", "computed")))]
    assert shown([], "word") == [theirs("word", None)]
    assert shown([], file=("--seed", "3")) == [theirs("--seed", "3", "plan.passed_file")]
    secret = shown([], "--config", SECRET_FILE)
    assert secret == [theirs("--config", SECRET_FILE, "plan.secret_file")]
    assert shown([], "--config", "my.yaml") == [theirs("--config", "my.yaml")]


def test_equal_lengths_in_two_spellings_override_nothing() -> None:
    for value in ("16K", "16384"):
        (found,) = shown([ours("--max-model-len", "16384")], "--max-model-len", value)
        assert found.beaten == ()
    (found,) = shown([ours("--max-model-len", "16384")], "--max-model-len", "16k")
    assert found.beaten == (Overridden("16384", "computed"),)
    (found,) = shown([ours("--max-model-len", "16384")], "--max-model-len", "auto")
    assert found.beaten == (Overridden("16384", "computed"),)
    (found,) = shown([ours("--enable_x", None)], "--enable-x")
    assert found.beaten == ()
    (found,) = shown([ours("--enable-x", None)], "--enable-x", "yes")
    assert found.beaten == (Overridden("--enable-x", "computed"),)
