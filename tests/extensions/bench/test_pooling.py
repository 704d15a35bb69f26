"""Servers that write nothing: check asks them for what they are for, the others say so."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.extensions.bench import pooling
from gaudi_launch.extensions.bench.client import ServerError
from tests.support.scripted_client import ScriptedClient
from tests.support.stand_in_server import FIXED, serving


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    code = run(["check", *words, "--json"])
    out, err = capsys.readouterr()
    assert err == "", err
    return code, {row["name"]: row for row in json.loads(out)["checks"]}


def test_without_counts_a_word_is_a_token(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(form="rerank", usage=False) as (url, _):
        code, found = ask(capsys, url, "--long", "100")
    assert (code, found["long"]["values"]["input"], found["speed"]["id"]) == (
        0,
        100,
        "measure.check_speed_texts",
    )


def test_a_reranker_reads_its_query_too(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(form="rerank") as (url, manner):
        assert ask(capsys, url, "--long", "200")[0] == 0
    asked = [question for question in manner.questions if len(question.get("documents", ())) == 1]
    assert asked[-1]["query"] == "What is the capital of France?"
    assert len(asked[-1]["documents"][0].split()) == 200 - FIXED - 6


@pytest.mark.parametrize(
    ("form", "sizes", "input"), [("embed", [6, 6, 6], 22), ("pool", [6, 6, 6], 22)]
)
def test_rows_of_servers_with_vectors(
    form: str, sizes: list[int], input: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(form=form) as (url, _):
        code, found = ask(capsys, url, "--long", "100")
    values = found[form]["values"]
    near = {} if form == "pool" else {"fitting": values["fitting"], "other": values["other"]}
    assert (code, values) == (0, {"input": input, "numbers": sizes, **near})
    assert (form == "pool") or 0 < near["other"] < near["fitting"] < 1
    assert found["long"]["values"] == {"wanted": 100, "input": 100}
    speed = found["speed"]["values"]
    seconds = 32 / speed["texts_per_second"]
    assert speed["input"] == 32 * 64
    assert speed["tokens_per_second"] == pytest.approx(32 * 64 / seconds, rel=0.01)


@pytest.mark.parametrize(("longest", "words"), [(None, 32), (4096, 64), (80, 10)])
def test_texts_of_the_speed_are_an_eighth_of_the_longest(
    longest: int | None, words: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(form="embed", longest=longest) as (url, manner):
        assert ask(capsys, url, "--long", "12")[0] == 0
    texts = manner.questions[-1]["input"]
    assert [len(text.split()) for text in texts] == [words] * 32
    assert len({*texts}) == 32


@pytest.mark.parametrize(
    ("manner", "code", "failed", "id"),
    [
        ({"form": "embed", "bad": "same"}, 4, ["embed"], "measure.check_same_vectors"),
        ({"form": "embed", "bad": "nan"}, 4, ["embed"], "measure.check_no_numbers"),
        ({"form": "embed", "bad": "few"}, 4, ["embed"], "measure.check_no_numbers"),
        ({"form": "embed", "bad": "hollow"}, 4, ["long", "speed"], "measure.check_no_numbers"),
        ({"form": "embed", "bad": "sizes"}, 4, ["embed"], "measure.check_sizes"),
        ({"form": "rerank", "bad": "nan"}, 4, ["rerank"], "measure.check_no_numbers"),
        # its "not for this model" has status 200
        ({"form": "embed", "bad": "fork"}, 0, [], "measure.check_embed"),
        # a model's quality is shown, not judged, as in a chat
        ({"form": "rerank", "bad": "order"}, 0, [], "measure.check_rerank_order"),
        # chat, completions and the choice of the task, the task itself; then it dies
        ({"form": "embed", "fail_from": 5}, 4, ["long", "speed"], "measure.check_embed"),
        ({"form": "embed", "fail_from": 4}, 4, ["embed"], "measure.fail_status"),
        ({"form": "embed", "status": 500}, 4, ["chat"], "measure.fail_status"),
    ],
)
def test_verdicts(
    capsys: pytest.CaptureFixture[str],
    manner: dict[str, Any],
    code: int,
    failed: list[str],
    id: str,
) -> None:
    with serving(**manner) as (url, _):
        got, found = ask(capsys, url, "--long", "100")
    assert (got, [name for name, row in found.items() if row["verdict"] == "fail"]) == (
        code,
        failed,
    )
    assert id in {row["id"] for row in found.values()}


@pytest.mark.parametrize(
    ("status", "document", "error"),
    [
        (400, {"message": "too long"}, ("status", "too long", 400)),
        (200, {"data": 5}, ("protocol", '{"data": 5}', 0)),
        (200, [], ("protocol", "[]", 0)),
    ],
)
def test_an_answer_without_entries_is_an_error(status: int, document: Any, error: Any) -> None:
    client = ScriptedClient(lambda *_: (status, document))
    with pytest.raises(ServerError) as caught:
        asyncio.run(pooling.pooled(client, "embed", ("a",), "m"))
    assert (caught.value.kind, caught.value.detail, caught.value.status) == error
