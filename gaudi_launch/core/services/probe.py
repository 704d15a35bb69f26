"""Test whether a server answers: its models, then one tiny completion.

/health alone is not enough (an engine was seen healthy that failed at its first request). A model
that generates nothing gets a request of its task. The standard library alone:
`extensions.cluster.readiness` sends this text, with that of the modules that it imports, to hosts
without this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gaudi_launch.core.services.server_answers import POOLED, not_served, pooled_question
from gaudi_launch.core.services.server_request import ProbeResult, ask

# a first chat of one token may compile a graph
_CHAT_SECONDS = 60.0
_NO_LIMIT = float("inf")
CHAT = "/v1/chat/completions"

# the stage of a server that answers under another name than the expected one
OTHER = "other"


@dataclass(frozen=True)
class Readiness:
    """The last stage that a server reached, and why not the next.

    ``stage`` is connect, health, models, completion, ready, or `OTHER`. ``detail`` is the reason,
    ``path`` where it answered a request.
    """

    ready: bool
    stage: str
    detail: str = ""
    model: str | None = None
    path: str = ""
    no_chat: str = ""


@dataclass(frozen=True)
class _Server:
    """A server to test; a request takes at most ``timeout`` seconds.

    ``names``: it is the expected server only under one of them; () for any.
    """

    url: str
    timeout: float
    api_key: str | None
    names: Sequence[str]

    def ask(
        self, path: str, question: dict[str, Any] | None = None, *, most: float = _NO_LIMIT
    ) -> ProbeResult:
        """Return the answer at a path, within ``most`` seconds."""
        return ask(f"{self.url}{path}", min(self.timeout, most), self.api_key, question)


def probe(
    base_url: str,
    *,
    timeout: float = 5.0,
    api_key: str | None = None,
    complete: bool = True,
    tgi: bool = False,
    names: Sequence[str] = (),
) -> Readiness:
    """Test whether a server at ``base_url`` (no path) answers.

    Never raises; the key is sent, never shown. ``tgi``: the server is TGI, whose paths are /info
    and /generate. ``names``: it is the expected server only when it answers under one of them; ()
    for any.
    """
    server = _Server(base_url, timeout, api_key, names)
    health = server.ask("/health", most=5.0)
    if health.trouble is not None:
        return Readiness(False, "connect", health.trouble)
    if health.status != 200:
        return Readiness(False, "health", health.why("/health"))
    if tgi:
        return _probe_tgi(server, complete)
    models = server.ask("/v1/models", most=10.0)
    if models.status == 404:
        return _probe_tgi(server, complete)
    listed = _models(models.document)
    if models.status != 200 or not listed:
        return Readiness(False, "models", models.why("/v1/models"))
    name = listed[0]
    if names and not set(names) & set(listed):
        return Readiness(False, OTHER, f"/v1/models: {name}", name)
    if not complete:
        return Readiness(True, "ready", "", name)
    return _probe_completion(server, name)


def _probe_completion(server: _Server, name: str) -> Readiness:
    """Test one completion; a model that has none gets a request of its task."""
    question = {"model": name, "prompt": "1", "max_tokens": 1, "temperature": 0}
    answer = server.ask("/v1/completions", question)
    if not_served(answer.status, answer.body):
        return _probe_pooled(server, name)
    if answer.status != 200 or not _holds(answer.document, "choices"):
        return Readiness(False, "completion", answer.why("/v1/completions"), name)
    return Readiness(True, "ready", "", name, "/v1/completions", _no_chat(server, name))


def probe_health(base_url: str) -> Readiness:
    """Test whether /health answers, which is all that a gateway needs to be ready.

    No key is sent, so a certificate of any issuer will do. Never raises.
    """
    answer = ask(f"{base_url}/health", 5.0, verify=False)
    if answer.trouble is not None:
        return Readiness(False, "connect", answer.trouble)
    if answer.status != 200:
        return Readiness(False, "health", answer.why("/health"))
    return Readiness(True, "ready", "", None, "/health")


def _no_chat(server: _Server, name: str) -> str:
    """Return the status and sentence with which the server refuses a chat, or "".

    "" also where it does not answer. A model without a chat template has completions only;
    deepseek_r1 was seen to refuse every chat of a model without its reasoning tokens.
    """
    question = {
        "model": name,
        "messages": [{"role": "user", "content": "1"}],
        "max_tokens": 1,
        "temperature": 0,
    }
    answer = server.ask(CHAT, question, most=_CHAT_SECONDS)
    if answer.status < 400:
        return ""
    return f"{CHAT}: {answer.status} {_sentence(answer.document)}".strip()


def _sentence(document: Any) -> str:
    """Return an error's message by OpenAI's error.message, vLLM's or FastAPI's field."""
    if not isinstance(document, dict):
        return ""
    for found in (document.get("error"), document.get("message"), document.get("detail")):
        words = found
        if isinstance(found, dict):
            words = found.get("message")
        if isinstance(words, str) and words.strip():
            return "".join(
                letter if letter.isprintable() else " " for letter in words.strip()[:300]
            )
    return ""


def _probe_pooled(server: _Server, name: str) -> Readiness:
    """Test an embedding, rerank or other pooling model.

    The first task that the server knows must be answered.
    """
    for task, path in POOLED.items():
        answer = server.ask(path, pooled_question(task, name, ("1", "1")))
        if not_served(answer.status, answer.body):
            continue
        if answer.status != 200 or not _holds(answer.document, "data", "results"):
            return Readiness(False, "completion", answer.why(path), name)
        return Readiness(True, "ready", "", name, path)
    # chat, speech or images alone: it is enough that the model is listed
    return Readiness(True, "ready", "no completions", name)


def _probe_tgi(server: _Server, complete: bool) -> Readiness:
    """Test TGI, and servers without /v1/models.

    /info names the model, /generate answers.
    """
    info = server.ask("/info", most=10.0)
    if info.status != 200 or not isinstance(info.document, dict):
        return Readiness(False, "models", "neither /v1/models nor /info")
    name = str(info.document.get("model_id", "")) or None
    if server.names and name is not None and not _same_model(name, server.names):
        return Readiness(False, OTHER, f"/info: {name}", name)
    if not complete:
        return Readiness(True, "ready", "", name)
    question = {"inputs": "1", "parameters": {"max_new_tokens": 1}}
    answer = server.ask("/generate", question)
    found = answer.document
    # an image's server gets a text request as well; the answer may be empty, but must exist
    is_text = isinstance(found, dict) and isinstance(found.get("generated_text"), str)
    if answer.status != 200 or not is_text:
        return Readiness(False, "completion", answer.why("/generate"), name)
    return Readiness(True, "ready", "", name, "/generate")


def _same_model(found: str, names: Sequence[str]) -> bool:
    """Compare the last parts alone.

    TGI may show a repository's present name for an older one (assumed).
    """
    last = {name.rstrip("/").rpartition("/")[2].lower() for name in names}
    return found.rstrip("/").rpartition("/")[2].lower() in last


def _models(document: Any) -> list[str]:
    """Return the names of a list of models; [] where it is not one."""
    try:
        return [str(entry["id"]) for entry in document["data"]]
    except (KeyError, TypeError):
        return []


def _holds(document: Any, *names: str) -> bool:
    """Return True if it has one of these fields, and it is not empty."""
    return isinstance(document, dict) and any(document.get(name) for name in names)
