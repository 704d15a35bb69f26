"""Read past requests: CSV, JSON lines, or histograms of a vLLM /metrics page.

Every reader returns (seconds, input tokens, output tokens), sorted by time and starting at 0.
"""

from __future__ import annotations

import csv
import errno
import gzip
import io
import math
import os
import random
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import http_client
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.metrics_page import samples
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.buckets.shared_prefixes import (
    columns_of,
    count_of,
    shared_prefixes,
)
from gaudi_launch.core.predict.load import SharedPrefix

RequestLengths = tuple[float, int, int]
# the note of a trace with lines that are not requests
LEFT_OUT = "warmup.trace_left_out"


@dataclass(frozen=True)
class PastRequests:
    """Past requests, sorted by time.

    ``timed``: each has its time. ``shared``: the beginning of each that an earlier one had; empty
    where the source does not state it. ``own_times``: a load sends them at the recorded times,
    otherwise at random ones. ``left_out``: lines that are not requests, see `_requests`.
    """

    requests: list[RequestLengths]
    timed: bool = False
    shared: tuple[SharedPrefix, ...] = ()
    own_times: bool = False
    left_out: int = 0

    @property
    def notes(self) -> tuple[Message, ...]:
        """Return what a user of these requests should know."""
        if not self.left_out:
            return ()
        lines = len(self.requests) + self.left_out
        most = f"{_MOST_TOKENS - 1:,}"
        return (message(LEFT_OUT, left_out=self.left_out, lines=lines, most=most),)


# names under which logs and public traces keep the three numbers; first match wins. docs/traces.md
# lists them
TIME_COLUMNS = (
    "t_seconds",
    "timestamp",
    "arrived_at",
    "arrival_time",
    "time",
    "ts",
    "created",
    "start_time",
)
INPUT_COLUMNS = (
    "input_tokens",
    "prompt_tokens",
    "num_prefill_tokens",
    "input_length",
    "prompt_len",
    "prompt_length",
    "contexttokens",
    "request_tokens",
    "input_len",
)
OUTPUT_COLUMNS = (
    "output_tokens",
    "completion_tokens",
    "num_decode_tokens",
    "output_length",
    "generated_tokens",
    "generatedtokens",
    "response_tokens",
    "output_len",
    "generation_tokens",
)
_METRICS_SECONDS = 10.0
_MOST_METRICS_BYTES = 64 << 20
_MOST_BYTES = 256 * 2**20
# requests drawn from histograms, which keep no single request
_DRAWN = 4000
# a request with more tokens is a mistake of its trace
_MOST_TOKENS = 10**8
# vllm/v1/metrics/loggers.py and the fork's vllm/engine/metrics.py
_HISTOGRAMS = {
    "vllm:request_prompt_tokens_bucket": "prompt",
    "vllm:request_generation_tokens_bucket": "generation",
}


def read_past(source: str) -> PastRequests:
    """Return requests from a file or from the URL of a running server.

    A file is CSV, JSON lines or a saved /metrics page; also .gz. Raises LaunchError: USAGE when it
    cannot be read as requests, FAILED when the server does not answer.
    """
    if source.startswith(("http://", "https://")):
        text = fetch_metrics(source)
    else:
        text = _text(Path(source))
    found = parse(text)
    if not found.requests:
        raise LaunchError("warmup.trace_empty", ExitCode.USAGE, source=source)
    return found


def fetch_metrics(url: str) -> str:
    """Return the /metrics page of a server. Raises LaunchError (FAILED)."""
    import requests

    if url.rstrip("/").endswith("/metrics"):
        address = url
    else:
        address = url.rstrip("/") + "/metrics"
    try:
        page = http_client.get(address, seconds=_METRICS_SECONDS, most_bytes=_MOST_METRICS_BYTES)
    except requests.RequestException as error:
        raise LaunchError(
            "warmup.metrics_unreachable", ExitCode.FAILED, url=address, error=str(error)
        ) from None
    return page.decode("utf-8", errors="replace")


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if data[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(data)) as unpacked:
                data = unpacked.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            # a part of it would be taken for all
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return data.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise LaunchError(
            "warmup.trace_unreadable",
            ExitCode.USAGE,
            path=str(path),
            error=getattr(error, "strerror", None) or str(error),
        ) from None


def parse(text: str) -> PastRequests:
    """Return requests from text of any of the forms; none for other text."""
    if "vllm:request_prompt_tokens_bucket" in text:
        return PastRequests(parse_metrics(text))
    if text.lstrip()[:1] in ("{", "["):
        return _requests(*_json_rows(text))
    try:
        return _requests(csv.DictReader(io.StringIO(text)))
    except csv.Error:
        return PastRequests([])


def _json_rows(text: str) -> tuple[list[Mapping[str, Any]], int]:
    """Return one JSON object per line, or an array of them, and the broken lines.

    The numbers may be in a ``usage`` object.
    """
    rows: list[Mapping[str, Any]] = []
    broken = 0
    try:
        lines = parse_json(text)
        if not isinstance(lines, list):
            lines = [lines]
    except ValueError:
        lines = []
        for line in filter(str.strip, text.splitlines()):
            try:
                lines.append(parse_json(line))
            except ValueError:
                broken += 1
    for line in lines:
        if isinstance(line, dict):
            rows.append({**line, **mapping(line.get("usage"))})
        else:
            broken += 1
    return rows, broken


def _requests(rows: Iterable[Mapping[Any, Any]], left_out: int = 0) -> PastRequests:
    """Return the requests of these rows.

    Rows without both counts, or with a count above that of any request, are left out.
    """
    found: list[tuple[float, int, int, tuple[tuple[int, ...], int]]] = []
    timed = True
    for row in rows:
        # "Request tokens" is BurstGPT's spelling (HPMLL/BurstGPT:README.md)
        values = {
            str(name).strip().lower().replace(" ", "_").replace("-", "_"): value
            for name, value in row.items()
        }
        tokens, output = _count(values, INPUT_COLUMNS), _count(values, OUTPUT_COLUMNS)
        if not tokens or not output:
            left_out += 1
            continue
        time = _seconds(values)
        if time is None:
            # one after the other, one request per second
            time, timed = float(len(found)), False
        found.append((time, tokens, output, columns_of(values)))
    found.sort(key=lambda request: request[0])
    requests = [(time - found[0][0], tokens, output) for time, tokens, output, _ in found]
    shared = shared_prefixes([each[3] for each in found], [each[1] for each in found])
    return PastRequests(requests, timed, shared, left_out=left_out)


def _count(values: Mapping[str, Any], names: tuple[str, ...]) -> int:
    known = (values[name] for name in names if values.get(name) is not None)
    return count_of(next(known, 0), _MOST_TOKENS)


def _seconds(values: Mapping[str, Any]) -> float | None:
    """Return the time of a request, in seconds.

    ``timestamp`` is in milliseconds where it is too large for seconds since 1970, and in Mooncake's
    form, which has hash_ids (docs.rs, dynamo_data_gen::mooncake: "timestamp ... f64 milliseconds").
    Bailian's traces have them too, a chat_id, and seconds
    (alibaba-edu/qwen-bailian-usagetraces-anon@03a51e31087d:README.md).
    """
    mooncake = "hash_ids" in values and "chat_id" not in values
    for name in TIME_COLUMNS:
        value = values.get(name)
        if value is None:
            continue
        try:
            number = float(value)
            if name == "timestamp" and (mooncake or number > 1e11):
                number /= 1000
            return number if -1e12 < number < 1e12 else None
        except (TypeError, ValueError):
            pass
        try:
            # public traces write up to 7 digits of a second; Python before 3.11 reads 3 or 6
            return datetime.fromisoformat(
                re.sub(r"(\.\d{6})\d+", r"\1", str(value)).replace("Z", "+00:00")
            ).timestamp()
        except (ValueError, OverflowError):
            continue
    return None


def parse_metrics(page: str) -> list[RequestLengths]:
    """Return requests drawn from the histograms of prompt and generation lengths.

    The page has no pairs and no times: lengths are drawn separately, and requests come evenly, one
    every 0.25 seconds (the planner replays them at several rates).
    """
    counts: dict[str, dict[float, float]] = {"prompt": {}, "generation": {}}
    for sample in samples(page):
        histogram = _HISTOGRAMS.get(sample.name)
        edge = _edge(sample.labels.get("le", ""))
        if histogram is None or edge is None:
            continue
        counts[histogram][edge] = counts[histogram].get(edge, 0.0) + sample.value
    prompt, output = (_spans(counts[phase]) for phase in ("prompt", "generation"))
    if not prompt or not output:
        return []
    chance = random.Random(0)

    def draw(spans: list[tuple[int, int, float]]) -> list[int]:
        chosen = chance.choices(spans, weights=[weight for _, _, weight in spans], k=_DRAWN)
        return [chance.randint(low, high) for low, high, _ in chosen]

    pairs = zip(draw(prompt), draw(output), strict=True)
    return [(0.25 * number, tokens, made) for number, (tokens, made) in enumerate(pairs)]


def _edge(text: str) -> float | None:
    """Return a histogram's upper edge; None where it is not one of lengths."""
    try:
        edge = float(text)
    except ValueError:
        return None
    return edge if edge >= 0 else None


def _spans(cumulative: Mapping[float, float]) -> list[tuple[int, int, float]]:
    """Return (low, high, weight) of each bar with requests.

    The open bar reaches a quarter further.
    """
    spans = []
    low, before = 1, 0.0
    for top in sorted(cumulative):
        # infinity, the last one, is the open bar
        high = int(low * 1.25)
        if top != math.inf:
            high = int(top)
        weight = cumulative[top] - before
        # more were never counted: their sum would be infinite
        if 0 < weight < 1e15 and high >= 1:
            spans.append((min(low, high), high, weight))
        before = max(before, cumulative[top])
        low = high + 1
    return spans
