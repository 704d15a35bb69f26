"""``gaudi-launch check`` from the command line against servers that are well and that are not."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.services.endpoint import Target
from gaudi_launch.extensions.bench import protocols
from gaudi_launch.extensions.bench.check import checks as check
from gaudi_launch.extensions.bench.check.checks import NAMES, edge
from gaudi_launch.extensions.bench.check.rows import CheckRow
from gaudi_launch.extensions.bench.client import Client, ServerError
from gaudi_launch.extensions.bench.server import ServerFacts
from tests.support.scripted_client import ScriptedClient
from tests.support.service_record import service
from tests.support.stand_in_server import FIXED, serving

CLIENT = Client("http://a:1")


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = run(["check", *words, "--json"])
    out, err = capsys.readouterr()
    assert err == "", err
    return code, json.loads(out)


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {row["name"]: row["verdict"] for row in found["checks"]}


def test_tgi_is_asked_in_its_own_form_too(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(form="tgi", gap=0.001) as (url, _):
        code, found = ask(capsys, url)
    assert (code, verdicts(found)) == (0, dict.fromkeys(NAMES, "ok"))
    assert {row["name"]: row["values"] for row in found["checks"]}["long"]["input"] == 1024


def test_a_chat_that_is_refused_is_never_ok(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(form="broken-chat", gap=0.001) as (url, _):
        code, found = ask(capsys, url, "--long", "100")
    assert code == 4
    found_verdicts = verdicts(found)
    assert (found_verdicts["chat"], found_verdicts["stream"], found_verdicts["long"]) == (
        "fail",
        "ok",
        "ok",
    )
    chat = found["checks"][2]
    sentence = (
        "DeepSeek R1 reasoning parser could not locate think start/end tokens in the tokenizer!"
    )
    assert chat["values"]["refused"] == {"status": 400, "detail": sentence}
    assert f"status 400: {sentence}" in json.dumps(chat)


@pytest.mark.parametrize(
    ("manner", "code", "failed", "words"),
    [
        ({"status": 500}, 4, ["chat"], "status 500: the engine is dead"),
        ({"bad": "empty"}, 4, ["chat"], "empty"),
        ({"bad": "hollow"}, 4, ["long"], "empty"),
        ({"bad": "json"}, 4, ["stream", "long", "speed"], "Unexpected response"),
        ({"bad": "cut"}, 4, ["stream", "long", "speed"], "was cut off"),
        ({"streams": False, "first": 0.5}, 4, ["stream"], "arrived together"),
        ({"key": True}, 1, ["models"], "VLLM_API_KEY"),
        ({"bad": "not-http"}, 4, ["health"], "Unexpected response"),
        # dies after the form was found and the first chat was answered
        ({"fail_from": 3}, 4, ["stream", "long", "speed"], "the engine is dead"),
    ],
)
def test_servers_that_are_not_well(
    capsys: pytest.CaptureFixture[str],
    manner: dict[str, Any],
    code: int,
    failed: list[str],
    words: str,
) -> None:
    with serving(**manner) as (url, _):
        got, found = ask(capsys, url, "--long", "100")
    rows = [row for row in found["checks"] if row["verdict"] == "fail"]
    assert (got, found["ok"], [row["name"] for row in rows]) == (code, False, failed)
    assert words in rows[0]["message"]
    assert sorted(verdicts(found)) == sorted(NAMES)


def test_a_silent_server_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(bad="silent") as (url, _):
        code, found = ask(capsys, url, "--long", "100", "--timeout", "2")
    assert code == 4 and "No answer within 2 s" in found["checks"][3]["message"]


def test_a_service_by_name_goes_to_its_bucket_edge(capsys: pytest.CaptureFixture[str]) -> None:
    buckets = {"prompt": [[1, 128, 0], [1, 640, 0], [1, 128, 2048]], "decode": [], "graphs": 3}
    argv = ["python", "--served-model-name", "stand-in"]
    with serving(gap=0.001) as (url, manner), service("mine", url, buckets=buckets, argv=argv):
        code, found = ask(capsys, "mine")
    long = {row["name"]: row for row in found["checks"]}["long"]
    assert (code, found["service"], long["values"]["input"]) == (0, "mine", 640)
    first = long["values"]["first"]
    assert "top prompt bucket 640" in long["message"] and f"{first:.2f} s" in long["message"]
    assert f" {round(640 / first):,} " in long["message"]
    longest = max(len(q["messages"][0]["content"].split()) for q in manner.questions)
    assert longest == 640 - FIXED


def test_another_model_than_the_plan_says(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as (url, _), service("mine", url, argv=["python", "--served-model-name=other"]):
        code, found = ask(capsys, "mine")
    assert code == 1 and "stand-in, not other" in found["checks"][1]["message"]


def test_the_edge() -> None:
    served = ServerFacts("m", ("m",), longest=1000)
    plan = {"buckets": {"prompt": [[1, 512, 0], [1, 2048, 0]], "decode": []}}
    assert edge(Target("http://a:1", plan=plan), served)[0] == 992
    assert edge(Target("http://a:1", plan=plan), ServerFacts("m", ("m",)))[0] == 2048
    assert (
        edge(
            Target("http://a:1", plan={"argv": ["--max-model-len", "600"]}),
            ServerFacts("m", ("m",)),
        )[0]
        == 592
    )
    assert edge(Target("http://a:1"), ServerFacts("m", ("m",), longest=131072))[0] == 4096
    assert edge(Target("http://a:1", plan={"buckets": "junk", "argv": 3}), served)[0] == 992
    # the limit that is named is the one that holds
    tokens, why = edge(
        Target("http://a:1"), ServerFacts("m", ("m",), longest=2048, longest_input=1024)
    )
    assert (tokens, why.values["limit"]) == (1024, 1024)
    tokens, why = edge(Target("http://a:1"), ServerFacts("m", ("m",), longest=2048))
    assert (tokens, why.values["limit"]) == (2040, 2048)


SERVED = ServerFacts("m", ("m", "n"), longest=100, vllm=True)


def test_a_server_without_health_is_no_failure() -> None:
    def row(status: int) -> CheckRow:
        client = ScriptedClient(lambda *_: (status, {"detail": "x"}))
        found = asyncio.run(check._health(client))
        assert client.asked == [("/health", None)]
        return found

    assert row(200) == CheckRow("health", "ok", message("measure.check_health"))
    assert row(404) == CheckRow("health", "skip", message("measure.check_no_health"))
    with pytest.raises(ServerError) as caught:
        row(503)
    assert (caught.value.status, caught.value.detail) == (503, "x")


CAPITAL = protocols.ask_one("What is the capital of France? Answer in one word.", 32)


def replying(
    answer: protocols.ModelAnswer, monkeypatch: pytest.MonkeyPatch, name: str = "stream"
) -> list[Any]:
    """Give this answer to every request; return what is asked."""
    asked: list[Any] = []

    async def reply(*words: Any) -> protocols.ModelAnswer:
        asked.append(words)
        return answer

    monkeypatch.setattr(protocols, name, reply)
    return asked


def answer(
    text: str, pieces: tuple[float, ...], tokens: int, seconds: float = 2.0, **more: Any
) -> protocols.ModelAnswer:
    return protocols.ModelAnswer(
        text,
        more.get("thought", ""),
        more.get("input"),
        tokens if more.get("counted", True) else None,
        "stop",
        pieces,
        seconds,
    )


@pytest.mark.parametrize(
    ("given", "verdict", "sentence", "seconds"),
    [
        (
            answer("a b", (0.5, 1.0), 2),
            "ok",
            message("measure.check_stream", pieces=2, first=500),
            2.0,
        ),
        (answer("", (), 0), "fail", message("measure.check_empty"), 2.0),
        (answer("a b c d e", (1.5,) * 5, 5), "fail", message("measure.check_at_once", tokens=5), 0),
        # too few, or too fast, to show that nothing was streamed
        (
            answer("a b c d", (1.5,) * 4, 4),
            "ok",
            message("measure.check_stream", pieces=4, first=1500),
            2.0,
        ),
        (
            answer("a b c d e", (0.1,) * 5, 5, 0.2),
            "ok",
            message("measure.check_stream", pieces=5, first=100),
            0.2,
        ),
    ],
)
def test_a_stream_arrives_in_pieces(
    given: protocols.ModelAnswer,
    verdict: Any,
    sentence: Message,
    seconds: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = replying(given, monkeypatch)
    facts = check._Facts(SERVED, "generate", text="Paris")
    row = asyncio.run(check._stream(CLIENT, SERVED, facts))
    values = {
        "pieces": len(given.pieces),
        "first": given.first,
        "output": given.tokens,
        "text": given.text,
    }
    fault: Any = "engine" if verdict == "fail" else ""
    assert row == CheckRow("stream", verdict, sentence, seconds, values, fault)
    assert asked == [(CLIENT, "generate", CAPITAL, "m")]


@pytest.mark.parametrize(
    ("given", "id", "rate"),
    [
        (answer("", (0.5, 1.0, 1.75), 4), "measure.check_speed", 2.4),
        (answer("", (0.5, 1.0, 1.5, 1.75), 4, counted=False), "measure.check_speed_pieces", 2.4),
        (answer("", (0.6, 0.6), 4), "measure.check_speed_at_once", 6.667),
    ],
)
def test_the_speed_is_that_after_the_first_token(
    given: protocols.ModelAnswer, id: str, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = replying(given, monkeypatch)
    row = asyncio.run(check._speed(CLIENT, SERVED, check._Facts()))
    first = given.pieces[0]
    values = {"tokens_per_second": rate, "first": first, "output": 4}
    sentence = message(id, rate=f"{rate:.1f}", tokens=4, first=round(1000 * first))
    assert row == CheckRow("speed", "ok", sentence, 2.0, values)
    question = "Count from one to a hundred in words."
    # as many as the server's limit leaves
    prompt = protocols.ask_one(question, 52, ignore_eos=True)
    assert asked == [(CLIENT, "chat", prompt, "m")]


@pytest.mark.parametrize(("longest", "tokens"), [(None, 64), (4096, 64), (60, 12), (40, 2)])
def test_the_speed_is_measured_within_the_servers_limit(
    longest: int | None, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = replying(answer("", (0.5,), 1), monkeypatch)
    served = ServerFacts("m", ("m",), longest=longest)
    row = asyncio.run(check._speed(CLIENT, served, check._Facts()))
    sentence = message("measure.check_too_short", tokens=1)
    assert row == CheckRow("speed", "skip", sentence, 2.0, {"output": 1})
    assert (asked[0][2].tokens, asked[0][2].ignore_eos) == (tokens, False)


def test_tgis_own_form_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    streamed = replying(answer("Paris", (0.5, 1.0), 2), monkeypatch)
    asked = replying(answer("Paris", (), 2), monkeypatch, "whole")
    row = asyncio.run(check._generate(CLIENT, SERVED))
    sentence = message("measure.check_generate", text="Paris", pieces=2)
    values = {"text": "Paris", "output": 2, "pieces": 2}
    assert row == CheckRow("generate", "ok", sentence, 4.0, values)
    question = protocols.ask_one(CAPITAL.text, 16)
    assert asked == streamed == [(CLIENT, "generate", question, "m")]
    replying(answer(" ", (), 0), monkeypatch, "whole")
    row = asyncio.run(check._generate(CLIENT, SERVED))
    assert (row.verdict, row.sentence.id, row.fault) == ("fail", "measure.check_empty", "engine")
