"""The user and the model of a request, for the router of several models.

Standard library only. The gateway in front of engines without Ray has the same rules
(gaudi_launch/extensions/stack/gateway/haproxy_config.py).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gaudi_ray_slots import plain_json

# OpenAI's and vLLM's paths whose request names a model; no other path reaches an engine
PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/rerank",
    "/v2/rerank",
    "/rerank",
    "/v1/score",
    "/score",
    "/pooling",
    "/classify",
    "/tokenize",
    "/detokenize",
)
KEY_HEADERS = ("authorization", "x-api-key")
_FORM = re.compile(rb'[; ]name="model"[^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]*)\r\n')


@dataclass(frozen=True)
class Asked:
    """One request as it is passed to an engine; ``path`` has no slash before it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def refused(text: str, status: int) -> bytes:
    """Return the body of an error in OpenAI's form."""
    return json.dumps({"error": {"message": text, "code": status}}).encode()


def model_of(asked: Asked) -> str | None:
    """Return the field ``model`` of a JSON object, or of a form (audio)."""
    kind = next((v for k, v in asked.headers.items() if k.lower() == "content-type"), "")
    if kind.startswith("multipart/form-data"):
        found = _FORM.search(asked.body)
        if not found:
            return None
        return found[1].decode("utf-8", errors="replace")
    try:
        document = plain_json(asked.body)
    except ValueError:
        return None
    model = document.get("model") if isinstance(document, dict) else None
    return model if isinstance(model, str) else None


class Users:
    """The hashes of a file's keys; without a file no key is needed.

    A line of the file is ``USER KEY``.
    """

    def __init__(self, path: str | None) -> None:
        self._hashes: list[bytes] | None = None
        if path is None:
            return
        self._hashes = []
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            words = line.split()
            if len(words) == 2 and not line.lstrip().startswith("#"):
                self._hashes.append(hashlib.sha256(words[1].encode()).digest())

    def know(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request has the key of a user."""
        if self._hashes is None:
            return True
        given = headers.get("authorization") or ""
        key = given[7:].strip() if given.lower().startswith("bearer ") else ""
        key = key or headers.get("x-api-key") or ""
        found = hashlib.sha256(key.encode()).digest()
        # every key is compared, so that the time shows none
        return sum(hmac.compare_digest(found, each) for each in self._hashes) > 0
