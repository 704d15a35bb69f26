"""The quick part of the tests of webui: its answers and its policy, without Gradio or a browser."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.bench import protocols
from gaudi_launch.bench.client import Client, ServerError
from gaudi_launch.bench.conversation import Conversation
from gaudi_launch.bench.protocols import ModelAnswer, Prompt
from gaudi_launch.bench.server import ServerFacts
from gaudi_launch.messages import text

CLIENT = Client("http://a:1")
TEMPLATE = Conversation(CLIENT, ServerFacts("m", ("m",)), "chat", "be brief", 9, 0.5)
NAME = "gaudi_launch.bench.webui"


class Made:
    """A class of another library: what it is called with."""

    def __init__(self, *words: Any, **options: Any) -> None:
        self.words, self.options = words, options

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Made) and vars(self) == vars(other)


def stand_ins() -> dict[str, ModuleType]:
    """Return modules in place of Gradio, FastAPI and uvicorn."""
    gradio, fastapi, uvicorn = (ModuleType(name) for name in ("gradio", "fastapi", "uvicorn"))
    for name in ("ChatInterface", "Chatbot", "mount_gradio_app"):
        setattr(gradio, name, Made)
    gradio.themes = SimpleNamespace(Base=Made)  # type: ignore[attr-defined]
    fastapi.FastAPI = Made  # type: ignore[attr-defined]
    uvicorn.Config = Made  # type: ignore[attr-defined]
    return {"gradio": gradio, "fastapi": fastapi, "uvicorn": uvicorn}


@pytest.fixture
def webui(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module with stand-ins for its libraries."""
    for name, module in stand_ins().items():
        monkeypatch.setitem(sys.modules, name, module)
    package = importlib.import_module("gaudi_launch.bench")
    # undone at the end: other tests get the module with the libraries themselves
    monkeypatch.setitem(sys.modules, NAME, ModuleType(NAME))
    monkeypatch.setattr(package, "webui", None, raising=False)
    monkeypatch.setenv("GRADIO_ANALYTICS_ENABLED", "True")
    del sys.modules[NAME]
    return importlib.import_module(NAME)


def model(
    monkeypatch: pytest.MonkeyPatch, pieces: list[tuple[str, bool]], error: Exception | None = None
) -> list[Any]:
    """Answer with these pieces; return what is asked."""
    asked: list[Any] = []

    async def stream(*words: Any) -> ModelAnswer:
        asked.append(words[:-1])
        for piece in pieces:
            await asyncio.sleep(0)
            words[-1](*piece)
        if error is not None:
            raise error
        return ModelAnswer("Paris", 7, 1, True, "stop", (0.1,), 0.2)

    monkeypatch.setattr(protocols, "stream", stream)
    return asked


def all_of(parts: AsyncIterator[Any]) -> list[Any]:
    async def taken() -> list[Any]:
        return [part async for part in parts]

    return asyncio.run(taken())


def said(words: str, title: str = "") -> dict[str, Any]:
    shown: dict[str, Any] = {"role": "assistant", "content": words}
    if title:
        shown["metadata"] = {"title": title}
    return shown


HISTORY = [
    {"role": "user", "content": "one", "metadata": None},
    {"role": "assistant", "content": "hm", "metadata": {"title": "reasoning"}},
    {"role": "assistant", "content": [{"type": "text", "text": "t"}, "wo", {"file": {}}, 5]},
    {"role": "assistant", "content": "", "metadata": {}},
    {"role": "system", "content": "x"},
    {"role": "user", "content": None},
    "junk",
]
MESSAGES = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]


def test_thoughts_errors_and_other_things_are_not_sent_again(webui: Any) -> None:
    assert webui.messages(HISTORY) == MESSAGES
    assert webui.messages(None) == []


def test_an_answer_grows_with_its_thoughts_apart(
    webui: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = model(monkeypatch, [("h", True), ("m", True), ("Pa", False), ("ris", False)])
    thought = text("measure.webui_thought")
    assert all_of(webui.respond(TEMPLATE, "three", HISTORY)) == [
        [said("h", thought)],
        [said("hm", thought)],
        [said("hm", thought), said("Pa")],
        [said("hm", thought), said("Paris")],
    ]
    system = {"role": "system", "content": "be brief"}
    question = Prompt((system, *MESSAGES, {"role": "user", "content": "three"}), 9, 0.5)
    assert asked == [(CLIENT, "chat", question, "m")]
    # one page's conversation is not another's
    assert TEMPLATE.messages == []


def test_a_failure_is_shown_after_what_was_answered(
    webui: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch, [("Pa", False)], ServerError("status", "dead", 500))
    sentence = text("measure.fail_status", why="dead", status=500)
    failure = said(sentence, text("measure.webui_error"))
    assert all_of(webui.respond(TEMPLATE, "a", [])) == [[said("Pa")], [said("Pa"), failure]]


def test_a_page_that_is_left_ends_the_engines_work(
    webui: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []

    async def stream(*words: Any) -> ModelAnswer:
        words[-1]("Pa", False)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(True)
            raise
        raise AssertionError

    monkeypatch.setattr(protocols, "stream", stream)

    async def leave() -> None:
        parts = webui.respond(TEMPLATE, "a", [])
        assert await anext(parts) == [said("Pa")]
        await parts.aclose()
        await asyncio.sleep(0)

    asyncio.run(leave())
    assert ended == [True]


def test_the_page_shows_the_model_and_reports_nothing(
    webui: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = webui.page(TEMPLATE, "Our model")
    assert made.options == {
        "title": "Our model",
        "description": "m",
        "chatbot": Made(show_label=False, height="70vh", buttons=["copy"], feedback_options=None),
        "flagging_mode": "never",
        "analytics_enabled": False,
        "concurrency_limit": None,
        "api_visibility": "private",
    }
    asked = model(monkeypatch, [("Paris", False)])
    (answer,) = made.words
    assert all_of(answer("four", HISTORY)) == [[said("Paris")]]
    assert asked[0][2].messages[1:] == (*MESSAGES, {"role": "user", "content": "four"})
    assert webui.os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"


def test_the_application_fetches_nothing_and_describes_nothing(webui: Any) -> None:
    found = webui.application(TEMPLATE, "Our model")
    assert type(found) is webui.Closed
    api, page = found._inner.words
    assert api == Made(docs_url=None, redoc_url=None, openapi_url=None)
    assert page.options["title"] == "Our model"
    theme = Made(
        font=("ui-sans-serif", "system-ui", "sans-serif"),
        font_mono=("ui-monospace", "monospace"),
    )
    assert found._inner.options == {
        "path": "/",
        "theme": theme,
        "footer_links": [],
        "ssr_mode": False,
        "pwa": False,
        "enable_monitoring": False,
    }


def start(*headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": 200, "headers": list(headers)}


def body(content: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": content, "more_body": more}


def sent(webui: Any, *events: dict[str, Any], kind: str = "http") -> list[dict[str, Any]]:
    """Return what a browser gets of an application that sends these events."""
    found: list[dict[str, Any]] = []
    scope = {"type": kind}

    async def receive() -> dict[str, Any]:
        raise AssertionError

    async def send(event: dict[str, Any]) -> None:
        found.append(event)

    async def inner(got: Any, reading: Any, sending: Callable[..., Any]) -> None:
        assert (got, reading) == (scope, receive)
        for event in events:
            await sending(event)

    asyncio.run(webui.Closed(inner)(scope, receive, send))
    return found


def test_a_page_loses_what_is_elsewhere(webui: Any) -> None:
    head = (
        b'<head><script src="https://cdn.example/a.js" async> </script><SCRIPT>1</SCRIPT>'
        b'<link rel="x" href="http://fonts.example/b.css"><link href="/c.css"></head>'
    )
    kept = b'<head><SCRIPT>1</SCRIPT><link href="/c.css"></head>'
    html = (b"Content-Type", b"text/html; charset=utf-8")
    theirs = (b"Content-Security-Policy", b"default-src *")
    given = start(html, theirs, (b"Content-Length", b"999"))
    policy = (b"content-security-policy", webui.POLICY.encode())
    # a link is cut between two parts
    assert sent(webui, given, body(head[:40], more=True), body(head[40:])) == [
        start(html, policy, (b"content-length", str(len(kept)).encode())),
        body(kept),
    ]


def test_other_answers_pass_piece_by_piece_with_the_policy(webui: Any) -> None:
    kind, length = (b"content-type", b"text/event-stream"), (b"content-length", b"8")
    policy = (b"content-security-policy", webui.POLICY.encode())
    link = body(b'<link href="http://a.example">', more=True)
    assert sent(webui, start(kind, length), link, body(b"b")) == [
        start(kind, length, policy),
        link,
        body(b"b"),
    ]


def test_what_is_not_http_passes_as_it_is(webui: Any) -> None:
    event = {"type": "websocket.accept", "headers": []}
    assert sent(webui, event, kind="websocket") == [event]


def test_the_policy_names_no_other_host(webui: Any) -> None:
    rules = dict(rule.split(" ", 1) for rule in webui.POLICY.split("; "))
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


@pytest.mark.parametrize("listens", [True, False])
def test_its_user_hears_of_the_page_once_it_listens(
    listens: bool, webui: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    configs: list[Made] = []

    class Server:
        started = False

        def __init__(self, config: Made) -> None:
            configs.append(config)

        async def serve(self) -> None:
            order.append("begun")
            await asyncio.sleep(0)
            self.started = listens
            if listens:
                await asyncio.sleep(0.06)
            order.append("ended")

    monkeypatch.setattr(webui.uvicorn, "Server", Server, raising=False)
    webui.serve(TEMPLATE, "Our model", "127.0.0.1", 7860, lambda: order.append("ready"))
    assert order == (["begun", "ready", "ended"] if listens else ["begun", "ended"])
    (config,) = configs
    assert type(config.words[0]) is webui.Closed
    assert config.options == {
        "host": "127.0.0.1",
        "port": 7860,
        "log_level": "warning",
        "timeout_graceful_shutdown": 2,
    }
