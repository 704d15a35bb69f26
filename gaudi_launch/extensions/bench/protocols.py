"""Requests in the three forms that servers support, and answers with times.

chat and completions are OpenAI's (vLLM, TGI since 2); generate is TGI's
(huggingface/text-generation-inference router/src/server.rs: /generate, /generate_stream with
token.text, generated_text and details).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gaudi_launch.core.base.json_values import array, mapping
from gaudi_launch.core.base.messages import printable
from gaudi_launch.core.base.optional import value_or
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.extensions.bench.client import Client, Reply, ServerError

_MOST_EVENT = 4 << 20


class TooLong(ValueError):
    """An event without an end."""


class Events:
    """Parses bytes in pieces of any size into the data of complete events."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._after_cr = False

    def feed(self, piece: bytes) -> list[str]:
        """Return the data of the events that end within this piece. Raises TooLong."""
        if self._after_cr and piece:
            # a CR LF that was split is one line end
            piece = piece.removeprefix(b"\n")
            self._after_cr = False
        self._rest += piece
        if len(self._rest) > _MOST_EVENT:
            raise TooLong(f"over {_MOST_EVENT} bytes")
        self._after_cr = self._rest.endswith(b"\r")
        lines = self._rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop()
        found = []
        for line in lines:
            if line:
                self._take(line)
            elif self._data:
                found.append(b"\n".join(self._data).decode("utf-8", errors="replace"))
                self._data = []
        return found

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            if sum(map(len, self._data)) > _MOST_EVENT:
                raise TooLong(f"over {_MOST_EVENT} bytes")


Form = Literal["chat", "completions", "generate"]
FORMS: tuple[Form, ...] = ("chat", "completions", "generate")
_PATHS = {
    "chat": ("/v1/chat/completions", "/v1/chat/completions"),
    "completions": ("/v1/completions", "/v1/completions"),
    "generate": ("/generate", "/generate_stream"),
}
Message = Mapping[str, str]
Show = Callable[[str, bool], None]


@dataclass(frozen=True)
class Prompt:
    """A prompt of a request.

    ``messages`` for chat; the other forms get their contents as one text. ``tokens``
    None: the server's default. ``ignore_eos`` requests all ``tokens`` (vLLM's extension; others
    ignore it or stop where the model stops).
    """

    messages: tuple[Message, ...]
    tokens: int | None
    temperature: float | None = 0.0
    ignore_eos: bool = False

    @property
    def text(self) -> str:
        return "\n".join(message["content"] for message in self.messages)


@dataclass(frozen=True)
class ModelAnswer:
    """A model's answer.

    Times are seconds from the sending; ``pieces`` those of every piece with text. ``thought`` is a
    reasoning model's text before its answer. ``stated`` is the server's count of tokens, ``tokens``
    that, or the number of pieces where it gives none. ``ended`` is its reason for stopping. Of an
    event of a stream it is what that event adds.
    """

    text: str = ""
    thought: str = ""
    input: int | None = None
    stated: int | None = None
    ended: str = ""
    pieces: tuple[float, ...] = ()
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        return value_or(self.stated, len(self.pieces))

    @property
    def first(self) -> float | None:
        return self.pieces[0] if self.pieces else None


def ask_one(text: str, tokens: int | None, **more: Any) -> Prompt:
    """Return a prompt of one user message."""
    return Prompt(({"role": "user", "content": text},), tokens, **more)


def body(form: Form, question: Prompt, model: str, stream: bool) -> dict[str, Any]:
    """Return the JSON request for a server of this form."""
    if form == "generate":
        parameters: dict[str, Any] = {"details": True}
        if question.tokens is not None:
            parameters["max_new_tokens"] = question.tokens
        if question.temperature:
            parameters |= {"do_sample": True, "temperature": question.temperature}
        return {"inputs": question.text, "parameters": parameters}
    document: dict[str, Any] = {"model": model}
    if question.tokens is not None:
        document["max_tokens"] = question.tokens
    if question.temperature is not None:
        document["temperature"] = question.temperature
    if question.ignore_eos:
        document["ignore_eos"] = True
    if form == "chat":
        document["messages"] = [dict(message) for message in question.messages]
    else:
        document["prompt"] = question.text
    if stream:
        document |= {"stream": True, "stream_options": {"include_usage": True}}
    return document


async def whole(client: Client, form: Form, question: Prompt, model: str) -> ModelAnswer:
    """Send a request and read the answer in one piece. Raises ServerError."""
    reply = await client.ask(_PATHS[form][0], body(form, question, model, stream=False))
    if reply.status != 200:
        raise refused(reply)
    found = reply.document
    # TGI answers some clients with a list of one
    if form == "generate" and isinstance(found, list) and found:
        found = found[0]
    event = _read(form, found)
    if event is None:
        raise ServerError("protocol", shown(reply.body))
    return replace(event, seconds=reply.seconds)


async def stream(
    client: Client, form: Form, question: Prompt, model: str, show: Show | None = None
) -> ModelAnswer:
    """Send a request and read the answer piece by piece.

    ``show`` gets each one's text and whether it is a thought. Raises ServerError.
    """
    began = time.perf_counter()
    asked = body(form, question, model, stream=True)
    async with client.open(_PATHS[form][1], asked) as response:
        if response.status != 200:
            raise refused(
                Reply(response.status, await response.body(), time.perf_counter() - began)
            )
        taken = _Taken(form, began, show)
        async for when, piece in response.pieces():
            taken.feed(when, piece)
            if taken.done:
                break
    return taken.answer()


class _Taken:
    """An answer while it arrives."""

    def __init__(self, form: Form, began: float, show: Show | None) -> None:
        self._form = form
        self._began = began
        self._show = show
        self._events = Events()
        self._words: list[str] = []
        self._thoughts: list[str] = []
        self._times: list[float] = []
        self._last = ModelAnswer()
        self._anything = False
        self.done = False

    def feed(self, when: float, piece: bytes) -> None:
        try:
            events = self._events.feed(piece)
        except TooLong as error:
            raise ServerError("protocol", str(error)) from None
        for data in events:
            if data.strip() == "[DONE]":
                self.done = True
                return
            try:
                document = parse_json(data)
            except ValueError:
                raise ServerError("protocol", shown(data.encode())) from None
            event = _read(self._form, document, piece=True)
            if event is None:
                raise ServerError("protocol", _error_text(document) or shown(data.encode()))
            self._take(event, when)

    def _take(self, event: ModelAnswer, when: float) -> None:
        self._anything = True
        for words, kept, thought in (
            (event.thought, self._thoughts, True),
            (event.text, self._words, False),
        ):
            if words:
                kept.append(words)
                if self._show is not None:
                    self._show(words, thought)
        if event.text or event.thought:
            self._times.append(when - self._began)
        last = self._last
        self._last = ModelAnswer(
            input=value_or(event.input, last.input),
            stated=value_or(event.stated, last.stated),
            ended=event.ended or last.ended,
        )

    def answer(self) -> ModelAnswer:
        last = self._last
        # generate has no [DONE]: its last event names the reason
        if not self.done and not last.ended:
            kind = "protocol"
            if self._anything:
                kind = "cut"
            raise ServerError(kind, "no end of the stream")
        return replace(
            last,
            text="".join(self._words),
            thought="".join(self._thoughts),
            pieces=tuple(self._times),
            seconds=time.perf_counter() - self._began,
        )


def _read(form: Form, document: Any, piece: bool = False) -> ModelAnswer | None:
    """Return one event of a stream, or one complete answer.

    Return None for other content.
    """
    if not isinstance(document, dict) or "error" in document:
        return None
    if form == "generate":
        return _read_generate(document, piece)
    return _read_openai(form, document, piece)


def _read_openai(form: Form, document: Mapping[str, Any], piece: bool) -> ModelAnswer | None:
    usage = document.get("usage")
    counts = mapping(usage)
    choices = document.get("choices")
    if not isinstance(choices, list):
        return None
    text, thought, ended = "", "", ""
    if choices:
        choice = choices[0]
        if not isinstance(choice, dict):
            return None
        ended = str(choice.get("finish_reason") or "")
        if form == "chat":
            delta = choice.get("delta" if piece else "message")
            if not isinstance(delta, dict):
                return None
            # reasoning models write their thoughts first: under either name, by release of the
            # server
            thought = _words(delta, "reasoning_content") or _words(delta, "reasoning")
            text = _words(delta, "content")
        else:
            text = _words(choice, "text")
    return ModelAnswer(
        text,
        thought,
        count_of(counts, "prompt_tokens"),
        count_of(counts, "completion_tokens"),
        ended,
    )


def _read_generate(document: Mapping[str, Any], piece: bool) -> ModelAnswer | None:
    details = document.get("details")
    facts = mapping(details)
    tokens, ended = count_of(facts, "generated_tokens"), str(facts.get("finish_reason") or "")
    input_tokens = count_of(facts, "input_length")
    if not piece:
        text = document.get("generated_text")
        if not isinstance(text, str):
            return None
        return ModelAnswer(text, "", input_tokens, tokens, ended)
    token = document.get("token")
    if not isinstance(token, dict):
        return None
    text = str(token.get("text") or "")
    if token.get("special") is True:
        text = ""
    # without details the complete text of the last event is the end
    if not ended and isinstance(document.get("generated_text"), str):
        ended = "end"
    return ModelAnswer(text, "", input_tokens, tokens, ended)


def _words(delta: Mapping[str, Any], name: str) -> str:
    value = delta.get(name)
    if not isinstance(value, str):
        return ""
    return value


def count_of(counts: Mapping[str, Any], name: str) -> int | None:
    """Return the server's count of tokens; None for other values."""
    value = counts.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9:
        return value
    return None


def refused(reply: Reply) -> ServerError:
    """Return the error of an answer whose status is not 200, with its message."""
    return ServerError("status", _error_text(reply.document) or shown(reply.body), reply.status)


def _error_text(document: Any) -> str:
    """Return the message of an error answer, in any server's form.

    The forms are OpenAI's error.message, vLLM's message, TGI's error, FastAPI's detail.
    """
    if not isinstance(document, dict):
        return ""
    for found in (document.get("error"), document.get("message"), document.get("detail")):
        if isinstance(found, dict):
            found = found.get("message")
        if isinstance(found, str) and found.strip():
            return found.strip()[:500]
    return ""


def shown(data: bytes) -> str:
    """Return the beginning of an answer, on one line, without terminal controls."""
    words = " ".join(data[:400].decode("utf-8", errors="replace").split())
    return printable(words)[:200]


def first_model(document: Any) -> Mapping[str, Any] | None:
    """Return the first entry of /v1/models; None when there is none."""
    data = mapping(document).get("data")
    models: Sequence[Any] = array(data)
    return next(
        (entry for entry in models if isinstance(entry, dict) and isinstance(entry.get("id"), str)),
        None,
    )
