"""The chat page: its conversations with servers, and what its own web server serves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from gaudi_launch.extensions.kubernetes.chart_values import Name, plain
from gaudi_launch.extensions.kubernetes.objects.webui_objects import webui
from gaudi_launch.extensions.kubernetes.options import KubernetesOptions
from gaudi_launch.extensions.kubernetes.pods import chat_page
from gaudi_launch.extensions.kubernetes.pods.chat_page import (
    Chat,
    Closed,
    answer,
    as_messages,
    refusal,
)
from tests.support.http_answers import server
from tests.support.stand_in_server import KEY, serving

HISTORY = [
    {"role": "user", "content": "one", "metadata": None},
    {"role": "assistant", "content": "hm", "metadata": {"title": "reasoning"}},
    {"role": "assistant", "content": [{"type": "text", "text": "t"}, "wo", {"file": {}}, 5]},
    {"role": "assistant", "content": "", "metadata": {}},
    {"role": "system", "content": "x"},
    {"role": "user", "content": None},
    ("three", None),
    "junk",
]
MESSAGES = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "three"},
]


def titled(content: str, title: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "metadata": {"title": title}}


def said(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def test_thoughts_failures_and_other_things_are_not_sent_again() -> None:
    assert as_messages(HISTORY) == MESSAGES
    assert as_messages(None) == []


ASKED = [{"role": "system", "content": "brief"}, *MESSAGES, {"role": "user", "content": "four"}]
TEXT = "brief\none\ntwo\nthree\nfour"


@pytest.mark.parametrize(
    ("form", "style", "asked"),
    [
        (
            "vllm",
            "chat",
            {"model": "stand-in", "stream": True, "temperature": 0.5, "messages": ASKED},
        ),
        (
            "base",
            "completions",
            {
                "model": "stand-in",
                "stream": True,
                "temperature": 0.5,
                "max_tokens": 256,
                "prompt": TEXT,
            },
        ),
        (
            "old-tgi",
            "generate",
            {
                "inputs": TEXT,
                "parameters": {"max_new_tokens": 256, "do_sample": True, "temperature": 0.5},
            },
        ),
    ],
)
def test_an_answer_grows_in_each_style(form: str, style: str, asked: dict[str, Any]) -> None:
    with serving(form=form, pieces=3, key=form != "old-tgi") as (url, manner):
        chat = Chat(f"{url}/", style=style, system="brief", temperature=0.5, key=KEY)
        found = list(answer(chat, [{"type": "text", "text": "four"}], HISTORY))
    assert [text for text in found if text] == ["Paris", "Paris w1", "Paris w1 w2"]
    assert manner.questions == [asked]


def test_a_model_and_a_limit_are_those_of_the_options() -> None:
    with serving(pieces=1) as (url, manner):
        list(answer(Chat(url, model="mine", tokens=7), "q", []))
    (asked,) = manner.questions
    assert (asked["model"], asked["max_tokens"]) == ("mine", 7)


def test_thoughts_and_failures_stand_apart() -> None:
    with serving(thinks=True, pieces=2) as (url, manner):
        chat = Chat(url, titled=True)
        found = list(answer(chat, "q", []))
        manner.status = 500
        failed = list(answer(chat, "q", []))
    thought = titled("hmm", "reasoning")
    assert found == [[thought], [thought, said("Paris")], [thought, said("Paris w1")]]
    assert failed == [[titled("500 the engine is dead", "no answer")]]


@pytest.mark.parametrize("bad", ["json", "cut", "error", "not-http"])
def test_what_failed_is_shown_after_what_was_answered(bad: str) -> None:
    with serving(bad=bad, pieces=4) as (url, _):
        found = list(answer(Chat(url), "q", []))
    assert found[-1].endswith(")") and "(" in found[-1]


def test_a_server_that_is_not_there_is_named() -> None:
    assert "refused" in list(answer(Chat("http://127.0.0.1:9"), "q", []))[-1]


def test_the_inferentia_example_answers_with_the_question() -> None:
    with server({"/infer": (200, b'["<s> What is 1+1?\\n2</s>"]')}) as (url, asked):
        assert list(answer(Chat(url, style="infer"), "What is 1+1?", [])) == ["2"]
    assert asked[0][0] == "/infer?sentence=What+is+1%2B1%3F"


HOSTS = ("chat.example.com", "*.wild.example")


@pytest.mark.parametrize(
    ("path", "headers", "served"),
    [
        ("/", {"host": "10.0.0.7:7860"}, True),
        ("/", {"host": "[::1]:7860"}, True),
        ("/", {"host": "localhost:7860"}, True),
        ("/", {"host": "chat-webui"}, True),
        ("/", {"host": "chat-webui.llm.svc.cluster.local:7860"}, True),
        ("/", {"host": "chat-webui.llm.svc"}, True),
        ("/", {"host": "Chat.Example.com"}, True),
        ("/", {"host": "a.wild.example"}, True),
        ("/", {"host": "wild.example"}, False),
        ("/", {"host": "rebound.example:7860"}, False),
        ("/", {"host": "chat.example.com.rebound.example"}, False),
        ("/", {"host": "[::1"}, False),
        ("/", {"host": ""}, False),
        ("/", {}, False),
        ("/", {"host": "a:1", "origin": "http://a:1"}, True),
        ("/", {"host": "chat.example.com", "origin": "https://chat.example.com"}, True),
        ("/", {"host": "a:1", "origin": "http://a:2"}, False),
        ("/", {"host": "a:1", "origin": "null"}, False),
        ("/", {"host": "a:1", "origin": "http://["}, False),
        ("/gradio_api/queue/join", {"host": "a"}, True),
        ("/queue/join", {"host": "a"}, True),
        ("/gradio_api/upload", {"host": "a"}, False),
        ("//gradio_api/upload", {"host": "a"}, False),
        ("/gradio_api//upload", {"host": "a"}, False),
        ("/upload", {"host": "a"}, False),
        ("/openapi.json", {"host": "a"}, False),
        ("/gradio_api/file=/etc/passwd", {"host": "a"}, False),
        ("/file=/etc/passwd", {"host": "a"}, False),
    ],
)
def test_only_the_page_and_what_it_needs_is_served(
    path: str, headers: Mapping[str, str], served: bool
) -> None:
    assert (refusal(path, headers, HOSTS) == "") is served


def sent(
    *events: dict[str, Any], kind: str = "http", host: bytes = b"localhost"
) -> list[dict[str, Any]]:
    """Return what a browser gets of an application that sends these events."""
    found: list[dict[str, Any]] = []
    scope = {"type": kind, "path": "/", "headers": [(b"host", host)]}

    async def receive() -> dict[str, Any]:
        raise AssertionError

    async def send(event: Any) -> None:
        found.append(event)

    async def inner(got: Any, reading: Any, sending: Any) -> None:
        assert (got, reading) == (scope, receive)
        for event in events:
            await sending(event)

    asyncio.run(Closed(inner)(scope, receive, send))
    return found


def start(*headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": 200, "headers": list(headers)}


def body(content: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": content, "more_body": more}


POLICY = (b"content-security-policy", chat_page.POLICY.encode())


def test_a_page_loses_what_is_elsewhere() -> None:
    head = (
        b'<head><script src="https://cdn.example/a.js" async> </script><SCRIPT>1</SCRIPT>'
        b'<link rel="x" href="http://fonts.example/b.css"><link href="/c.css"></head>'
    )
    kept = b'<head><SCRIPT>1</SCRIPT><link href="/c.css"></head>'
    html = (b"Content-Type", b"text/html; charset=utf-8")
    theirs = (b"Content-Security-Policy", b"default-src *")
    given = start(html, theirs, (b"Content-Length", b"999"))
    # a link is cut between two parts
    assert sent(given, body(head[:40], more=True), body(head[40:])) == [
        start(html, POLICY, (b"content-length", str(len(kept)).encode())),
        body(kept),
    ]


def test_other_answers_pass_piece_by_piece_for_this_origin_only() -> None:
    kind, length = (b"content-type", b"text/event-stream"), (b"content-length", b"8")
    cors = (b"Access-Control-Allow-Origin", b"http://rebound.example")
    link = body(b'<link href="http://a.example">', more=True)
    assert sent(start(kind, cors, length), link, body(b"b")) == [
        start(kind, length, POLICY),
        link,
        body(b"b"),
    ]


def test_a_refused_request_does_not_reach_the_page() -> None:
    status, text = sent(start(), host=b"rebound.example")
    assert (status["status"], b"rebound.example" in text["body"]) == (403, True)
    closed = {"type": "websocket.close", "code": 1008}
    assert sent(start(), kind="websocket", host=b"rebound.example") == [closed]
    # the events of the server itself have no host
    event = {"type": "lifespan.startup.complete"}
    assert sent(event, kind="lifespan", host=b"") == [event]


def test_the_policy_names_no_other_host() -> None:
    rules = dict(rule.split(" ", 1) for rule in chat_page.POLICY.split("; "))
    assert rules == {
        "default-src": "'self'",
        "script-src": "'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "media-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "connect-src": "'self'",
        "worker-src": "'self' blob:",
        "object-src": "'none'",
        "base-uri": "'self'",
        "form-action": "'self'",
        "frame-ancestors": "'self'",
    }


def test_the_pod_gives_the_page_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of the Deployment are those that the program reads."""
    cluster = KubernetesOptions(release="chat", webui=True, ingress_host="chat.example.com")
    _, deployment, _ = plain(webui(cluster, Name("chat"), Name("chat"), "hub/model"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    for entry in container["env"]:
        monkeypatch.setenv(entry["name"], entry["value"])
    monkeypatch.setenv("VLLM_API_KEY", "key")
    served: list[Any] = []
    monkeypatch.setattr(chat_page, "serve", lambda *words: served.append(words))
    chat_page.main()
    chat = Chat("http://chat:8000", title="hub/model", key="key", hosts=("chat.example.com",))
    assert served == [(chat, "0.0.0.0", 7860)]
