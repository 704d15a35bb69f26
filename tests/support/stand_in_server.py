"""A stand-in for an engine: a real HTTP server that answers as vLLM or TGI.

It also fails as they do. It counts tokens by blanks: a prompt has one per blank-separated part and
FIXED more. An answer has ``pieces`` parts, one event each. The second to fourth event are sent when
the client has read the one before: however busy the machine is, a stream is never read in one
piece.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gaudi_launch.core.services.server_answers import POOLED
from tests.support.waiting import GENEROUS, until

FIXED = 5
KEY = "s3cret"


@dataclass
class Manner:
    """The behaviour of the server; a test changes it while it runs."""

    # or tgi (with chat), old-tgi (its own pages only), base (no chat template), broken-chat, embed,
    # rerank, pool
    form: str = "vllm"
    name: str = "stand-in"  # the model's
    first: float = 0.0  # seconds before the first piece
    gap: float = 0.001  # seconds between pieces: a server without any looks as if it gathered them
    at_once: int = 0  # how many may be answered at a time; 0: all
    hold: int = 0  # no client gets the first piece before this number of streams was requested
    pieces: int = 0  # as many as requested; else this number
    fail_from: int = 0  # from this generation on, status 500
    status: int = 0  # every generation has this status
    key: bool = False  # wants KEY
    streams: bool = True  # False: the complete stream in one write
    # json, cut, silent, endless, error, empty, not-http, hollow (empty for long or many texts);
    # vectors: same, nan, few, sizes, order, fork
    bad: str = ""
    usage: bool = True
    thinks: bool = False  # says "hmm" as a thought before the answer
    says: str = "Paris"  # the beginning of every answer
    longest: int | None = 4096
    left: int = 0  # clients that went away in mid-answer
    streamed: int = 0  # streams that came to their end
    questions: list[dict[str, Any]] = field(default_factory=list)
    heads: list[dict[str, str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    sent: list[float] = field(
        default_factory=list
    )  # when each event of a stream was, by time.perf_counter()

    @property
    def streams_asked(self) -> int:
        return sum(bool(body.get("stream")) for body in self.questions)


def count(body: dict[str, Any]) -> int:
    if "messages" in body:
        return sum(len(message["content"].split()) for message in body["messages"]) + FIXED
    return len(str(body.get("prompt", body.get("inputs", ""))).split()) + FIXED


def is_read(connection: socket.socket) -> bool:
    """Return whether the client has read all that was sent.

    It is on this machine.
    """
    (_, ours), (_, theirs) = connection.getsockname(), connection.getpeername()
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        if (local[-4:], remote[-4:]) == (f"{theirs:04X}", f"{ours:04X}"):
            return queues.endswith(":00000000")
    return True  # it is gone


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    manner: Manner
    places: threading.Semaphore | None

    def log_message(self, format: str, *args: object) -> None:
        pass

    def reply(self, document: object, status: int = 200) -> None:
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        manner = self.manner
        self.manner.heads.append(dict(self.headers))
        if manner.bad == "not-http":
            self.wfile.write(b"\x00\x01 what is this\r\n\r\n")
            self.close_connection = True
        elif self.path == "/health":
            self.reply({})
        elif self.path == "/info" and "tgi" in manner.form:
            self.reply(
                {"model_id": "some/model", "max_total_tokens": 2048, "max_input_tokens": 1024}
            )
        elif self.path == "/v1/models" and manner.form != "old-tgi":
            if manner.key and self.headers.get("Authorization") != f"Bearer {KEY}":
                return self.reply({"error": "Unauthorized"}, 401)
            entry: dict[str, Any] = {"id": manner.name, "object": "model"}
            if manner.form in ("vllm", "base", *POOLED):
                entry |= {"owned_by": "vllm", "max_model_len": manner.longest}
            self.reply({"object": "list", "data": [entry]})
        else:
            self.reply({"detail": "Not Found"}, 404)
        return None

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
        manner = self.manner
        if self.path == "/tokenize":
            if manner.form not in ("vllm", "base", *POOLED):
                return self.reply({"detail": "Not Found"}, 404)
            return self.reply({"count": count(body), "tokens": []})
        manner.questions.append(body)
        manner.times.append(time.perf_counter())
        if manner.key and self.headers.get("Authorization") != f"Bearer {KEY}":
            return self.reply({"error": "Unauthorized"}, 401)
        if manner.form in POOLED:
            return self.pooled(body)
        own = self.path in ("/generate", "/generate_stream")
        if own != (manner.form == "old-tgi") and not (own and manner.form == "tgi"):
            return self.reply({"detail": "Not Found"}, 404)
        if manner.form == "base" and self.path == "/v1/chat/completions":
            sentence = "As of transformers v4.44, default chat template is no longer allowed"
            return self.reply({"object": "error", "message": sentence, "code": 400}, 400)
        if manner.form == "broken-chat" and self.path == "/v1/chat/completions":
            sentence = (
                "DeepSeek R1 reasoning parser could not locate think start/end tokens in the "
                "tokenizer!"
            )
            return self.reply({"object": "error", "message": sentence, "code": 400}, 400)
        if manner.status or (manner.fail_from and len(manner.questions) >= manner.fail_from):
            return self.reply({"error": {"message": "the engine is dead"}}, manner.status or 500)
        if self.places is None:
            return self.generate(body, own)
        with self.places:
            return self.generate(body, own)

    def pooled(self, body: dict[str, Any]) -> None:
        """Answer as vLLM 0.32: an embedding model scores as well, and /pooling has all."""
        manner = self.manner
        paths = list(POOLED.values())[list(POOLED).index(manner.form) :]
        if self.path not in paths:
            if manner.bad != "fork":
                return self.reply({"detail": "Not Found"}, 404)
            sentence = "The model does not support Completions API"
            return self.reply(
                {"object": "error", "message": sentence, "type": "BadRequestError", "code": 400}
            )
        if manner.status or (manner.fail_from and len(manner.questions) >= manner.fail_from):
            return self.reply({"error": {"message": "the engine is dead"}}, manner.status or 500)
        query, texts = body.get("query"), body.get("documents") or body["input"]
        read = sum(
            len(words.split()) + (len(query.split()) + FIXED if query else 0) for words in texts
        )
        usage = {"prompt_tokens": read} if manner.usage else {}
        if manner.longest is not None and read > manner.longest * len(texts):
            return self.reply({"error": {"message": f"{read} tokens are too long"}}, 400)
        # letters as places in a vector: similar texts are near to each other
        vectors = [[float(words.count(letter) + 1) for letter in "aeiprc"] for words in texts]
        shares = [len(set(words.split()) & set((query or "").split())) / 10 for words in texts]
        if manner.bad == "same":
            vectors = [[1.0, 2.0]] * len(texts)
        elif manner.bad == "nan":
            vectors[-1][2] = shares[-1] = float("nan")
        elif manner.bad == "few":
            vectors, shares = vectors[:-1], shares[:-1]
        elif manner.bad == "hollow" and len(texts) != 3:
            vectors = [[]] * len(texts)
        elif manner.bad == "sizes":
            vectors[0].append(1.0)
        elif manner.bad == "order":
            shares = [-share for share in shares]
        if self.path == "/rerank":
            order = sorted(range(len(shares)), key=lambda place: -shares[place])
            results = [{"index": place, "relevance_score": shares[place]} for place in order]
            return self.reply({"results": results, "usage": usage})
        name = "embedding" if self.path == "/v1/embeddings" else "data"
        data = [{"index": place, name: vector} for place, vector in enumerate(vectors)]
        return self.reply({"data": data, "usage": usage})

    def generate(self, body: dict[str, Any], own: bool) -> None:
        manner = self.manner
        wanted = body["parameters"].get("max_new_tokens") if own else body.get("max_tokens")
        words = [
            manner.says,
            *(f" w{number}" for number in range(1, manner.pieces or wanted or 16)),
        ]
        usage = {"prompt_tokens": count(body), "completion_tokens": len(words)}
        streaming = body.get("stream") or self.path == "/generate_stream"
        if manner.bad == "empty" or (manner.bad == "hollow" and count(body) == 100):
            words, usage = [], {**usage, "completion_tokens": 0}
        if not streaming:
            # a probe for one token takes no longer than one
            time.sleep(manner.first + manner.gap * min(len(words), wanted or len(words)))
            text = "".join(words)
            details = {
                "finish_reason": "length",
                "generated_tokens": len(words),
                "input_length": count(body),
            }
            if own:
                return self.reply({"generated_text": text, "details": details})
            choice: dict[str, Any] = {"finish_reason": "length", "index": 0}
            choice |= {"message": {"content": text}} if "messages" in body else {"text": text}
            return self.reply({"choices": [choice]} | ({"usage": usage} if manner.usage else {}))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        return self.drip(list(self.events(body, own, words, usage)))

    def events(
        self, body: dict[str, Any], own: bool, words: list[str], usage: dict[str, int]
    ) -> Iterator[dict[str, Any] | str]:
        chat = "messages" in body
        if chat:
            yield {
                "choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
            }
            if self.manner.thinks:
                yield {"choices": [{"delta": {"reasoning_content": "hmm"}, "finish_reason": None}]}
        for number, word in enumerate(words, start=1):
            last = number == len(words)
            if own:
                details = {
                    "finish_reason": "length",
                    "generated_tokens": len(words),
                    "input_length": count(body),
                }
                yield {
                    "token": {"id": number, "text": word, "special": False},
                    "generated_text": "".join(words) if last else None,
                    "details": details if last else None,
                }
                continue
            choice: dict[str, Any] = {"delta": {"content": word}} if chat else {"text": word}
            yield {"choices": [{**choice, "finish_reason": "length" if last else None}]}
        if not own:
            if self.manner.usage and body.get("stream_options", {}).get("include_usage"):
                yield {"choices": [], "usage": usage}
            yield "[DONE]"

    def drip(self, events: list[dict[str, Any] | str]) -> None:
        manner = self.manner
        pieces = [
            f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()
            for event in events
        ]
        if manner.bad == "json":
            pieces[2] = b'data: {"choices": [{"delta": \n\n'
        elif manner.bad == "error":
            pieces[2] = b'data: {"error": {"message": "CUDA is not what this is"}}\n\n'
        elif manner.bad == "cut":
            pieces = pieces[:3]
        if not manner.streams:
            pieces = [b"".join(pieces)]
        try:
            until(lambda: manner.streams_asked >= manner.hold, f"{manner.hold} streams at once")
            time.sleep(manner.first)
            for number, piece in enumerate(pieces):
                if number:
                    time.sleep(manner.gap)
                if 0 < number < 4:
                    self.until_read()
                if manner.bad == "silent" and number == 3:
                    # until the client gives up
                    select.select([self.connection], [], [], GENEROUS)
                manner.sent.append(time.perf_counter())
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            if manner.bad == "cut":
                self.close_connection = True
                return
            self.wfile.write(b"0\r\n\r\n")
            manner.streamed += 1
        except OSError:
            manner.left += 1
            self.close_connection = True

    def until_read(self) -> None:
        """Wait until the client has read all that was sent, or has stopped reading."""
        patience = time.monotonic() + 5
        while not is_read(self.connection) and time.monotonic() < patience:
            time.sleep(0.01)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def serving(*, port: int = 0, **manner: Any) -> Iterator[tuple[str, Manner]]:
    """Yield the server's URL and its behaviour. ``port`` 0: any free one."""
    behaviour = Manner(**manner)
    places = threading.Semaphore(behaviour.at_once) if behaviour.at_once else None
    handler = type("Handler", (_Handler,), {"manner": behaviour, "places": places})
    running = _Server(("127.0.0.1", port), handler)
    thread = threading.Thread(
        target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}", behaviour
    finally:
        running.shutdown()
        running.server_close()
