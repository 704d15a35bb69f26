"""Read a model on a hub without its weights: config.json, safetensors headers.

The facts are kept in the cache for a day, and longer while no hub answers. A hub that cannot be
reached is not queried again for a minute.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import struct
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gaudi_launch.core.base import http_client, mirrors
from gaudi_launch.core.base.debug_log import best_effort
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.paths import cache_dir, write_whole
from gaudi_launch.core.base.reader import parse_json, read_json
from gaudi_launch.core.base.redact import redact_text
from gaudi_launch.core.models.config import (
    MODELOPT,
    counted_with,
    model_from_config,
    parse_config,
    with_modelopt,
)
from gaudi_launch.core.models.hub.hub_error import TOKENS, HubError, classify
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.weights import (
    HeaderError,
    count_parameters,
    count_unloaded,
    parse_header,
)

_log = logging.getLogger(__name__)

_SECONDS = 10.0  # for all requests about a model
_CONNECT_SECONDS = 3.0
_KEPT_SECONDS = 24 * 3600.0
_SILENT_SECONDS = 60.0
# config.json, an index or a header; the largest known index (DeepSeek-V3) has 8.5 MB
_MOST_BYTES = 32 << 20
# the headers of most shards are shorter
_FIRST_BYTES = 1 << 16
_AT_ONCE = 16
_CONFIG, _INDEX, _SINGLE = "config.json", "model.safetensors.index.json", "model.safetensors"
# an answer about the model comes before one about the connection
_ERRORS = {
    "token": "pull.token",
    "gated": "pull.gated",
    "no_file": "models.no_config",
    "no_revision": "models.not_on_hub",
    "no_repo": "models.not_on_hub",
    "other": "models.hub_answer",
    "busy": "models.hub_answer",
    "offline": "models.offline",
}


def read_remote(repo: str, revision: str = "", seconds: float = _SECONDS) -> Model:
    """Return the facts of ``owner/name`` from Hugging Face, else from ModelScope.

    Mirrors, proxies and tokens are those of a download; ``seconds`` limits all requests. Raises
    LaunchError (MODEL): no such model, gated, a refused token, offline, or another answer.
    """
    name = f"{repo}@{revision or 'main'}".replace("/", "--")
    path = cache_dir() / "hub" / f"{name}.json"
    kept, age = _kept(path)
    if not kept or age > _KEPT_SECONDS:
        try:
            kept = _asked(repo, revision, seconds)
            _keep(path, json.dumps(kept))
            if "parameters" not in kept["weights"]:
                # the headers are queried again as soon as a hub that was not reached
                begin = time.time() - _KEPT_SECONDS + _SILENT_SECONDS
                with best_effort(_log, "keep an answer of a hub"):
                    os.utime(path, (begin, begin))
        except LaunchError as error:
            if not kept:
                raise
            _log.debug("older facts of %s are used: %s", repo, error)
    return replace(model_from_config(repo, kept["config"], kept["weights"]), source="hub")


def _kept(path: Path) -> tuple[dict[str, Any], float]:
    """Return the kept facts of a model with their age in seconds; empty without any."""
    try:
        document = read_json(path)
        return {key: dict(document[key]) for key in ("config", "weights")}, _age(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.debug("no facts of the model are kept: %s", error)
        return {}, 0.0


def _keep(path: Path, content: str) -> None:
    with best_effort(_log, "keep an answer of a hub"):
        write_whole(path, content)


def _age(path: Path) -> float:
    return max(0.0, time.time() - path.stat().st_mtime)


def _asked(repo: str, revision: str, seconds: float) -> dict[str, Any]:
    """Return config.json and facts of the weights from the first hub with them."""
    deadline = time.monotonic() + seconds
    errors: list[tuple[HubError, _Hub]] = []
    for hub in _hubs():
        try:
            return _Query(hub, repo, revision, deadline).answer()
        except HubError as error:
            errors.append((error, hub))
    worst, hub = min(errors, key=lambda each: list(_ERRORS).index(each[0].kind))
    raise LaunchError(
        _ERRORS[worst.kind],
        ExitCode.MODEL,
        model=repo,
        repo=repo,
        path=repo,
        source=redact_text(hub.endpoint),
        why=redact_text(" ".join(worst.detail.split()))[:300],
        **TOKENS[hub.source],
    )


@dataclass(frozen=True)
class _Hub:
    """A hub: its name, address, path of a file, default branch and credentials."""

    source: str
    endpoint: str
    file: str
    branch: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def silence(self) -> Path:
        """Return the file that says since when and why this hub cannot be reached."""
        digest = hashlib.sha256(self.endpoint.encode()).hexdigest()[:16]
        return cache_dir() / "hub" / f"unreachable-{digest}"

    def check(self) -> None:
        """Raise HubError if this hub must not be queried now."""
        # the values that huggingface_hub reads as true (constants.py: ENV_VARS_TRUE_VALUES)
        if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
            raise HubError("offline", "HF_HUB_OFFLINE")
        try:
            if _age(self.silence) < _SILENT_SECONDS:
                raise HubError("offline", self.silence.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            _log.debug("%s is queried: %s", redact_text(self.endpoint), error)


def _hubs() -> list[_Hub]:
    import huggingface_hub

    found = mirrors.read()
    token = huggingface_hub.get_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    # modelscope_hub 0.5.1:_legacy_api.py sends both
    token = os.environ.get("MODELSCOPE_API_TOKEN")
    both = {"Authorization": f"Bearer {token}", "Cookie": f"m_session_id={token}"} if token else {}
    return [
        _Hub(
            "hf",
            (found.huggingface or "https://huggingface.co").rstrip("/"),
            "{repo}/resolve/{revision}/{file}",
            "main",
            headers,
        ),
        _Hub(
            "modelscope",
            (found.modelscope or "https://www.modelscope.cn").rstrip("/"),
            "api/v1/models/{repo}/repo?Revision={revision}&FilePath={file}",
            "master",
            both,
        ),
    ]


@dataclass(frozen=True)
class _Query:
    """A query for one model at one hub; ``deadline`` is on the monotonic clock."""

    hub: _Hub
    repo: str
    revision: str
    deadline: float

    def answer(self) -> dict[str, Any]:
        """Return config.json and the facts of the weights. Raises HubError, LaunchError."""
        self.hub.check()
        try:
            document = parse_config(self._read(_CONFIG), f"{self.repo}/{_CONFIG}")
        except HubError as error:
            if error.kind == "offline":
                _keep(self.hub.silence, error.detail)
            raise
        if "quantization_config" not in document:
            with suppress(HubError):
                own = parse_config(self._read(MODELOPT), f"{self.repo}/{MODELOPT}")
                document = with_modelopt(document, own)
        return {"config": document, "weights": self._weights(*counted_with(document))}

    def _weights(self, bits: int, layers: int | None) -> dict[str, Any]:
        """Return parameters and bytes by the headers, counted as those of a folder.

        Where a header is not available, only the bytes that the index states.
        """
        names, promised = self._shards()
        try:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                shards, lengths = zip(*pool.map(self._header, names), strict=True)
        except (HubError, HeaderError) as error:
            _log.debug("the headers of %s are not read: %s", self.repo, error)
            return {"weight_bytes": promised}
        header = {name: entry for shard in shards for name, entry in shard.items()}
        return {
            "parameters": count_parameters(header, bits) or None,
            "weight_bytes": sum(lengths),
            "unloaded_bytes": count_unloaded(header, layers) if layers else 0,
        }

    def _shards(self) -> tuple[list[str], int | None]:
        """Return the files with weights, and the bytes that an index states."""
        try:
            index = parse_json(self._read(_INDEX))
            names = sorted({str(name) for name in index["weight_map"].values()})
            return names, int(index["metadata"]["total_size"])
        except (HubError, ValueError, KeyError, TypeError, AttributeError) as error:
            _log.debug("%s has no index of its weights: %s", self.repo, error)
            return [_SINGLE], None

    def _header(self, name: str) -> tuple[Mapping[str, Any], int]:
        """Return the header and the length of a file. Raises HubError, HeaderError."""
        begin = self._read(name, _FIRST_BYTES)
        if len(begin) < 8:
            raise HeaderError("shorter than its header")
        (length,) = struct.unpack("<Q", begin[:8])
        if length > _MOST_BYTES:
            raise HeaderError(f"a header of {length} bytes")
        if 8 + length > len(begin):
            begin = self._read(name, 8 + length)
        return parse_header(begin[8 : 8 + length])

    def _read(self, file: str, most: int = 0) -> bytes:
        """Return a file, or its first ``most`` bytes. Raises HubError."""
        import requests

        revision = quote(self.revision or self.hub.branch, safe="")
        place = self.hub.file.format(repo=self.repo, revision=revision, file=quote(file))
        headers = {**self.hub.headers, "Accept-Encoding": "identity"}
        if most:
            headers["Range"] = f"bytes=0-{most - 1}"
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise HubError("offline", "timed out")
        try:
            return http_client.get(
                f"{self.hub.endpoint}/{place}",
                seconds=left,
                connect=_CONNECT_SECONDS,
                most_bytes=most or _MOST_BYTES,
                headers=headers,
            )
        except requests.RequestException as error:
            raise classify(error) from None
