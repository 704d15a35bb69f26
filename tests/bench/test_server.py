"""A server's facts, the form that it answers, and texts of a requested length."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.bench import server
from gaudi_launch.bench.client import ServerError
from gaudi_launch.bench.protocols import Form
from gaudi_launch.bench.server import (
    Answering,
    Ruler,
    ServerFacts,
    counter,
    find_form,
    fitted,
    look,
    ruler_of,
    text,
)
from tests.support.scripted_client import ScriptedClient

SERVED = ServerFacts("m", ("m",))
Counting = Callable[[str], Coroutine[Any, Any, int | None]]
NOT_FOUND = (404, {"detail": "Not Found"})
REFUSED = (400, {"message": "This model does not support chat"})


def always(status: int, document: Any) -> ScriptedClient:
    """Return the client of a server that has one answer to everything."""
    return ScriptedClient(lambda *_: (status, document))


def served_by(info: Any, models: Any, model: str | None = None) -> ServerFacts:
    answers = {"/info": info, "/v1/models": models}
    client = ScriptedClient(lambda path, _: answers[path])
    found = asyncio.run(look(client, model))
    assert client.asked == [("/info", None), ("/v1/models", None)]
    return found


INFO = {"model_id": "org/m", "max_total_tokens": 2048, "max_input_tokens": 1024}


@pytest.mark.parametrize(
    ("info", "models", "facts"),
    [
        (
            NOT_FOUND,
            {"data": [{"id": "a", "owned_by": "vllm", "max_model_len": 4096}, {"id": "b"}, "x"]},
            ServerFacts("a", ("a", "b"), 4096, None, tgi=False, vllm=True),
        ),
        (
            NOT_FOUND,
            {"data": [{"id": "a", "owned_by": "simulated", "max_model_len": True}]},
            ServerFacts("a", ("a",), vllm=True, simulated=True),
        ),
        (NOT_FOUND, {"data": [{"id": "a", "max_model_len": 0}]}, ServerFacts("a", ("a",))),
        ((200, INFO), {"data": [{"id": "a"}]}, ServerFacts("a", ("a",), 2048, 1024, tgi=True)),
        # a limit of the models' list is the server's own
        (
            (200, INFO),
            {"data": [{"id": "a", "max_model_len": 512}]},
            ServerFacts("a", ("a",), 512, 1024, tgi=True),
        ),
        ((503, INFO), {"data": [{"id": "a"}]}, ServerFacts("a", ("a",))),
        ((200, "x"), {"data": [{"id": "a"}]}, ServerFacts("a", ("a",))),
    ],
)
def test_the_facts_are_those_of_info_and_models(info: Any, models: Any, facts: ServerFacts) -> None:
    assert served_by(info, (200, models)) == facts


def test_a_model_that_is_given_is_the_one_of_requests() -> None:
    found = served_by(NOT_FOUND, (200, {"data": [{"id": "a"}]}), "mine")
    assert found == ServerFacts("mine", ("a",))


@pytest.mark.parametrize("models", [NOT_FOUND, (200, {"data": []}), (200, "x")])
def test_tgi_without_a_list_of_models_names_its_model(models: Any) -> None:
    assert served_by((200, INFO), models) == ServerFacts("org/m", ("org/m",), 2048, 1024, tgi=True)


@pytest.mark.parametrize(
    ("info", "models", "error"),
    [
        (NOT_FOUND, NOT_FOUND, ("status", "Not Found", 404)),
        (NOT_FOUND, (200, {"data": []}), ("protocol", "/v1/models names no model", 0)),
        ((200, INFO), (500, {"error": "dead"}), ("status", "dead", 500)),
    ],
)
def test_a_server_without_a_model_is_an_error(info: Any, models: Any, error: Any) -> None:
    with pytest.raises(ServerError) as caught:
        served_by(info, models)
    assert (caught.value.kind, caught.value.detail, caught.value.status) == error


GOOD = {
    "/v1/chat/completions": {"choices": [{"message": {"content": "a"}}]},
    "/v1/completions": {"choices": [{"text": "a"}]},
    "/generate": {"generated_text": "a"},
}


def form_of(answers: dict[str, Any], tgi: bool = False) -> tuple[Answering, list[str]]:
    client = ScriptedClient(lambda path, _: answers.get(path, NOT_FOUND))
    served = ServerFacts("m", ("m",), tgi=tgi)
    found = asyncio.run(find_form(client, served))
    assert asyncio.run(server.pick_form(client, served)) == found.form
    return found, [path for path, _ in client.asked[: len(client.asked) // 2]]


def test_the_first_form_that_answers_is_used() -> None:
    chat, plain, generate = GOOD
    good = {path: (200, document) for path, document in GOOD.items()}
    assert form_of(good) == (Answering("chat"), [chat])
    found, asked = form_of({**good, chat: REFUSED})
    assert (found.form, found.broken, asked) == ("completions", False, [chat, plain])
    assert found.refused is not None and found.refused.detail == REFUSED[1]["message"]
    found, asked = form_of({generate: good[generate]}, tgi=True)
    assert (found.form, found.broken, asked) == ("generate", False, [chat, plain, generate])
    # the error of the chat is the one that counts
    assert found.refused is not None and found.refused.status == 404


@pytest.mark.parametrize(
    ("status", "detail", "broken"),
    [
        (400, "the parser found no token", True),
        (404, "x", False),
        (405, "x", False),
        (501, "x", False),
        (400, "default chat template is no longer allowed", False),
        (400, "you must provide a chat template", False),
        (422, "Template not found", False),
        (400, "This model does not support Chat Completions API", False),
        (400, "no chat template", False),
        (400, "tokenizer.chat_template is not set", False),
    ],
)
def test_a_chat_that_exists_and_is_refused_is_broken(
    status: int, detail: str, broken: bool
) -> None:
    assert Answering("completions", ServerError("status", detail, status)).broken is broken
    assert Answering("chat").broken is False


@pytest.mark.parametrize(
    ("status", "kind", "asked"),
    [(401, "status", 1), (403, "status", 1), (500, "status", 1), (501, "status", 5)],
)
def test_a_server_that_fails_is_asked_no_more(status: int, kind: str, asked: int) -> None:
    client = always(status, {"message": "no"})
    with pytest.raises(ServerError) as caught:
        asyncio.run(find_form(client, SERVED))
    assert (caught.value.kind, caught.value.status, len(client.asked)) == (kind, status, asked)


def test_a_connection_that_is_cut_is_not_another_form() -> None:
    client = always(0, ServerError("cut", "closed"))
    with pytest.raises(ServerError) as caught:
        asyncio.run(find_form(client, SERVED))
    assert (caught.value.kind, len(client.asked)) == ("cut", 1)


def test_a_server_without_text_is_named_by_its_path() -> None:
    def answer(path: str, _: Any) -> tuple[int, Any]:
        return (200, {"data": []}) if path == "/pooling" else REFUSED

    client = ScriptedClient(answer)
    with pytest.raises(ServerError) as caught:
        asyncio.run(find_form(client, SERVED))
    assert (caught.value.kind, caught.value.detail) == ("pooled", "/pooling")


def counting(each: int, fixed: int, asked: list[int]) -> Counting:
    """Return a server's count: ``each`` tokens for a noun, and ``fixed`` more."""

    async def count(prompt: str) -> int | None:
        asked.append(len(prompt.split()))
        return each * asked[-1] + fixed

    return count


@pytest.mark.parametrize(
    ("longest", "lengths"),
    [(None, [16, 144]), (8192, [16, 144]), (200, [16, 100]), (40, [16, 32])],
)
def test_two_short_texts_measure_the_tokens_of_a_noun(
    longest: int | None, lengths: list[int]
) -> None:
    asked: list[int] = []
    assert asyncio.run(ruler_of(counting(2, 7, asked), longest)) == Ruler(2.0, 7.0, True)
    assert asked == lengths


def test_the_ruler_is_measured_by_requests_for_one_token() -> None:
    def answer(path: str, question: Any) -> tuple[int, Any]:
        nouns = len(question["prompt"].split())
        return 200, {"choices": [{"text": "a"}], "usage": {"prompt_tokens": 2 * nouns + 7}}

    client = ScriptedClient(answer)
    served = ServerFacts("m", ("m",), 200)
    found = asyncio.run(server.measure_ruler(client, served, "completions"))
    assert found == Ruler(2.0, 7.0, True)
    common = {"model": "m", "max_tokens": 1, "temperature": 0.0}
    assert client.asked == [
        ("/v1/completions", {**common, "prompt": text(nouns, nouns)}) for nouns in (16, 100)
    ]


@pytest.mark.parametrize("counts", [[None, 9], [9, None], [9, 9], [9, 5]])
def test_without_a_line_a_noun_is_a_token(counts: list[int | None]) -> None:
    left = iter(counts)

    async def count(prompt: str) -> int | None:
        return next(left)

    assert asyncio.run(ruler_of(count, None)) == Ruler(1.0, 0.0, False)


def test_a_ruler_gives_the_nouns_of_a_length() -> None:
    ruler = Ruler(2.0, 7.0, True)
    assert [ruler.words(tokens) for tokens in (207, 208, 209, 0)] == [100, 100, 101, 1]
    assert Ruler(0.1).words(3) == 30


def fit(count: Counting, ruler: Ruler, tokens: int) -> tuple[int, int]:
    found, counted = asyncio.run(fitted(count, ruler, tokens, 5))
    assert found == text(len(found.split()), 5)
    return len(found.split()), counted


def test_a_text_is_as_long_as_its_server_counts() -> None:
    asked: list[int] = []
    assert fit(counting(2, 7, asked), Ruler(2.0, 7.0, True), 207) == (100, 207)
    assert asked == [100]
    # a ruler that is wrong is corrected by what was counted
    asked.clear()
    assert fit(counting(2, 7, asked), Ruler(1.0, 0.0, False), 207) == (100, 207)
    assert asked[0] == 207
    # one noun too many is one noun less
    asked.clear()
    assert fit(counting(2, 7, asked), Ruler(2.0, 5.0, True), 208) == (100, 207)
    assert asked == [101, 100]
    # an odd length is not reached: the longest below it, and no request more than this takes
    asked.clear()
    assert fit(counting(2, 7, asked), Ruler(2.0, 7.0, True), 208) == (100, 207)
    assert asked == [100, 101]
    # nothing is this short: one request shows it
    asked.clear()
    assert fit(counting(2, 7, asked), Ruler(2.0, 7.0, True), 5) == (1, 0)
    assert asked == [1]


@pytest.mark.parametrize("each", [2, 3, 5])
def test_a_ruler_that_is_far_off_is_corrected(each: int) -> None:
    """A server without counts in its answers may still have /tokenize."""
    assert fit(counting(each, 0, []), Ruler(), 300) == (300 // each, 300)


def test_without_counts_a_text_is_as_long_as_the_ruler() -> None:
    async def count(prompt: str) -> int | None:
        return None

    assert fit(count, Ruler(1.5, 7.0, True), 100) == (62, 100)


def counted_by(client: ScriptedClient, form: Form) -> int | None:
    async def counted() -> int | None:
        return await counter(client, SERVED, form)("a b")

    return asyncio.run(counted())


def test_prompts_are_counted_in_the_form_of_their_request() -> None:
    client = always(200, {"count": 9})
    assert counted_by(client, "chat") == 9
    assert counted_by(client, "completions") == 9
    chat = [{"role": "user", "content": "a b"}]
    assert client.asked == [
        ("/tokenize", {"model": "m", "messages": chat, "add_generation_prompt": True}),
        ("/tokenize", {"model": "m", "prompt": "a b"}),
    ]
    for client in (always(404, {"count": 9}), always(200, {"count": "9"}), always(200, [])):
        assert counted_by(client, "chat") is None


def test_seeds_are_microseconds_that_every_tool_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(time_ns=lambda: ((1 << 31) + 5) * 1000 + 999)
    monkeypatch.setattr(server, "time", clock)
    assert server.new_seed() == 5
