"""``gaudi-launch check`` from the command line against servers that are well and that are not."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

import pytest

from gaudi_launch.bench import check, protocols
from gaudi_launch.bench.check import NAMES, edge
from gaudi_launch.bench.client import Client
from gaudi_launch.bench.server import ServerFacts
from gaudi_launch.cli.main import run
from gaudi_launch.services.endpoint import Target, target
from tests.support.service_record import service
from tests.support.stand_in_server import FIXED, KEY, serving


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = run(["check", *words, "--json"])
    out, err = capsys.readouterr()
    assert err == "", err
    return code, json.loads(out)


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {row["name"]: row["verdict"] for row in found["checks"]}


def test_a_good_server(capsys: pytest.CaptureFixture[str]) -> None:
    begin = time.perf_counter()
    with serving(gap=0.005) as (url, manner):
        code, found = ask(capsys, url, "--long", "300")
    took = time.perf_counter() - begin
    assert (code, found["ok"], found["url"], found["service"]) == (0, True, url, None)
    assert verdicts(found) == {**dict.fromkeys(NAMES, "ok"), "generate": "skip"}
    values = {row["name"]: row["values"] for row in found["checks"]}
    assert values["models"] == {"models": ["stand-in"], "longest": 4096, "tgi": False}
    assert values["long"]["input"] == 300
    # 64 words at 5 ms each or, on a busy machine, as many as all of it took
    assert (
        values["speed"]["output"] == 64 and 64 / took < values["speed"]["tokens_per_second"] < 205
    )
    assert manner.questions[-1]["ignore_eos"] is True


def test_tgi_is_asked_in_its_own_form_too(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(form="tgi", gap=0.001) as (url, _):
        code, found = ask(capsys, url)
    assert (code, verdicts(found)) == (0, dict.fromkeys(NAMES, "ok"))
    assert {row["name"]: row["values"] for row in found["checks"]}["long"]["input"] == 1024


def test_old_tgi_has_its_own_form_only(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(form="old-tgi", gap=0.001) as (url, manner):
        code, found = ask(capsys, url)
    assert (code, verdicts(found)) == (0, dict.fromkeys(NAMES, "ok"))
    assert found["checks"][2]["values"]["form"] == "generate"
    assert manner.questions[-1] == {
        "inputs": "What is the capital of France? Answer in one word.",
        "parameters": {"max_new_tokens": 16, "details": True},
    }


def test_a_model_without_chat_template(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(form="base", gap=0.001) as (url, _):
        code, found = ask(capsys, url, "--long", "100")
    assert (code, found["checks"][2]["values"]["form"]) == (0, "completions")


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


def test_an_answer_in_no_time_tells_nothing_of_streaming(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaudi_launch.bench.check._NO_TIME", 60)
    with serving(streams=False) as (url, _):
        code, found = ask(capsys, url, "--long", "100")
    assert (code, verdicts(found)["stream"]) == (0, "ok")


@pytest.mark.parametrize(
    ("pieces", "tokens", "verdict", "rate"),
    [
        ((0.5, 1.0, 1.5), 3, "ok", 2.0),
        # read at once, by a busy machine or behind what gathers: no slower than this
        ((0.5, 0.5, 0.5), 3, "ok", 6.0),
        ((0.5,), 1, "skip", None),
        ((), 0, "skip", None),
    ],
)
def test_the_speed(
    pieces: tuple[float, ...],
    tokens: int,
    verdict: str,
    rate: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def stream(*_: object) -> protocols.ModelAnswer:
        return protocols.ModelAnswer("x", 1, tokens, True, "length", pieces, 2.0)

    monkeypatch.setattr(protocols, "stream", stream)
    row = asyncio.run(check._speed(Client("http://a:1"), ServerFacts("m", ("m",)), check._Facts()))
    assert (row.verdict, row.values.get("tokens_per_second")) == (verdict, rate)


def test_a_silent_server_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(bad="silent") as (url, _):
        code, found = ask(capsys, url, "--long", "100", "--patience", "2")
    assert code == 4 and "No answer within 2 s" in found["checks"][3]["message"]


def test_nobody_there_is_our_way_not_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        code, found = ask(capsys, f"127.0.0.1:{trial.getsockname()[1]}")
    assert (code, verdicts(found)["health"], verdicts(found)["chat"]) == (1, "fail", "skip")


def test_the_key_opens(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    with serving(key=True) as (url, _):
        assert run(["check", url, "--long", "50"]) == 0
    out, err = capsys.readouterr()
    assert KEY not in out + err and "All checks passed." in out


def test_a_service_by_name_goes_to_its_bucket_edge(capsys: pytest.CaptureFixture[str]) -> None:
    buckets = {"prompt": [[1, 128, 0], [1, 640, 0], [1, 128, 2048]], "decode": [], "graphs": 3}
    argv = ["python", "--served-model-name", "stand-in"]
    with serving(gap=0.001) as (url, manner), service("mine", url, buckets=buckets, argv=argv):
        code, found = ask(capsys, "mine")
    long = {row["name"]: row for row in found["checks"]}["long"]
    assert (code, found["service"], long["values"]["input"]) == (0, "mine", 640)
    assert "top prompt bucket 640" in long["message"]
    longest = max(len(q["messages"][0]["content"].split()) for q in manner.questions)
    assert longest == 640 - FIXED


def test_another_model_than_the_plan_says(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as (url, _), service("mine", url, argv=["python", "--served-model-name=other"]):
        code, found = ask(capsys, "mine")
    assert code == 1 and "stand-in, not other" in found["checks"][1]["message"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["nobody"], 2, "starting, dead"),
        (["starting"], 1, "phase 'load'"),
        # its launcher ended without a word
        (["dead"], 1, "phase 'lost'"),
        (["../etc"], 2, "../etc"),
        (["http://"], 2, "not a valid server address"),
        (["ftp://127.0.0.1"], 2, "not a valid server address"),
        (["http://user:pass@127.0.0.1:1"], 2, "not a valid server address"),
        (["127.0.0.1:99999"], 2, "not a valid server address"),
        (["127.0.0.1:1", "--long", "many"], 2, "--long"),
        (["127.0.0.1:1", "--patience", "0"], 2, "--patience"),
        ([], 2, "Missing argument"),
    ],
)
def test_bad_words(
    capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    with service("dead", "http://127.0.0.1:9"):
        pass
    with service("starting", "http://127.0.0.1:9", phase="load"):
        assert run(["check", *words]) == code
    out, err = capsys.readouterr()
    assert says in err and "Traceback" not in out + err


def test_the_table_in_both_languages(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(form="old-tgi", gap=0.001) as (url, _):
        assert run(["check", url, "--lang", "zh"]) == 0
        chinese = capsys.readouterr().out
        assert run(["check", url]) == 0
        english = capsys.readouterr().out
    assert "所有检查项均通过" in chinese and "All checks passed." in english
    assert chinese.count("正常") == english.count(" ok ") == 7


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://localhost:8000/v1", "http://localhost:8000"),
        ("http://localhost:8000/v1/", "http://localhost:8000"),
        ("localhost:8000", "http://localhost:8000"),
        ("https://host/proxy/llm", "https://host/proxy/llm"),
        ("http://0.0.0.0:1", "http://127.0.0.1:1"),
        ("http://[::]:1", "http://[::1]:1"),
        ("http://[fe80::1]:1", "http://[fe80::1]:1"),
    ],
)
def test_addresses(text: str, url: str) -> None:
    assert target(text).url == url


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
