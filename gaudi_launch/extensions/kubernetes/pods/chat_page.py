"""A chat page for one server, for ``gaudi-launch webui`` and for a pod.

It needs gradio, of any release since 3.40, and what that requires; nothing of this package.

The page and its server connect to no other host: analytics are off, fonts are the browser's, and a
content security policy keeps the browser from other places, also when a model's answer links a
picture of one. Only pages of the same origin may use it, and only what a chat needs is served:
there are no uploads. The server's key is not sent to the browser.
"""

from __future__ import annotations

import asyncio
import dataclasses
import http.client
import inspect
import ipaddress
import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any

from gaudi_launch.core.base.plain_json import plain_json

PORT = 7860
# the server is this machine's or this cluster's: the proxy of the environment is for other places
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# servers without chat stop after 16 or 20 tokens when no number is given
_PLAIN_TOKENS = 256
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
# first parts of the paths that a chat needs, in Gradio's releases since 3.40
_SERVED = {
    *("", "assets", "static", "svelte", "theme.css", "favicon.ico", "manifest.json", "robots.txt"),
    *("config", "info", "startup-events", "heartbeat", "queue", "run", "cancel", "reset"),
}
# names that no other site can have: of this machine, and of a cluster's Services
_INNER_NAMES = (".localhost", ".svc", ".cluster.local")

_Event = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Event]]
_Send = Callable[[_Event], Awaitable[None]]


@dataclasses.dataclass(frozen=True)
class Chat:
    """The server and how it is used.

    ``style``: ``chat`` or ``completions`` (OpenAI's), ``generate`` (TGI's) or ``infer`` (the
    Inferentia example: one question at a time, no stream). ``seconds``: without data. ``hosts`` are
    names of the page in addition to addresses and local ones. ``titled``: Gradio shows parts of an
    answer with titles, ``thought`` and ``failed``.
    """

    url: str
    style: str = "chat"
    title: str = "Chat"
    model: str = ""
    system: str = ""
    tokens: int | None = None
    temperature: float | None = None
    seconds: float = 600
    key: str = ""
    hosts: tuple[str, ...] = ()
    thought: str = "reasoning"
    failed: str = "no answer"
    titled: bool = False


def as_messages(history: Any) -> list[dict[str, str]]:
    """Return gradio's history as messages.

    It is messages since release 5 and was (question, answer) pairs before.
    """
    found: list[tuple[Any, Any]] = []
    for entry in history or ():
        # thoughts and failures have a title, and are not sent again
        if isinstance(entry, dict) and not (entry.get("metadata") or {}).get("title"):
            found.append((entry.get("role"), entry.get("content")))
        elif isinstance(entry, (list, tuple)) and len(entry) == 2:
            found += [("user", entry[0]), ("assistant", entry[1])]
    return [
        {"role": role, "content": as_text(content)}
        for role, content in found
        if role in ("user", "assistant") and as_text(content)
    ]


def as_text(content: Any) -> str:
    """Return the text of a message; gradio 6 writes it as a list of parts."""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "".join(text for text in texts if isinstance(text, str))


def answer(chat: Chat, message: Any, history: Any) -> Iterator[Any]:
    """Yield the answer as it grows; a failure is shown after what was answered."""
    thought, said = "", ""
    try:
        for more_thought, more in _pieces(chat, as_text(message), history):
            thought, said = thought + more_thought, said + more
            yield _shown(chat, thought, said)
    except urllib.error.HTTPError as error:
        yield _shown(chat, thought, said, f"{error.code} {_reason(error)}")
    except (
        *(OSError, http.client.HTTPException, RecursionError),
        *(ValueError, LookupError, TypeError, AttributeError),
    ) as error:
        yield _shown(chat, thought, said, str(error) or type(error).__name__)


def _shown(chat: Chat, thought: str, said: str, failure: str = "") -> Any:
    if not chat.titled:
        return "\n\n".join(filter(None, (said, f"({failure})" if failure else "")))
    found: list[dict[str, Any]] = [
        {"role": "assistant", "content": content, "metadata": {"title": title}}
        for title, content in ((chat.thought, thought), (chat.failed, failure))
        if content
    ]
    if said:
        found.insert(1 if thought else 0, {"role": "assistant", "content": said})
    return found


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the message of an error answer, as vLLM, TGI and FastAPI write it."""
    try:
        document = plain_json(error.read(100_000))
        for found in (document.get("error"), document.get("message"), document.get("detail")):
            if isinstance(found, dict):
                found = found.get("message")
            if isinstance(found, str) and found.strip():
                return found.strip()[:500]
    except (OSError, http.client.HTTPException, ValueError, AttributeError, RecursionError):
        return str(error.reason)
    return str(error.reason)


def _call(chat: Chat, path: str, body: Any = None) -> Any:
    headers = {"Content-Type": "application/json"}
    if chat.key:
        headers["Authorization"] = f"Bearer {chat.key}"
    data = None
    if body is not None:
        data = json.dumps(body).encode()
    request = urllib.request.Request(chat.url.rstrip("/") + path, data, headers)
    return _direct.open(request, timeout=chat.seconds)


def _pieces(chat: Chat, message: str, history: Any) -> Iterator[tuple[str, str]]:
    """Yield (thought, text) of each piece of the answer."""
    if chat.style == "infer":
        yield "", _infer(chat, message)
        return
    path, body = _request(chat, [*as_messages(history), {"role": "user", "content": message}])
    ended = False
    with _call(chat, path, body) as reply:
        for line in reply:
            word = line.strip()
            if word == b"data: [DONE]":
                return
            if word.startswith(b"data:"):
                event = plain_json(word[5:])
                yield from _read(event)
                ended = ended or _ends(event)
    if not ended:
        raise ValueError("the answer was cut")


def _request(chat: Chat, messages: list[dict[str, str]]) -> tuple[str, dict[str, Any]]:
    """Return path and body of a request in the server's style."""
    if chat.system:
        messages = [{"role": "system", "content": chat.system}, *messages]
    text = "\n".join(message["content"] for message in messages)
    tokens = chat.tokens
    if tokens is None and chat.style != "chat":
        tokens = _PLAIN_TOKENS
    if chat.style == "generate":
        sampled = {"do_sample": True, "temperature": chat.temperature} if chat.temperature else {}
        parameters = {"max_new_tokens": tokens, **sampled}
        return "/generate_stream", {"inputs": text, "parameters": parameters}
    body: dict[str, Any] = {"model": chat.model or _first_model(chat), "stream": True}
    if tokens is not None:
        body["max_tokens"] = tokens
    if chat.temperature is not None:
        body["temperature"] = chat.temperature
    if chat.style == "completions":
        return "/v1/completions", {**body, "prompt": text}
    return "/v1/chat/completions", {**body, "messages": messages}


def _first_model(chat: Chat) -> str:
    with _call(chat, "/v1/models") as reply:
        return str(plain_json(reply.read())["data"][0]["id"])


def _read(event: Any) -> Iterator[tuple[str, str]]:
    if "error" in event:
        error = event["error"]
        raise ValueError(error.get("message") if isinstance(error, dict) else error)
    token = event.get("token") or {}
    if token and not token.get("special"):
        yield "", token.get("text") or ""
    for choice in event.get("choices", ()):
        delta = choice.get("delta") or {"content": choice.get("text")}
        # reasoning models write their thoughts first: under either name, by release of the server
        thought = delta.get("reasoning_content") or delta.get("reasoning") or ""
        text = delta.get("content") or ""
        if thought or text:
            yield thought, text


def _ends(event: Any) -> bool:
    """Return True for the last event of a stream without [DONE], as TGI has them."""
    finished = any(choice.get("finish_reason") for choice in event.get("choices", ()))
    return finished or event.get("generated_text") is not None


def _infer(chat: Chat, message: str) -> str:
    """Return the answer of the example.

    It answers with a list of one text that begins with the question.
    """
    with _call(chat, "/infer?" + urllib.parse.urlencode({"sentence": message})) as reply:
        found = plain_json(reply.read())
    if isinstance(found, dict):
        raise ValueError(found.get("error", "no answer"))
    text = found[0] if isinstance(found, list) else str(found)
    start = text.find(message)
    text = text[start + len(message) :] if start >= 0 else text
    return str(text.replace("</s>", "").strip())


def refusal(path: str, headers: Mapping[str, str], hosts: tuple[str, ...]) -> str:
    """Return why a request is refused; empty where it is served.

    A name that another site can have would let that site's script use the model (DNS rebinding).
    """
    host = headers.get("host", "").lower()
    try:
        name = (urllib.parse.urlsplit(f"//{host}").hostname or "").rstrip(".")
        origin = urllib.parse.urlsplit(headers.get("origin", f"http://{host}")).netloc.lower()
    except ValueError:
        return "Not an address"
    if not _is_ours(name, hosts):
        return f"Not a name of this page: {name}. Open it by its address or as localhost"
    if origin != host:
        return f"Not of this page: {origin}"
    if path.removeprefix("/gradio_api").lstrip("/").partition("/")[0] not in _SERVED:
        return "Not a part of this page"
    return ""


def _is_ours(name: str, hosts: tuple[str, ...]) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        # a name without a dot is of this network
        return bool(name) and (
            "." not in name
            or name.endswith(_INNER_NAMES)
            or any(name == host or (host[:1] == "*" and name.endswith(host[1:])) for host in hosts)
        )
    return True


class Closed:
    """An ASGI application for its own page, which fetches nothing from elsewhere."""

    def __init__(self, inner: Any, hosts: tuple[str, ...] = ()) -> None:
        self._inner = inner
        self._hosts = hosts

    async def __call__(self, scope: _Event, receive: _Receive, send: _Send) -> None:
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        why = refusal(scope["path"], headers, self._hosts)
        if not why:
            await self._inner(scope, receive, _Rewritten(send).send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            kind = (b"content-type", b"text/plain; charset=utf-8")
            await send({"type": "http.response.start", "status": 403, "headers": [kind]})
            await send({"type": "http.response.body", "body": f"{why}.\n".encode()})


class _Rewritten:
    """An answer with the policy, for this origin only, and without places elsewhere."""

    def __init__(self, send: _Send) -> None:
        self._send = send
        self._held: _Event | None = None
        self._body = b""

    async def send(self, event: _Event) -> None:
        if event["type"] == "http.response.start":
            headers = [
                (name, value)
                for name, value in event["headers"]
                if not name.lower().startswith((b"content-security-policy", b"access-control-"))
            ]
            event = {**event, "headers": [*headers, (b"content-security-policy", POLICY.encode())]}
            if any(n.lower() == b"content-type" and v.startswith(b"text/html") for n, v in headers):
                self._held = event
                return
        elif self._held is not None:
            self._body += event.get("body", b"")
            if event.get("more_body"):
                return
            body = _ELSEWHERE.sub(b"", self._body)
            headers = [
                pair for pair in self._held["headers"] if pair[0].lower() != b"content-length"
            ]
            length = (b"content-length", str(len(body)).encode())
            await self._send({**self._held, "headers": [*headers, length]})
            self._held, event = None, {**event, "body": body}
        await self._send(event)


def _taken(call: Any, **options: Any) -> dict[str, Any]:
    """Return the options that this release's function has."""
    known = inspect.signature(call).parameters
    return {name: value for name, value in options.items() if name in known}


def application(chat: Chat) -> Closed:
    """Return the complete web application. Raises ImportError without gradio."""
    # gradio reads it once, and would report its launch and look for its newest version
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    import fastapi
    import gradio

    # messages with titles are the only form since release 6
    forms = {"type": "messages"}
    chatbot = _taken(
        gradio.Chatbot,
        show_label=False,
        height="70vh",
        buttons=["copy"],
        feedback_options=None,
        **forms,
    )
    chat = dataclasses.replace(chat, titled=bool({"type", "buttons"} & chatbot.keys()))
    theme = gradio.themes.Base(
        font=("ui-sans-serif", "system-ui", "sans-serif"), font_mono=("ui-monospace", "monospace")
    )

    def reply(message: Any, history: Any) -> Iterator[Any]:
        yield from answer(chat, message, history)

    page = gradio.ChatInterface(
        reply,
        title=chat.title,
        **_taken(
            gradio.ChatInterface,
            description=chat.model,
            chatbot=gradio.Chatbot(**chatbot),
            flagging_mode="never",
            analytics_enabled=False,
            concurrency_limit=None,
            api_visibility="private",
            theme=theme,
            **forms,
        ),
    )
    # answers that grow need it before release 4
    page.queue()
    mounted = gradio.mount_gradio_app(
        fastapi.FastAPI(docs_url=None, redoc_url=None, openapi_url=None),
        page,
        path="/",
        **_taken(
            gradio.mount_gradio_app,
            theme=theme,
            footer_links=[],
            ssr_mode=False,
            pwa=False,
            enable_monitoring=False,
        ),
    )
    return Closed(mounted, chat.hosts)


def serve(chat: Chat, host: str, port: int, ready: Callable[[], None] = lambda: None) -> None:
    """Serve the page until Ctrl-C; ``ready`` is called once it listens.

    Raises ImportError without gradio.
    """
    made = application(chat)
    import uvicorn

    # an open page keeps a stream open forever
    options = _taken(uvicorn.Config, timeout_graceful_shutdown=2)
    server = uvicorn.Server(
        uvicorn.Config(made, host=host, port=port, log_level="warning", **options)
    )

    async def run() -> None:
        serving = asyncio.create_task(server.serve())
        while not server.started and not serving.done():
            await asyncio.sleep(0.05)
        if server.started:
            ready()
        await serving

    asyncio.run(run())


def main() -> None:
    given = os.environ
    chat = Chat(
        given["CHAT_URL"],
        style=given.get("CHAT_STYLE", "chat"),
        title=given.get("CHAT_TITLE", "Chat"),
        key=given.get("VLLM_API_KEY", ""),
        hosts=tuple(filter(None, given.get("CHAT_HOSTS", "").split(","))),
    )
    serve(chat, "0.0.0.0", PORT)


if __name__ == "__main__":
    main()
