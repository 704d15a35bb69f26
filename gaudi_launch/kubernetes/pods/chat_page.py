"""A chat page for a model.

Runs in an image that has gradio, of any release since 3.40.

CHAT_URL is the model's address. CHAT_STYLE is ``openai`` (/v1/chat/completions, streamed, with the
complete conversation) or ``infer`` (the Inferentia example: GET /infer?sentence=, one question at a
time, no stream).
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

URL = os.environ.get("CHAT_URL", "http://127.0.0.1:8000").rstrip("/")
STYLE = os.environ.get("CHAT_STYLE", "openai")
TITLE = os.environ.get("CHAT_TITLE", "Chat")
# timeout until an answer begins; a first request with a new shape takes minutes
SECONDS = float(os.environ.get("CHAT_TIMEOUT", "600"))
# the model is in this cluster, the proxy of the environment is for addresses outside of it
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def as_messages(history: Any) -> list[dict[str, str]]:
    """Return gradio's history as messages.

    It is messages since release 5 and was (question, answer) pairs before.
    """
    found = []
    for entry in history or ():
        if isinstance(entry, dict):
            found.append(
                {"role": entry.get("role", "user"), "content": as_text(entry.get("content"))}
            )
        else:
            question, answer = entry
            found.append({"role": "user", "content": question or ""})
            found.append({"role": "assistant", "content": answer or ""})
    return found


def as_text(content: Any) -> str:
    """Return the text of a message; gradio 6 writes it as a list of parts."""
    if isinstance(content, list):
        return "".join(
            part.get("text", "") if isinstance(part, dict) else str(part) for part in content
        )
    return content if isinstance(content, str) else ""


def call(path: str, body: Any = None) -> Any:
    headers = {"Content-Type": "application/json"}
    key = os.environ.get("VLLM_API_KEY")
    if key:
        headers["Authorization"] = f"Bearer {key}"
    data = None
    if body is not None:
        data = json.dumps(body).encode()
    return _direct.open(urllib.request.Request(URL + path, data, headers), timeout=SECONDS)


def answer(message: Any, history: Any) -> Iterator[str]:
    """Yield the answer as it grows; a failure is shown in its place."""
    try:
        yield from (infer(as_text(message)) if STYLE == "infer" else chat(message, history))
    except urllib.error.HTTPError as error:
        yield f"({error.code} {error.reason})"
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        yield f"({error})"


def chat(message: Any, history: Any) -> Iterator[str]:
    with call("/v1/models") as reply:
        model = json.load(reply)["data"][0]["id"]
    messages = [*as_messages(history), {"role": "user", "content": as_text(message)}]
    shown_text = ""
    with call(
        "/v1/chat/completions", {"model": model, "messages": messages, "stream": True}
    ) as reply:
        for line in reply:
            word = line.strip()
            if not word.startswith(b"data:") or word == b"data: [DONE]":
                continue
            for choice in json.loads(word[5:]).get("choices", ()):
                shown_text += choice.get("delta", {}).get("content") or ""
                yield shown_text


def infer(message: str) -> Iterator[str]:
    """Return the answer of the example.

    It answers with a list of one text that begins with the question.
    """
    with call("/infer?" + urllib.parse.urlencode({"sentence": message})) as reply:
        found = json.load(reply)
    if isinstance(found, dict):
        raise ValueError(found.get("error", "no answer"))
    text = found[0] if isinstance(found, list) else str(found)
    start = text.find(message)
    text = text[start + len(message) :] if start >= 0 else text
    yield text.replace("</s>", "").strip()


def main() -> None:
    import gradio

    # no arguments that only some releases have, and no cached examples: those would ask the model
    # at start
    gradio.ChatInterface(answer, title=TITLE).launch(
        server_name="0.0.0.0", server_port=7860, share=False
    )


if __name__ == "__main__":
    main()
