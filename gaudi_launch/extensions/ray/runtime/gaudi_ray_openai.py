"""Requests and answers in the form of the OpenAI interface, for plain generation."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from gaudi_ray_generate import BadRequest, GenerationJob

# by whether it is a chat: the default of max_new_tokens in the guide is for completions
_TOKENS = {True: None, False: 128}


def number(
    body: dict[str, Any], name: str, default: Any, least: float, most: float, kind: type
) -> Any:
    """Return a number of a request within bounds. Raises BadRequest."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise BadRequest(f"{name} must be a number from {least} to {most}")
    return kind(value)


def stops_of(body: dict[str, Any]) -> tuple[str, ...]:
    words = body.get("stop") or []
    if isinstance(words, str):
        words = [words]
    if not isinstance(words, list) or len(words) > 16 or not all(map(_is_text, words)):
        raise BadRequest("stop must be a text or a list of at most 16 texts")
    return tuple(words)


def _is_text(word: Any) -> bool:
    return isinstance(word, str) and word != ""


def job_of(body: dict[str, Any], chat: bool, tokenizer: Any) -> GenerationJob:
    """Return the job of a request. Raises BadRequest."""
    if number(body, "n", 1, 1, 128, int) != 1:
        raise BadRequest("n must be 1")
    most = number(body, "max_completion_tokens", None, 1, 1 << 20, int)
    most = most or number(body, "max_tokens", _TOKENS[chat], 1, 1 << 20, int)
    temperature = number(body, "temperature", 1.0, 0.0, 2.0, float)
    options: dict[str, Any] = {"max_new_tokens": most, "do_sample": temperature > 0}
    if temperature > 0:
        options |= {
            "temperature": temperature,
            "top_p": number(body, "top_p", 1.0, 0.0, 1.0, float),
        }
    else:
        options |= {"temperature": None, "top_p": None, "top_k": None}
    options["seed"] = number(body, "seed", None, 0, 2**32 - 1, int)
    if chat:
        # a chat template writes the special tokens itself
        return GenerationJob(_chat_of(body, tokenizer), options, stops_of(body), special=False)
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str) or not prompt:
        raise BadRequest("prompt must be a text")
    return GenerationJob(prompt, options, stops_of(body), special=True)


def _chat_of(body: dict[str, Any], tokenizer: Any) -> Any:
    """Return the prompt that the chat template makes. Raises BadRequest."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list of messages")
    try:
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:
        raise BadRequest(f"the chat template refuses these messages: {error}") from None


async def events(job: GenerationJob, shape: Shape, usage: bool) -> AsyncIterator[str]:
    """Yield a job as server-sent events.

    The status is sent by then, so a failure is an event too.
    """
    try:
        if shape.chat:
            yield shape.event(job, role=True)
        async for piece in job.text():
            yield shape.event(job, piece)
        yield shape.event(job, end=True)
        if usage:
            yield shape.event(job, usage=True)
    except Exception as error:
        if isinstance(error, BadRequest):
            message = str(error)
        else:
            message = f"generation failed: {type(error).__name__}"
        yield f"data: {json.dumps({'error': {'message': message}})}\n\n"
    yield "data: [DONE]\n\n"


_ID = {True: "chatcmpl", False: "cmpl"}


class Shape:
    """Answers in the form of the OpenAI interface."""

    def __init__(self, chat: bool, model: str) -> None:
        self.chat = chat
        self._id = f"{_ID[chat]}-{uuid.uuid4().hex}"
        self._model = model
        self._created = int(time.time())

    def whole(self, text: str, job: GenerationJob) -> dict[str, Any]:
        if self.chat:
            content = {"message": {"role": "assistant", "content": text}}
        else:
            content = {"text": text}
        choice = {"index": 0, **content, "finish_reason": job.reason}
        return {**self._head(""), "choices": [choice], "usage": self._usage(job)}

    def event(
        self,
        job: GenerationJob,
        piece: str = "",
        *,
        role: bool = False,
        end: bool = False,
        usage: bool = False,
    ) -> str:
        delta: dict[str, Any] = {"content": piece}
        if role:
            delta = {"role": "assistant", "content": ""}
        reason = None
        if end:
            delta, reason = {}, job.reason
        content: dict[str, Any] = {"text": piece}
        if self.chat:
            content = {"delta": delta}
        choice = {"index": 0, **content, "finish_reason": reason}
        document = {**self._head(".chunk"), "choices": [choice]}
        if usage:
            document |= {"choices": [], "usage": self._usage(job)}
        return f"data: {json.dumps(document, ensure_ascii=False)}\n\n"

    def _head(self, chunk: str) -> dict[str, Any]:
        kind = "text_completion"
        if self.chat:
            kind = f"chat.completion{chunk}"
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}

    def _usage(self, job: GenerationJob) -> dict[str, int]:
        total = job.prompt_tokens + job.tokens
        return {
            "prompt_tokens": job.prompt_tokens,
            "completion_tokens": job.tokens,
            "total_tokens": total,
        }
