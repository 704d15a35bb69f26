"""A chat page in the browser for one server, with Gradio.

The page and its server connect to no other host: analytics are off, fonts are the browser's, and a
content security policy keeps the browser from other places, also when a model's answer links a
picture of one. The server's key is not sent to the browser.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from gaudi_launch.bench import protocols
from gaudi_launch.bench.client import ServerError
from gaudi_launch.bench.conversation import Conversation
from gaudi_launch.json_values import array, mapping
from gaudi_launch.messages import text

# before gradio is imported: it reads this once, and would report its launch and look for its newest
# version
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

import fastapi
import gradio
import uvicorn

# Gradio's page needs inline scripts and eval; everything comes from here
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' "
    "'unsafe-inline'; img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' "
    "data:; connect-src 'self'; worker-src 'self' blob:; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'self'"
)
# what the page's head would fetch from elsewhere
_ELSEWHERE = re.compile(
    rb"<script[^>]*\bsrc=\"https?://[^>]*>\s*</script>|<link[^>]*\bhref=\"https?://[^>]*>",
    re.IGNORECASE,
)

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def messages(history: object) -> list[protocols.Message]:
    """Return the messages of Gradio's history.

    Their contents are texts, or lists of parts with texts.
    """
    found: list[protocols.Message] = []
    for entry in map(mapping, array(history)):
        role, content = entry.get("role"), entry.get("content")
        # thoughts and errors are shown with a title, and not sent again
        if role not in ("user", "assistant") or (entry.get("metadata") or {}).get("title"):
            continue
        parts = content if isinstance(content, list) else [content]
        words = [part.get("text") if isinstance(part, dict) else part for part in parts]
        answered = "".join(word for word in words if isinstance(word, str))
        if answered:
            found.append({"role": str(role), "content": answered})
    return found


async def respond(
    template: Conversation, words: str, history: object
) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the answer so far, repeatedly, as Gradio's messages.

    A failure is shown in place of an answer.
    """
    news: asyncio.Queue[tuple[str, bool] | None] = asyncio.Queue()
    conversation = Conversation(
        template.client,
        template.served,
        template.form,
        template.system,
        template.tokens,
        template.temperature,
        messages(history),
    )
    task = asyncio.create_task(
        conversation.say(words, lambda answered, thought: news.put_nowait((answered, thought)))
    )
    task.add_done_callback(lambda _: news.put_nowait(None))
    thought, answered = "", ""
    try:
        while (piece := await news.get()) is not None:
            if piece[1]:
                thought += piece[0]
            else:
                answered += piece[0]
            yield _shown(thought, answered)
        try:
            await task
        except ServerError as error:
            sentence = text(error.sentence, why=error.detail, status=error.status)
            yield [*_shown(thought, answered), _titled(text("measure.webui_error"), sentence)]
    finally:
        # the stop button closes this; the server notices the closed connection and stops working
        task.cancel()


def _shown(thought: str, answered: str) -> list[dict[str, Any]]:
    found = [_titled(text("measure.webui_thought"), thought)] if thought else []
    if answered:
        return [*found, {"role": "assistant", "content": answered}]
    return found


def _titled(title: str, words: str) -> dict[str, Any]:
    return {"role": "assistant", "content": words, "metadata": {"title": title}}


def page(template: Conversation, title: str) -> Any:
    """Return Gradio's blocks of the page."""

    async def answer(words: str, history: list[Any]) -> AsyncIterator[list[dict[str, Any]]]:
        async for shown in respond(template, words, history):
            yield shown

    return gradio.ChatInterface(
        answer,
        title=title,
        description=template.served.model,
        chatbot=gradio.Chatbot(
            show_label=False, height="70vh", buttons=["copy"], feedback_options=None
        ),
        flagging_mode="never",
        analytics_enabled=False,
        concurrency_limit=None,
        api_visibility="private",
    )


class Closed:
    """An ASGI application whose pages fetch nothing from elsewhere."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        held: MutableMapping[str, Any] | None = None
        body = b""

        async def closed(event: MutableMapping[str, Any]) -> None:
            nonlocal held, body
            if event["type"] == "http.response.start":
                headers = [
                    pair
                    for pair in event["headers"]
                    if pair[0].lower() != b"content-security-policy"
                ]
                event = {
                    **event,
                    "headers": [*headers, (b"content-security-policy", POLICY.encode())],
                }
                html = any(
                    n.lower() == b"content-type" and v.startswith(b"text/html") for n, v in headers
                )
                if html:
                    held = event
                    return
            elif held is not None:
                body += event.get("body", b"")
                if event.get("more_body"):
                    return
                rewritten = _ELSEWHERE.sub(b"", body)
                lengths = [pair for pair in held["headers"] if pair[0].lower() != b"content-length"]
                length = (b"content-length", str(len(rewritten)).encode())
                await send({**held, "headers": [*lengths, length]})
                held, event = None, {**event, "body": rewritten}
            await send(event)

        await self._inner(scope, receive, closed)


def application(template: Conversation, title: str) -> Closed:
    """Return the complete web application."""
    theme = gradio.themes.Base(
        font=("ui-sans-serif", "system-ui", "sans-serif"), font_mono=("ui-monospace", "monospace")
    )
    app = gradio.mount_gradio_app(
        fastapi.FastAPI(docs_url=None, redoc_url=None, openapi_url=None),
        page(template, title),
        path="/",
        theme=theme,
        footer_links=[],
        ssr_mode=False,
        pwa=False,
        enable_monitoring=False,
    )
    return Closed(app)


def serve(
    template: Conversation, title: str, host: str, port: int, ready: Callable[[], None]
) -> None:
    """Serve the page until Ctrl-C; ``ready`` is called once it listens."""
    config = uvicorn.Config(
        application(template, title),
        host=host,
        port=port,
        log_level="warning",
        # an open page keeps a stream open forever
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)

    async def run() -> None:
        serving = asyncio.create_task(server.serve())
        while not server.started and not serving.done():
            await asyncio.sleep(0.05)
        if server.started:
            ready()
        await serving

    asyncio.run(run())
