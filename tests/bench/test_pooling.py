"""Servers that write nothing: check asks them for what they are for, the others say so."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest

from gaudi_launch.bench import pooling
from gaudi_launch.bench.client import Client, Reply, ServerError
from gaudi_launch.cli.main import run
from tests.support.scripted_client import ScriptedClient
from tests.support.service_record import service
from tests.support.stand_in_server import FIXED, serving


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    code = run(["check", *words, "--json"])
    out, err = capsys.readouterr()
    assert err == "", err
    return code, {row["name"]: row for row in json.loads(out)["checks"]}


@pytest.mark.parametrize("task", ["embed", "rerank", "pool"])
def test_each_is_asked_in_its_own_way(capsys: pytest.CaptureFixture[str], task: str) -> None:
    with serving(form=task, longest=600) as (url, manner):
        code, found = ask(capsys, url)
    assert code == 0 and {name: row["verdict"] for name, row in found.items()} == dict.fromkeys(
        ("health", "models", task, "long", "speed"), "ok"
    )
    # the whole limit: nothing is written after it
    assert found["long"]["values"] == {"wanted": 600, "input": 600}
    assert found["speed"]["values"]["tokens_per_second"] > 0
    assert len(manner.questions[-1].get("input") or manner.questions[-1]["documents"]) == 32
    if task != "pool":
        assert found[task]["values"]["fitting"] > found[task]["values"]["other"]


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
    ("manner", "code", "failed", "id"),
    [
        ({"form": "embed", "bad": "same"}, 4, ["embed"], "measure.check_same_vectors"),
        ({"form": "embed", "bad": "nan"}, 4, ["embed"], "measure.check_no_numbers"),
        ({"form": "embed", "bad": "few"}, 4, ["embed"], "measure.check_no_numbers"),
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
    "words",
    [
        ["chat", "mine"],
        ["webui", "mine"],
        ["bench", "mine", "--tool", "builtin"],
        ["bench", "mine", "--tool", "vllm"],
    ],
    ids=" ".join,
)
def test_who_wants_words_hears_that_there_are_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr("gaudi_launch.bench.external_tools.has_vllm_client", lambda python: True)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    with (
        serving(form="embed") as (url, _),
        service("mine", url, engine={"name": "cpu", "version": "0", "python": "/p"}, argv=[]),
    ):
        assert run(words) == 1
    assert "generates no text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "document", "numbers"),
    [
        (
            "embed",
            {"data": [{"index": 1, "embedding": [3]}, {"index": 0, "embedding": [1, 2]}]},
            ((1, 2), (3,)),
        ),
        ("rerank", {"results": [{"index": 0, "relevance_score": math.inf}]}, ((math.inf,),)),
        (
            "pool",
            {"data": [{"index": 0, "data": [[1, 2], [3, 4]]}, {"index": 0.0, "data": 5}]},
            ((1, 2, 3, 4),),
        ),
    ],
)
def test_what_is_read(
    task: str,
    document: object,
    numbers: tuple[tuple[float, ...], ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer(self: Client, path: str, question: object = None) -> Reply:
        return Reply(200, json.dumps(document).encode(), 1.0)

    monkeypatch.setattr(Client, "ask", answer)
    found = asyncio.run(pooling.pooled(Client("http://a:1"), task, ("a", "b"), "m"))
    assert found.numbers[: len(numbers)] == numbers
    # a text for which nothing came has no sound numbers
    assert found.sound == (task == "embed")


NOT_SERVED = (501, {"message": "not for this model"})


@pytest.mark.parametrize(
    ("answers", "task"),
    [
        ({"/v1/embeddings": (200, {})}, "embed"),
        ({"/rerank": (200, {}), "/pooling": (200, {})}, "rerank"),
        ({"/v1/embeddings": (400, {}), "/pooling": (200, {})}, "pool"),
        ({}, None),
    ],
)
def test_the_first_task_that_answers_is_the_servers(
    answers: dict[str, Any], task: str | None
) -> None:
    client = ScriptedClient(lambda path, _: answers.get(path, NOT_SERVED))
    assert asyncio.run(pooling.pick(client, "m")) == task
    questions = [
        ("/v1/embeddings", {"model": "m", "input": ["1", "1"]}),
        ("/rerank", {"model": "m", "query": "1", "documents": ["1"]}),
        ("/pooling", {"model": "m", "input": ["1", "1"]}),
    ]
    tasks = ["embed", "rerank", "pool"]
    assert client.asked == questions[: tasks.index(task) + 1 if task else 3]


def test_a_server_that_fails_has_no_task() -> None:
    client = ScriptedClient(lambda *_: (500, {"message": "dead"}))
    with pytest.raises(ServerError) as caught:
        asyncio.run(pooling.pick(client, "m"))
    assert (caught.value.detail, caught.value.status, len(client.asked)) == ("dead", 500, 1)


def test_the_numbers_of_every_text_in_their_order() -> None:
    document = {
        "data": [
            {"index": 1, "embedding": [3, True]},
            "junk",
            {"index": 0, "embedding": [1.5, "x"]},
            {"index": True, "embedding": [9]},
        ],
        "usage": {"prompt_tokens": 21},
    }
    client = ScriptedClient(lambda *_: (200, document))
    found = asyncio.run(pooling.pooled(client, "embed", ("a", "b", "c"), "m"))
    shown = [[number if number == number else None for number in row] for row in found.numbers]
    # None: not a number; nothing came for the third
    assert shown == [[1.5, None], [3.0, None], [None]]
    assert (found.input, found.seconds, found.sound) == (21, 0.5, False)
    assert client.asked == [("/v1/embeddings", {"model": "m", "input": ["a", "b", "c"]})]


def test_a_reranker_has_a_number_for_all_but_its_query() -> None:
    results = [{"index": 1, "relevance_score": 0.25}, {"index": 0, "relevance_score": 0.5}]
    client = ScriptedClient(lambda *_: (200, {"results": results}))
    found = asyncio.run(pooling.pooled(client, "rerank", ("q", "a", "b"), "m"))
    assert found == pooling.Pooled(((0.5,), (0.25,)), None, 0.5)
    assert client.asked == [("/rerank", {"model": "m", "query": "q", "documents": ["a", "b"]})]


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


def test_numbers_are_sound_when_every_text_has_some_and_all_are_finite() -> None:
    sound = [
        pooling.Pooled(numbers, None, 1.0).sound
        for numbers in (((1.0,), (2.0, 3.0)), ((1.0,), ()), ((1.0,), (math.inf,)), ((math.nan,),))
    ]
    assert sound == [True, False, False, False]


def test_nearness_is_the_cosine_of_the_angle() -> None:
    assert pooling.nearness((3.0, 4.0), (4.0, 3.0)) == 24 / 25
    assert pooling.nearness((1.0, 0.0), (-2.0, 0.0)) == -1.0
