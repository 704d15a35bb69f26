"""Attack the gateway of a stack: headers, smuggling, limits, kills, changes.

Use: `python scripts/acceptance/gateway_faults.py [TIMES [SEED [CASE...]]]` (20 times by default,
for the cases that draw).

The engines are stand-ins with real processes on a simulated machine, HAProxy is that of
`gaudi-launch setup gateway`, and the stack is started and changed by the command. Prints one JSON
object with what was tried and failed in each case; the exit status is 0 when nothing failed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import re
import socket
import ssl
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from rare_faults import Place

from gaudi_launch.core.base import paths
from gaudi_launch.extensions.stack.gateway.haproxy_config import PATHS
from tests.support.gateways import Answered, call, certificate_in, chat
from tests.support.places import TOP
from tests.support.waiting import unused_port

_READY_SECONDS = 60.0
# a killed HAProxy is started at once, a killed process of the gateway after a second
_BACK_SECONDS = {"haproxy": 1.0, "process": 2.0}
_BODY = b'{"model":"a","prompt":"x"}'
_KEYS = "alice sk-alice\nbob sk-bob\ncarol a,b,,c\n"


@dataclass
class Found:
    """The number of trials of a case, and what was wrong."""

    tried: int = 0
    wrong: list[str] = field(default_factory=list)
    figures: dict[str, object] = field(default_factory=dict)

    def judge(self, good: object, what: str) -> None:
        self.tried += 1
        if not good:
            self.wrong.append(what[:400])
            print(f"WRONG: {what}", file=sys.stderr, flush=True)


class Site:
    """A stack of two models; each request that an engine gets is recorded."""

    def __init__(self, folder: Path, chance: random.Random, times: int) -> None:
        self.folder, self.chance, self.times = folder, chance, times
        self.place = Place(folder, chance, "")
        self.seen = folder / "seen.jsonl"
        self.place.user.environment["GAUDI_LAUNCH_ENGINES_DIR"] = str(paths.engines_dir())
        self.place.user.environment["TRIVIAL_SEEN"] = str(self.seen)
        self.port = unused_port()
        self.path = folder / "stack.yaml"
        self.keys = folder / "keys"
        self.key = "sk-alice"

    def write(
        self,
        gateway: dict[str, Any] | None = None,
        aliases: Sequence[str] = (),
        replicas: int = 2,
        **options: object,
    ) -> None:
        """Write the stack's file: the model a with replicas, the model b."""
        self.put_keys(_KEYS)
        given = {"cards": 1, "python": str(self.place.user.python), **options}
        model = {"name": "a", "model": str(self.place.model), "options": given}
        first = {**model, "replicas": replicas, "aliases": [*aliases]}
        entry = {"port": self.port, "keys-file": "keys", **(gateway or {})}
        models = [first, {**model, "name": "b"}]
        document = {"schema": 1, "name": "site", "gateway": entry, "models": models}
        self.path.write_text(json.dumps(document), encoding="utf-8")

    def put_keys(self, content: str) -> None:
        self.keys.write_text(content, encoding="utf-8")
        self.keys.chmod(0o600)

    def stack(self, *words: str) -> tuple[int, str]:
        return self.place.run("stack", *words, seconds=180)

    def up(self) -> None:
        code, shown = self.stack("up", str(self.path), "--no-doctor")
        if code:
            sys.exit(f"stack up: {code}: {shown}")

    def apply(self) -> tuple[int, str]:
        return self.stack("apply", str(self.path), "--no-doctor", "--yes")

    def down(self) -> None:
        self.stack("down", str(self.path), "--drain", "0")

    def state(self, service: str) -> dict[str, Any]:
        path = self.place.user.folder(service) / "state.json"
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def engines(self) -> list[str]:
        """Return the services of the model a, whichever version of it runs."""
        listed = json.loads(self.place.run("ps", "--json")[1])["services"]
        return [each["name"] for each in listed if each["name"].startswith("site-a")]

    def members(self) -> dict[str, psutil.Process]:
        """Return the processes of the gateway, and its launcher."""
        state = self.state("site-gateway")
        found = {"launcher": psutil.Process(state["launcher"]["pid"])}
        found["process"] = psutil.Process(state["engine_process"]["pid"])
        for master in found["process"].children():
            kind = Path(master.cmdline()[-1]).stem
            found[kind] = master
            for worker in master.children():
                found[f"{kind} worker"] = worker
        return found

    def ask(self, document: object = None, **more: Any) -> Answered:
        return call(self.port, document, **{"key": self.key, **more})

    def requests(self) -> list[dict[str, Any]]:
        """Return what the engines got since the last call, and forget it."""
        content = self.seen.read_text(encoding="utf-8") if self.seen.is_file() else ""
        self.seen.unlink(missing_ok=True)
        found = [json.loads(line) for line in content.splitlines()]
        # launchers ask for these, too
        own = ("GET /v1/models ", "GET /metrics ")
        return [each for each in found if not each["line"].startswith(own)]

    def answers(self, model: str = "a", **more: Any) -> bool:
        return self.ask(chat(model, tokens=1), **more).complete

    def back(self, model: str, limit: float = 30.0) -> float:
        """Return the seconds until a model answers; infinite after the limit."""
        began = time.monotonic()
        while time.monotonic() - began < limit:
            if self.answers(model):
                return round(time.monotonic() - began, 2)
            time.sleep(0.02)
        return float("inf")


def sent(port: int, content: bytes, seconds: float = 20.0, source: str = "127.0.0.1") -> bytes:
    """Send bytes on a new connection and return all that comes back."""
    found = b""
    with contextlib.suppress(OSError):
        where = ("127.0.0.1", port)
        with socket.create_connection(where, seconds, source_address=(source, 0)) as connection:
            with contextlib.suppress(OSError):
                connection.sendall(content)
            while piece := connection.recv(1 << 16):
                found += piece
    return found


def status(answer: bytes) -> int:
    """Return the status of the first answer; 0 for a closed connection."""
    found = re.match(rb"HTTP/1\.[01] (\d{3})", answer)
    return int(found[1]) if found else 0


def request(
    *headers: str, line: str = "POST /v1/completions HTTP/1.1", body: bytes = _BODY
) -> bytes:
    """Return a request that ends its connection."""
    head = [line, "Host: h", "Connection: close", *headers]
    if not any(re.match("(content-length|transfer-encoding)", each, re.I) for each in headers):
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


# --- keys in headers -----------------------------------------------------------------------------

_HEADERS = (
    ("Authorization: Bearer sk-alice", 200),
    ("authorization: bearer sk-alice", 200),
    ("AUTHORIZATION: BEARER sk-alice", 200),
    ("Authorization: BeArEr    sk-alice", 200),
    ("Authorization: Bearer\tsk-alice", 200),
    ("Authorization:Bearer sk-alice", 200),
    ("Authorization:   Bearer sk-alice   ", 200),
    ("Authorization: Bearer a,b,,c", 200),
    ("x-api-key: sk-alice", 200),
    ("X-API-KEY: a,b,,c", 200),
    ("Authorization: sk-alice", 200),
    ("Authorization: Bearer", 401),
    ("Authorization: Bearer sk-alic", 401),
    ("Authorization: Bearer sk-alice,", 401),
    ("Authorization: Bearer x, sk-alice", 401),
    ("Authorization: Bearer sk-alice sk-bob", 401),
    ("Authorization: Basic c2stYWxpY2U=", 401),
    ("Authorization: Bearer Bearer sk-alice", 401),
    ('Authorization: Bearer "sk-alice"', 401),
    ("Authorization: Bearer sk-alice%20", 401),
    ("Authorization: Bearer " + "a" * 4000, 401),
    ("Authorization: Bearer wrong\r\nAuthorization: Bearer sk-alice", None),
    ("Authorization: Bearer wrong\r\nx-api-key: sk-alice", 401),
    ("Proxy-Authorization: Bearer sk-alice", 401),
    ("x-gaudi-user: alice", 401),
    ("Cookie: authorization=sk-alice", 401),
    ("Authorization: Bearer sk-alice\x00", 400),
    ("Authorization: Bearer alice", 401),
    ("Authorization: Bearer 408bc4d4d9c8e2ee", 401),
)


def header_forms(site: Site) -> Found:
    """Send a key in every form; no engine gets one."""
    found = Found()
    site.write()
    site.up()
    for header, wanted in _HEADERS:
        site.requests()
        answer = sent(site.port, request(header))
        got = site.requests()
        shown = f"{header[:60]!r}: {answer[:60]!r}"
        if wanted is None:
            # of two headers either one may count: both are removed
            found.judge(status(answer) in (200, 400, 401), shown)
        else:
            found.judge(status(answer) == wanted, shown)
        names = [name.lower() for each in got for name, _ in each["headers"]]
        text = json.dumps(got)
        kept = bool({"authorization", "x-api-key"} & set(names))
        # what is called otherwise is not ours to remove
        if not {"proxy-authorization", "cookie"} & set(names):
            kept = kept or "sk-alice" in text
        found.judge(not kept and len(got) == (status(answer) == 200), f"{header[:60]!r} got {text}")
    return found


# --- smuggling -----------------------------------------------------------------------------------

_KEY = "Authorization: Bearer sk-alice"
_HIDDEN = b"POST /sleep?smuggled HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"
_CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(_BODY), _BODY)


def _length(*values: object, body: bytes = _BODY) -> bytes:
    return request(_KEY, *(f"Content-Length: {each}" for each in values), body=body)


def _coded(*headers: str, body: bytes = _CHUNKED) -> bytes:
    return request(_KEY, *headers, body=body)


_SMUGGLED: dict[str, bytes] = {
    "CL.TE": _coded(
        f"Content-Length: {len(_BODY)}", "Transfer-Encoding: chunked", body=_BODY + _HIDDEN
    ),
    "TE.CL": _coded("Transfer-Encoding: chunked", "Content-Length: 4", body=_CHUNKED + _HIDDEN),
    "TE twice": _coded("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
    "TE list": _coded("Transfer-Encoding: gzip, chunked"),
    "TE list, other order": _coded("Transfer-Encoding: chunked, gzip"),
    "TE chunked twice": _coded("Transfer-Encoding: chunked, chunked"),
    "TE identity": _coded("Transfer-Encoding: identity", body=_BODY + _HIDDEN),
    "TE with a blank": _coded("Transfer-Encoding : chunked"),
    "TE with a tab": _coded("Transfer-Encoding:\tchunked"),
    "TE with a letter before": _coded("Transfer-Encoding: xchunked"),
    "TE upper case": _coded("Transfer-Encoding: CHUNKED"),
    "TE quoted": _coded('Transfer-Encoding: "chunked"'),
    "TE with a vertical tab": _coded("Transfer-Encoding: \x0bchunked"),
    "TE folded": _coded("Transfer-Encoding:\r\n chunked"),
    "TE in HTTP/1.0": request(
        _KEY, "Transfer-Encoding: chunked", line="POST /v1/completions HTTP/1.0", body=_CHUNKED
    ),
    "CL twice, equal": _length(len(_BODY), len(_BODY)),
    "CL twice, other": _length(len(_BODY), 0, body=_BODY + _HIDDEN),
    "CL list": _length(f"{len(_BODY)}, {len(_BODY)}"),
    "CL list, other": _length(f"{len(_BODY)}, 0", body=_BODY + _HIDDEN),
    "CL negative": _length(-1),
    "CL with a plus": _length(f"+{len(_BODY)}"),
    "CL hexadecimal": _length(hex(len(_BODY))),
    "CL with a blank inside": _length("2 6"),
    "CL empty": _length(""),
    "CL in exponents": _length("1e9"),
    "CL 2^31": _length(2**31),
    "CL 2^32 + 64": _length(2**32 + 64),
    "CL 2^63": _length(2**63),
    "CL 2^64 + 26": _length(2**64 + len(_BODY)),
    "CL zeros before": _length(f"{len(_BODY):030d}"),
    "CL too short": _length(len(_BODY), body=_BODY + _HIDDEN),
    "chunk with an extension": _coded(
        "Transfer-Encoding: chunked", body=b"%x;a=b\r\n%s\r\n0\r\n\r\n" % (len(_BODY), _BODY)
    ),
    "chunk of 2^64": _coded("Transfer-Encoding: chunked", body=b"10000000000000000\r\n" + _BODY),
    "chunk negative": _coded("Transfer-Encoding: chunked", body=b"-1\r\n" + _BODY + _HIDDEN),
    "chunk with 0x": _coded(
        "Transfer-Encoding: chunked", body=b"0x1a\r\n" + _BODY + b"\r\n0\r\n\r\n"
    ),
    "chunk ended by LF": _coded(
        "Transfer-Encoding: chunked", body=_CHUNKED.replace(b"\r\n", b"\n")
    ),
    "trailer with our headers": _coded(
        "Transfer-Encoding: chunked",
        body=_CHUNKED[:-2] + b"x-gaudi-section: model1-b\r\nContent-Length: 9\r\n\r\n" + _HIDDEN,
    ),
    "h2c upgrade": request(
        _KEY, "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA", body=_BODY
    ).replace(b"Connection: close", b"Connection: Upgrade, HTTP2-Settings"),
    "websocket": request(
        _KEY, "Upgrade: websocket", line="GET /v1/realtime HTTP/1.1", body=b""
    ).replace(b"Connection: close", b"Connection: Upgrade"),
    "PROXY v1": b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n" + request(_KEY),
    "PROXY v2": b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\1\x7f\0\0\1\0\1\0\2" + request(_KEY),
    "CONNECT": request(_KEY, line="CONNECT 127.0.0.1:22 HTTP/1.1", body=b""),
    "absolute URI": request(_KEY, line="POST http://other/v1/completions HTTP/1.1"),
    "absolute URI of administration": request(_KEY, line="POST http://other/sleep HTTP/1.1"),
    "path with dots": request(_KEY, line="POST /v1/completions/../../sleep HTTP/1.1"),
    "path with escaped dots": request(
        _KEY, line="POST /v1/completions/%2e%2e/%2e%2e/sleep HTTP/1.1"
    ),
    "path with two slashes": request(_KEY, line="POST //sleep HTTP/1.1"),
    "path escaped": request(_KEY, line="POST /%73leep HTTP/1.1"),
    "path with a parameter": request(_KEY, line="POST /v1/completions;/sleep HTTP/1.1"),
    "path with a null": request(_KEY, line="POST /v1/completions%00/sleep HTTP/1.1"),
    "path with a backslash": request(_KEY, line="POST /v1\\..\\sleep HTTP/1.1"),
    "asterisk": request(_KEY, line="OPTIONS * HTTP/1.1", body=b""),
    "HTTP/0.9": b"POST /sleep\r\n\r\n",
    "HTTP/3.0": request(_KEY, line="POST /v1/completions HTTP/3.0"),
    "lines ended by LF": request(_KEY).replace(b"\r\n", b"\n"),
    "lines ended by CR": request(_KEY).replace(b"\r\n", b"\r"),
    "header without a name": request(_KEY, ": x"),
    "header with a null": request(_KEY, "X: a\0b"),
    "header with CR inside": request(_KEY, "X: a\rTransfer-Encoding: chunked"),
    "own headers": request(
        _KEY, "x-gaudi-model: b", "x-gaudi-section: model1-b", "x-gaudi-user: bob"
    ),
    "own headers with _": request(_KEY, "x_gaudi_section: model1-b"),
    "own header named by Connection": request(
        _KEY, "Connection: x-gaudi-section, x-gaudi-user, content-length"
    ),
    "Host twice": request(_KEY, "Host: other"),
    "method override": request(_KEY, "X-HTTP-Method-Override: PUT", "X-Original-URL: /sleep"),
    "Expect": request(_KEY, "Expect: 100-continue"),
    "Expect unknown": request(_KEY, "Expect: 200-maybe"),
    "head of 40 KiB": request(_KEY, *(f"X-{at}: {'a' * 400}" for at in range(100))),
    "head of 200 KiB": request(_KEY, "X: " + "a" * 200_000),
    "GET with a body": request(_KEY, line="GET /v1/models HTTP/1.1", body=_BODY + _HIDDEN),
    "pipelined administration": request(_KEY).replace(b"close", b"keep-alive") + _HIDDEN,
}


def smuggling(site: Site) -> Found:
    """Send requests that two parsers may read differently."""
    found = Found()
    site.write({"body-mib": 1})
    site.up()
    for name, content in _SMUGGLED.items():
        site.requests()
        began = time.monotonic()
        answer = sent(site.port, content, 90.0)
        seconds = time.monotonic() - began
        got = site.requests()
        shown = f"{name}: {answer[:80]!r} {json.dumps(got)[:300]}"
        lines = [each["line"].split() for each in got]
        good = all(len(line) == 3 and line[1].split("?")[0] in PATHS for line in lines)
        # a URI with a host names one of the same paths
        good = good or name == "absolute URI"
        good = good and len(got) <= 1 and "smuggled" not in json.dumps(got)
        names = [header.lower() for each in got for header, _ in each["headers"]]
        good = good and not {"authorization", "x-api-key"} & set(names)
        good = good and not [each for each in names if each.startswith("x-gaudi")]
        lengths = names.count("content-length") + names.count("transfer-encoding")
        found.judge(good and lengths == len(got), shown)
        # the last is the time for the next request of a connection that stays
        found.judge(seconds < 80, f"{name}: {seconds:.0f} s")
        found.judge(site.ask(chat("b", stream=False)).status == 200, f"{name}: the next request")
    return found


# --- HTTP/2 --------------------------------------------------------------------------------------


def _frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    return (
        struct.pack(">I", len(content))[1:]
        + bytes((kind, flags))
        + struct.pack(">I", stream)
        + content
    )


def _literal(name: str, value: str) -> bytes:
    """Return a header of HPACK without index and Huffman code (RFC 7541, 6.2.2)."""

    def string(text: str) -> bytes:
        content = text.encode()
        if len(content) < 127:
            return bytes((len(content),)) + content
        assert len(content) < 127 + 128
        return bytes((127, len(content) - 127)) + content

    return b"\0" + string(name) + string(value)


class Http2:
    """A client of HTTP/2 with prior knowledge that sends what it is given."""

    def __init__(self, port: int, seconds: float = 20.0) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port), seconds)
        self.connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0))
        self.frames: list[tuple[int, int, int, bytes]] = []
        self._left = b""

    def send(self, stream: int, body: Sequence[bytes], *headers: tuple[str, str]) -> None:
        """Send a request; a body of several pieces is one of several frames."""
        own = [
            (":method", "POST"),
            (":path", "/v1/completions"),
            (":scheme", "http"),
            (":authority", "h"),
        ]
        given = {name for name, _ in headers}
        lines = [each for each in own if each[0] not in given] + [*headers]
        lines.sort(key=lambda each: not each[0].startswith(":"))
        block = b"".join(_literal(*each) for each in lines)
        self.connection.sendall(_frame(1, 4, stream, block))
        for at, piece in enumerate(body):
            self.connection.sendall(_frame(0, at == len(body) - 1, stream, piece))

    def read(self, enough: Callable[[list[tuple[int, int, int, bytes]]], bool]) -> bool:
        """Read frames until there are enough; False where the connection ends before."""
        while not enough(self.frames):
            try:
                piece = self.connection.recv(1 << 16)
            except OSError:
                return False
            if not piece:
                return False
            self._left += piece
            while len(self._left) >= 9:
                size = int.from_bytes(self._left[:3], "big")
                if len(self._left) < 9 + size:
                    break
                stream = int.from_bytes(self._left[5:9], "big") & 0x7FFFFFFF
                self.frames.append((self._left[3], self._left[4], stream, self._left[9 : 9 + size]))
                self._left = self._left[9 + size :]
        return True

    def status(self, stream: int) -> int:
        """Return the status of a stream's answer; 0 for a reset or an end."""

        def answered(frames: list[tuple[int, int, int, bytes]]) -> bool:
            return any(each[0] in (1, 3) and each[2] == stream for each in frames)

        if not self.read(answered):
            return 0
        kind, _, _, content = next(
            each for each in self.frames if each[0] in (1, 3) and each[2] == stream
        )
        if kind == 3:
            return 0
        # statuses of the static table (RFC 7541, appendix A), or a literal with its name's index
        known = {0x88: 200, 0x89: 204, 0x8A: 206, 0x8B: 304, 0x8C: 400, 0x8D: 404, 0x8E: 500}
        while content and content[0] & 0xE0 == 0x20:
            content = content[1:]
        return known.get(content[0]) or int(re.search(rb"[1-5]\d\d", content)[0])  # type: ignore[index]

    def close(self) -> None:
        self.connection.close()


_BEARER = ("authorization", "Bearer sk-alice")


def sizes(site: Site) -> Found:
    """Send more than body-mib in every way that hides it; no engine gets it."""
    found = Found()
    site.write({"body-mib": 1})
    site.up()
    big = b'{"model":"a","prompt":"' + b"a" * (3 << 20) + b'"}'
    small = b'{"model":"a","prompt":"' + b"a" * 900_000 + b'"}'

    def chunks(body: bytes, size: int) -> bytes:
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        return b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in pieces) + b"0\r\n\r\n"

    for values in (
        [len(big)], [2**31 - 1], [2**31], [2**31 + 100], [2**32], [2**32 + 64], [2**33 + 5],
        [2**63], [2**64 - 1], [2**64 + 26], [-5], [10**30], [len(big), 10], [10, len(big)],
        [f"{len(big)}, 10"], [f"{len(big):020d}"],
    ):  # fmt: skip
        site.requests()
        answer = sent(site.port, _length(*values, body=big))
        shown = f"Content-Length {values}: {answer[:50]!r}"
        # a body that is not read ends the connection: the answer may be lost on the way
        found.judge(status(answer) in (0, 400, 413) and not site.requests(), shown)
    for size in (1 << 10, 1 << 14, 1 << 20, 4 << 20):
        for extra in ((), ("Content-Length: 10",)):
            site.requests()
            answer = sent(
                site.port, _coded("Transfer-Encoding: chunked", *extra, body=chunks(big, size))
            )
            shown = f"chunks of {size} {extra}: {answer[:50]!r}"
            found.judge(status(answer) in (0, 400, 413) and not site.requests(), shown)
    for content in (
        _length(len(small), body=small),
        _coded("Transfer-Encoding: chunked", body=chunks(small, 5000)),
    ):
        found.judge(status(sent(site.port, content)) == 200, "a body below the limit")
    for lengths in (
        (),
        ("26",),
        ("0",),
        (str(2**32 + 26),),
        ("-1",),
        ("26", "27"),
        (str(len(big)),),
    ):
        site.requests()
        client = Http2(site.port)
        with contextlib.suppress(OSError):
            frames = [big[at : at + 16_000] for at in range(0, len(big), 16_000)]
            # the window of 64 KiB is ignored, as one who attacks does
            client.send(1, frames, _BEARER, *(("content-length", each) for each in lengths))
        shown = f"HTTP/2 content-length {lengths}: {client.status(1)}"
        found.judge(not site.requests(), shown)
        client.close()
    client = Http2(site.port)
    client.send(1, [_BODY], _BEARER)
    found.judge(client.status(1) == 200, "HTTP/2")
    client.send(3, [_BODY], _BEARER, ("transfer-encoding", "chunked"))
    found.judge(client.status(3) in (0, 400, 200), "HTTP/2 with Transfer-Encoding")
    client.close()
    found.judge(site.answers(), "the next request")
    return found


# --- names ---------------------------------------------------------------------------------------

_NAMES = (
    *(
        "%[src]",
        "%[env(HOME)]",
        '"q"',
        "it's",
        "back\\slash",
        "${HOME}",
        "$HOME",
        "../../etc",
        "a#b",
    ),
    *(
        "%",
        "%%",
        "a;b",
        "a|b",
        "{a}",
        "if",
        "unless",
        "or",
        "model0-a",
        "A" * 200,
        "http://x",
        "~",
        "a-",
    ),
    *("\\x41", "\\", "*", "<a>"),
)
_REFUSED_NAMES = (
    *(
        "#a",
        "#",
        "a b",
        "a\tb",
        "a\nb",
        "a\r\nb",
        "",
        " a",
        "a ",
        "\x00",
        "\x1b[31m",
        "é",
        "模型",
        "b",
        "-a",
    ),
)


def names(site: Site) -> Found:
    """Give models names that mean something to HAProxy."""
    found = Found()
    for name in _REFUSED_NAMES:
        site.write(aliases=[name])
        code, shown = site.stack("plan", str(site.path))
        good = code == 2 and "Traceback" not in shown and "line" in shown
        found.judge(good, f"{name!r}: {code}: {shown[-200:]}")
    site.write(aliases=_NAMES)
    site.up()
    listed = [each["id"] for each in site.ask(path="/v1/models").document["data"]]
    for name in _NAMES:
        found.judge(name in listed and site.answers(name), f"{name!r} is not answered")
    for name in ("%[src]x", "model0-a x", "a#", "", "A" * 201):
        found.judge(
            site.ask(chat(name, stream=False)).status in (400, 404), f"{name!r} is answered"
        )
    return found


# --- clients that take all -----------------------------------------------------------------------


@contextlib.contextmanager
def held(port: int, count: int, content: bytes, source: str) -> Iterator[list[int]]:
    """Open connections that have sent some bytes, and keep them."""
    sockets: list[socket.socket] = []
    opened = [0]
    try:
        for _ in range(count):
            connection = socket.socket()
            connection.bind((source, 0))
            connection.settimeout(3)
            sockets.append(connection)
            with contextlib.suppress(OSError):
                connection.connect(("127.0.0.1", port))
                connection.sendall(content)
                opened[0] += 1
        yield opened
    finally:
        for connection in sockets:
            connection.close()


_HALVES = {
    "half a head": b"POST /v1/chat/completions HTTP/1.1\r\nHo",
    "nothing": b"",
    "half a body": (
        f"POST /v1/completions HTTP/1.1\r\nHost: h\r\n{_KEY}\r\nContent-Length: 90\r\n\r\n{{"
    ).encode(),
    "half a large body": (
        f"POST /v1/completions HTTP/1.1\r\nHost: h\r\n{_KEY}\r\nContent-Length: 900000\r\n\r\n{{"
    ).encode(),
    "half a head of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + _frame(4, 0, 0)
    + _frame(1, 0, 1),
}


def slow_clients(site: Site) -> Found:
    """Open as many connections as one address can; another address is answered."""
    found = Found()
    site.write()
    site.up()
    body = json.dumps(chat("a", stream=False)).encode()
    good = request(_KEY, line="POST /v1/chat/completions HTTP/1.1", body=body)
    health = request(line="GET /health HTTP/1.1", body=b"")
    for count, kind in (
        (1900, "half a head"), *((2100, each) for each in _HALVES), (10_000, "half a head"),
    ):  # fmt: skip
        with held(site.port, count, _HALVES[kind], "127.0.0.1") as opened:
            slowest = 0.0
            for content in (good, health, good):
                began = time.monotonic()
                answer = sent(site.port, content, 30.0, "127.0.0.2")
                slowest = max(slowest, time.monotonic() - began)
                found.judge(status(answer) == 200, f"{count} x {kind}: {answer[:60]!r}")
            found.figures[f"{count} x {kind}"] = f"{opened[0]} opened, slowest {slowest:.2f} s"
            found.judge(slowest < 3, f"{count} x {kind}: {slowest:.1f} s")
        found.judge(site.back("a") < 5, f"after {count} x {kind}")
    return found


def limits(site: Site) -> Found:
    """Exceed limits of users and addresses, by HTTP/1, HTTP/2 and proxies."""
    found = Found()
    users = {"bob": {"requests-per-minute": 6, "concurrent": 2}}
    site.write({"users": users, "connections": 40, "trusted-proxies": ["127.0.0.3", "::1/128"]})
    site.up()
    asked = chat("a", tokens=60)
    with ThreadPoolExecutor(4) as pool:
        done = Counter(
            each.status for each in pool.map(lambda _: site.ask(asked, key="sk-bob"), range(4))
        )
    found.judge(done == {200: 2, 429: 2}, f"4 at once of bob: {done}")
    time.sleep(0.3)
    client = Http2(site.port)
    body = json.dumps(asked).encode()
    bob = ("authorization", "Bearer sk-bob")
    for number in range(8):
        client.send(2 * number + 1, [body], bob, (":path", "/v1/chat/completions"))
    done = Counter(client.status(2 * number + 1) for number in range(8))
    found.judge(done == {200: 2, 429: 6}, f"8 streams of HTTP/2 of bob: {done}")
    client.close()
    found.judge(site.ask(chat("a"), key="sk-bob").status == 429, "7th of a minute")
    found.judge(site.answers(), "another user")
    client = Http2(site.port)
    for number in range(30):
        client.send(2 * number + 1, [body], _BEARER, (":path", "/v1/chat/completions"))
    done = Counter(client.status(2 * number + 1) for number in range(30))
    found.judge(done == {200: 20, 429: 10}, f"30 streams of HTTP/2 of one address: {done}")
    client.close()
    time.sleep(0.5)

    def from_proxy(source: str, forwarded: Sequence[str], count: int) -> Counter[int]:
        lines = [f"X-Forwarded-For: {each}" for each in forwarded]
        content = request(_KEY, *lines, line="POST /v1/chat/completions HTTP/1.1", body=body)
        with ThreadPoolExecutor(count) as pool:
            return Counter(
                status(each)
                for each in pool.map(lambda _: sent(site.port, content, 30, source), range(count))
            )

    # one that is not trusted: what it says counts nothing, and its connections are closed
    done = from_proxy("127.0.0.4", ["10.0.0.1"], 25)
    found.judge(done[200] <= 20 and done[0] >= 5, f"an address that is not trusted: {done}")
    for shown, forwarded in (
        ("one", ["10.0.0.1"]), ("several in a line", ["10.9.9.9, 10.0.0.2"]),
        ("several lines", ["10.9.9.9", "10.0.0.3"]), ("with a port", ["10.0.0.4:777"]),
        ("IPv6", ["2001:db8:0:1::1"]), ("mapped", ["::ffff:10.0.0.5"]), ("words", ["unknown"]),
        ("none", []), ("blank", [" "]),
    ):  # fmt: skip
        done = from_proxy("127.0.0.3", forwarded, 25)
        found.judge(done == {200: 20, 429: 5}, f"X-Forwarded-For {shown}: {done}")
        time.sleep(0.3)
    done = from_proxy("127.0.0.3", ["10.0.0.6"], 10) + from_proxy("127.0.0.3", ["10.0.0.7"], 10)
    found.judge(done == {200: 20}, f"two addresses: {done}")
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(from_proxy, "127.0.0.3", [f"2001:db8:0:2::{at}"], 13) for at in (1, 2)]
        done = both[0].result() + both[1].result()
    found.judge(done == {200: 20, 429: 6}, f"two addresses of a network of /64: {done}")
    return found


# --- HAProxy's own answers -----------------------------------------------------------------------


def own_answers(site: Site) -> Found:
    """Provoke every answer of HAProxy itself: all have OpenAI's form."""
    found = Found()
    site.write({"body-mib": 1})
    site.up()
    cases = {
        "no key": (request(), 401),
        "unknown path": (request(_KEY, line="POST /x HTTP/1.1"), 404),
        "unknown model": (request(_KEY, body=b'{"model":"none"}'), 404),
        "no JSON": (request(_KEY, body=b"x"), 400),
        "too large": (request(_KEY, "Content-Length: 9999999", body=b"{"), 413),
        **{
            f"{method} {path}": (request(_KEY, line=f"{method} {path} HTTP/1.1", body=b""), code)
            for method, path, code in (
                ("HEAD", "/v1/models", 200), ("HEAD", "/v1/models/a", 200),
                ("HEAD", "/v1/models/x", 404), ("HEAD", "/x", 404),
                ("HEAD", "/v1/completions", 404), ("PUT", "/v1/models", 404),
                ("DELETE", "/v1/completions", 404), ("OPTIONS", "/v1/completions", 404),
                ("PATCH", "/v1/models", 404), ("TRACE", "/", 404), ("FOO", "/v1/completions", 404),
                ("GET", "/v1/models/a/b", 404), ("GET", "/v1/models?x=1", 200),
                ("GET", "/v1/modelsx", 404),
            )
        },
        "half a body": (request(_KEY, "Content-Length: 90", body=b"{"), 408),
    }  # fmt: skip
    for name, (content, wanted) in cases.items():
        answer = sent(site.port, content, 90.0)
        head, _, body = answer.partition(b"\r\n\r\n")
        good = status(answer) == wanted and b"content-type: application/json" in head.lower()
        if name.startswith("HEAD"):
            good = good and not body
        elif wanted >= 400:
            with contextlib.suppress(ValueError):
                good = good and set(json.loads(body)["error"]) == {"message", "type", "code"}
        else:
            good = good and isinstance(json.loads(body), dict)
        found.judge(good, f"{name}: {answer[:300]!r}")
    for kind in ("launcher", "engine_process"):
        for name in ("site-a", "site-a-2"):
            with contextlib.suppress(psutil.Error):
                psutil.Process(site.state(name)[kind]["pid"]).kill()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        answered = site.ask(chat("a"))
        if answered.status == 503:
            break
        time.sleep(0.1)
    document = answered.document if answered.status == 503 else {}
    found.judge("error" in document and "retry-after" in answered.headers, f"no engine: {answered}")
    return found


# --- kills ---------------------------------------------------------------------------------------

_GATEWAY = ("haproxy", "haproxy worker", "large", "large worker", "process")


def in_a_row(site: Site, found: Found) -> None:
    """Kill processes of a gateway several times, each as soon as it lives."""
    for kind, count in (("process", 8), ("haproxy", 8), ("haproxy worker", 8), ("large", 8)):
        began = time.monotonic()
        last = 0
        for _ in range(count):
            deadline = time.monotonic() + 120
            while time.monotonic() < deadline:
                with contextlib.suppress(psutil.Error, OSError, ValueError, LookupError, TypeError):
                    member = site.members()[kind]
                    if member.pid != last:
                        last = member.pid
                        member.kill()
                        break
                time.sleep(0.005)
        seconds = site.back("n0", 120)
        found.figures[f"{kind} {count} times in a row"] = [
            round(time.monotonic() - began, 1), seconds
        ]  # fmt: skip
        found.judge(seconds < 3, f"{kind} {count} times in a row: {seconds}")


def kills(site: Site) -> Found:
    """Kill each process around changes; the newest settings are served."""
    found = Found()
    times: dict[str, list[float]] = {}
    site.write(aliases=["n0"])
    site.up()
    rounds = site.chance.randrange(1000)

    def killed(kind: str, alias: str, gone: str) -> None:
        member = site.members().get(kind)
        if member is None:
            found.judge(False, f"{kind} does not run")
            return
        member.kill()
        member.wait(20)
        seconds = site.back(alias)
        times.setdefault(kind, []).append(seconds)
        found.judge(seconds < 30, f"{kind}: {alias} is not answered again")
        status = site.ask(chat(gone, stream=False)).status
        found.judge(status == 404, f"{kind}: {gone}: {status}")
        code, shown = site.stack("ps", "site", "--json")
        found.judge(code == 0 and '"current": true' in shown, f"{kind}: ps: {shown[-900:]}")

    for kind in _GATEWAY:
        killed(kind, "n0", "n1")
    in_a_row(site, found)
    for number in range(site.times):
        before, after = f"n{rounds + number}", f"n{rounds + number + 1}"
        site.write(aliases=[before])
        site.apply()
        site.write(aliases=[after])
        code, shown = site.apply()
        found.judge(code == 0 and site.back(after) < 5, f"apply: {code}: {shown[-300:]}")
        killed(_GATEWAY[number % len(_GATEWAY)], after, before)
        code, shown = site.apply()
        found.judge(code == 0 and "nothing was changed" in shown, f"apply again: {shown[-300:]}")
        if number % 5 == 4:
            members = site.members()
            for each in site.chance.sample(sorted(members), len(members)):
                if each != "launcher":
                    with contextlib.suppress(psutil.Error):
                        members[each].kill()
            found.judge(site.back(after) < 30, "all of the gateway at once")
    engines = site.engines()
    for name in engines:
        with contextlib.suppress(psutil.Error):
            psutil.Process(site.state(name)["engine_process"]["pid"]).kill()
    found.judge(len(engines) == 2 and site.back(after, 60) < 60, f"all of a: {engines}")
    for name in (engines[0], "site-gateway"):
        psutil.Process(site.state(name)["launcher"]["pid"]).kill()
        time.sleep(1)
        code, shown = site.stack("up", str(site.path), "--no-doctor")
        found.judge(code == 0 and site.back(after) < 10, f"launcher of {name}: {shown[-300:]}")
    found.figures.update({kind: f"{min(each)} to {max(each)} s" for kind, each in times.items()})
    return found


def streams(
    site: Site, count: int, tokens: int, pool: ThreadPoolExecutor
) -> list[Future[Answered]]:
    return [pool.submit(site.ask, chat("a", f"{at}", tokens=tokens)) for at in range(count)]


def engine_killed(site: Site) -> Found:
    """Kill an engine under 40 streams: nothing fails before its first byte."""
    found = Found()
    site.write()
    site.up()
    with ThreadPoolExecutor(40) as pool:
        running = streams(site, 40, 300, pool)
        time.sleep(2)
        psutil.Process(site.state("site-a")["engine_process"]["pid"]).kill()
        done = [each.result() for each in running]
    cut = [each for each in done if not each.complete]
    before = [each for each in cut if not each.begun]
    found.tried = len(done)
    found.figures["cut in the stream"] = len(cut) - len(before)
    found.wrong = [str(each)[:300] for each in before]
    return found


def changes(site: Site) -> Found:
    """Apply three changes and a restart, each under 40 streams."""
    found = Found()
    for metrics in (True, False):
        load = site.folder / "load"
        load.write_text("40")
        site.place.user.environment.pop("TRIVIAL_LOAD", None)
        if metrics:
            site.place.user.environment["TRIVIAL_LOAD"] = str(load)
        site.write()
        site.up()
        steps: list[Callable[[], object]] = [
            lambda: site.write(aliases=["x"]),
            lambda: site.write(aliases=["x"], replicas=1),
            lambda: site.write({"body-mib": 2}, aliases=["x"], replicas=1),
            lambda: None,
        ]
        for at, step in enumerate(steps):
            with ThreadPoolExecutor(40) as pool:
                running = streams(site, 40, 400, pool)
                time.sleep(2)
                step()
                if at == 3:
                    code, shown = site.stack("restart", "a", "--drain", "100")
                else:
                    words = ("apply", str(site.path), "--no-doctor", "--yes", "--drain", "100")
                    code, shown = site.stack(*words)
                load.write_text("0")
                cut = [each.result() for each in running if not each.result().complete]
            found.tried += 40
            found.wrong += [f"{metrics} {at}: {each}"[:300] for each in cut]
            if code:
                found.wrong.append(f"{metrics} {at}: {code}: {shown[-300:]}")
        site.down()
    return found


def apply_killed(site: Site) -> Found:
    """Kill `apply` at drawn moments, also with HAProxy; the next completes it."""
    found = Found()
    site.write(aliases=["n0"])
    site.up()
    killed = 0
    for number in range(1, site.times + 1):
        # every third change starts no engine
        alias = f"n{number - number % 3}"
        site.write({"body-mib": number % 8 + 1}, aliases=[alias])
        with ThreadPoolExecutor(8) as pool:
            running = streams(site, 8, 150, pool)
            words = ("stack", "apply", str(site.path), "--no-doctor", "--yes", "--drain", "60")
            with site.place.begin(*words) as command:
                time.sleep(site.chance.uniform(0.3, 5))
                killed += command.poll() is None
                command.kill()
                kind = site.chance.choice([*_GATEWAY, "", "", ""])
                if kind:
                    with contextlib.suppress(psutil.Error, KeyError):
                        site.members()[kind].kill()
                command.wait()
            code, shown = site.apply()
            cut = [each.result() for each in running if not each.result().complete]
        found.judge(code == 0, f"{number}: {code}: {shown[-300:]}")
        if not kind:
            found.judge(not cut, f"{number}: {len(cut)} streams were cut: {cut[:1]}")
        found.judge(site.back(alias) < 10, f"{number}: {alias} is not answered")
        shown = site.stack("ps", "site", "--json")[1]
        found.judge('"current": true' in shown, f"{number}: ps {shown[-600:]}")
    found.figures["apply really killed"] = killed
    return found


# --- keys that are revoked, files that are broken ------------------------------------------------


def revoked(site: Site) -> Found:
    """Revoke a key; its open connections are refused, and streams stay."""
    found = Found()
    seconds: list[float] = []
    site.write()
    site.up()
    asked = json.dumps(chat("a", stream=False)).encode()
    path = (":path", "/v1/chat/completions")
    for number in range(site.times):
        key = f"sk-{number}"
        site.put_keys(f"{_KEYS}dora {key}\n")
        code, shown = site.apply()
        head = f"Authorization: Bearer {key}"
        content = request(head, line="POST /v1/chat/completions HTTP/1.1", body=asked)
        content = content.replace(b"Connection: close\r\n", b"")
        idle = socket.create_connection(("127.0.0.1", site.port), 20)
        idle.sendall(content)
        first = idle.recv(1 << 16)
        busy = Http2(site.port)
        bearer = ("authorization", f"Bearer {key}")
        busy.send(1, [json.dumps(chat("a", tokens=500)).encode()], bearer, path)
        with ThreadPoolExecutor(1) as pool:
            stream = pool.submit(site.ask, chat("a", tokens=200), key=key)
            good = status(first) == 200 and busy.status(1) == 200 and code == 0
            found.judge(good, f"{number}: {code} {first[:60]!r} {shown[-200:]}")
            site.put_keys(_KEYS)
            code, shown = site.apply()
            ended = time.monotonic()
            # on the connections of before: refused, or closed
            idle.settimeout(5)
            answer = b""
            with contextlib.suppress(OSError):
                idle.sendall(content)
                answer = idle.recv(1 << 16)
            found.judge(status(answer) in (0, 401), f"{number}: kept connection: {answer[:80]!r}")
            with contextlib.suppress(OSError):
                busy.send(3, [asked], bearer, path)
            found.judge(busy.status(3) in (0, 401), f"{number}: HTTP/2 of before: {busy.status(3)}")
            while site.ask(chat("a", stream=False), key=key).status != 401:
                if time.monotonic() - ended > 20:
                    break
                time.sleep(0.02)
            seconds.append(time.monotonic() - ended)
            found.judge(seconds[-1] < 1, f"{number}: a new connection after {seconds[-1]:.1f} s")
            found.judge(stream.result().complete, f"{number}: the stream of before was cut")
        idle.close()
        busy.close()
    found.figures["seconds until 401"] = f"{min(seconds):.2f} to {max(seconds):.2f}"
    return found


def kept_after_kills(site: Site, found: Found, name: str, good: Callable[[], object]) -> None:
    """Apply what is refused, and kill processes: what is in force stays."""
    for command, *words in (("apply", "--yes"), ("up",)):
        code, shown = site.stack(command, str(site.path), "--no-doctor", *words)
        refused = code == 2 and "keeps the keys and TLS files" in shown
        found.judge(refused, f"{name}: {command}: {code}: {shown[-300:]}")
    for kind in ("", "haproxy", "process", "haproxy worker"):
        if kind:
            with contextlib.suppress(psutil.Error, KeyError):
                site.members()[kind].kill()
        deadline = time.monotonic() + 10
        while not (kept := good()) and time.monotonic() < deadline:
            time.sleep(0.05)
        found.judge(kept, f"{name}, {kind or 'running'}: no answer with the old ones")


def broken_files(site: Site) -> Found:
    """Break the keys file, and kill processes: the old keys stay."""
    found = Found()
    site.write()
    site.up()
    breaks: dict[str, Callable[[], object]] = {
        "a line": lambda: site.put_keys("alice sk-alice\nbroken\n"),
        "empty": lambda: site.put_keys(""),
        "twice": lambda: site.put_keys("alice sk-alice\nbob sk-alice\n"),
        "bytes": lambda: site.keys.write_bytes(b"alice \xff\n"),
        "mode": lambda: site.keys.chmod(0o644),
        "gone": site.keys.unlink,
    }
    for name, broken in breaks.items():
        broken()
        kept_after_kills(site, found, name, site.answers)
        found.judge(site.ask(path="/v1/models", key="x").status == 401, f"{name}: 401")
        site.put_keys(_KEYS)
        code, shown = site.apply()
        found.judge(code == 0 and site.answers(), f"after {name}: {shown[-300:]}")
    return found


def renewals(site: Site) -> Found:
    """Renew certificate and key under streams; a broken pair changes nothing."""
    found = Found()
    expired = (TOP / "tests" / "data" / "expired.pem").read_bytes()
    tls = certificate_in(site.folder)
    site.write({"tls": {"certificate": "c.pem", "key": "k.pem"}})
    site.up()

    def put(*contents: bytes | None) -> None:
        for path, content in zip((tls.certificate, tls.key), contents, strict=True):
            path.unlink(missing_ok=True)
            if content is not None:
                path.touch(0o600)
                path.write_bytes(content)

    def shown_now() -> bytes:
        with contextlib.suppress(OSError):
            pem = ssl.get_server_certificate(("127.0.0.1", site.port), timeout=20)
            return ssl.PEM_cert_to_DER_cert(pem)
        return b""

    for number in range(site.times):
        old = (tls.certificate.read_bytes(), tls.key.read_bytes())
        trusted = ssl.create_default_context(cadata=old[0].decode())
        other = certificate_in(site.folder / "other")
        new = (other.certificate.read_bytes(), other.key.read_bytes())
        bad = (
            *((old[0], new[1]), (new[0], old[1]), (expired, expired), (b"x", old[1]), (b"", b"")),
            *((None, old[1]), (new[0], None)),
            *((old[0][:200], old[1]), (new[0], new[1][:300]), (new[1], new[1]), (new[0], new[0])),
        )[number % 11]
        kept = http.client.HTTPSConnection("127.0.0.1", site.port, timeout=20, context=trusted)

        def answered(again: http.client.HTTPSConnection = kept) -> int:
            again.request("GET", "/v1/models", headers={"Authorization": f"Bearer {site.key}"})
            answer = again.getresponse()
            return answer.status if answer.read() else 0

        found.judge(answered() == 200, f"{number}: the certificate of before")
        with ThreadPoolExecutor(8) as pool:
            asked = chat("a", tokens=400)
            running = [pool.submit(site.ask, asked, tls=trusted) for _ in range(8)]
            time.sleep(1)
            put(*bad)
            code, shown = site.apply()
            good = code == 2 and "keeps the keys and TLS files" in shown
            found.judge(good, f"{number}, not a pair: {code}: {shown[-300:]}")
            same = shown_now() == ssl.PEM_cert_to_DER_cert(old[0].decode())
            found.judge(same, f"{number}: another certificate than that of before")
            put(*new)
            code, shown = site.apply()
            ended = time.monotonic()
            wanted = ssl.PEM_cert_to_DER_cert(new[0].decode())
            while shown_now() != wanted and time.monotonic() - ended < 5:
                time.sleep(0.02)
            seconds = time.monotonic() - ended
            found.judge(code == 0 and seconds < 1, f"{number}: {code}, {seconds:.1f} s: {shown}")
            # on the connection of before: served, or closed
            answer = 0
            with contextlib.suppress(OSError, http.client.HTTPException):
                answer = answered()
            found.judge(answer in (0, 200), f"{number}: kept connection: {answer}")
            kept.close()
            cut = [each.result() for each in running if not each.result().complete]
        found.tried += len(running)
        found.wrong += [f"{number}: a stream was cut: {each}"[:300] for each in cut]
        if number % 3 == 0:
            trusted = ssl.create_default_context(cadata=new[0].decode())
            put(*bad)
            kept_after_kills(site, found, f"{number}", partial(site.answers, tls=trusted))
            put(*new)
            code, shown = site.apply()
            found.judge(code == 0 and "nothing was changed" in shown, f"{number}: {shown[-300:]}")
    return found


# --- other stacks --------------------------------------------------------------------------------


def second_stack(site: Site) -> Found:
    """Start a stack on the same address, or with line breaks: refused."""
    found = Found()
    site.write()
    site.up()
    other = site.folder / "other.yaml"
    document = json.loads(site.path.read_text(encoding="utf-8"))
    others: dict[str, dict[str, object]] = {
        "the same port": {"name": "other"},
        "the same name": {},
        "host": {"name": "o", "gateway": {"host": "127.0.0.1\nbind *:1", "port": unused_port()}},
        "stack": {"name": "o\nx"},
        "model": {"name": "o", "models": [{**document["models"][0], "name": "a\nb"}]},
        "another address, same port": {
            "name": "o", "gateway": {**document["gateway"], "host": "0.0.0.0"},
        },
    }  # fmt: skip
    for name, change in others.items():
        other.write_text(json.dumps({**document, **change}), encoding="utf-8")
        before = [site.members()[kind].pid for kind in _GATEWAY]
        code, shown = site.stack("up", str(other), "--no-doctor")
        if name == "the same name":
            found.judge(code == 0 and "answer" in shown, f"{name}: {code}: {shown[-300:]}")
        else:
            good = code in (2, 3) and "line" in shown and "Traceback" not in shown
            found.judge(good, f"{name}: {code}: {shown[-300:]}")
        same = [site.members()[kind].pid for kind in _GATEWAY] == before
        found.judge(same and site.answers(), f"{name}: the first stack")
    return found


CASES: dict[str, Callable[[Site], Found]] = {
    case.__name__: case
    for case in (
        *(header_forms, smuggling, sizes, names, slow_clients, limits, own_answers, kills),
        *(engine_killed, changes, apply_killed, revoked, broken_files, renewals, second_stack),
    )
}


def main() -> int:
    words = sys.argv[1:]
    times = int(words[0]) if words else 20
    seed = int(words[1]) if len(words) > 1 else random.randrange(1 << 30)
    report: dict[str, object] = {"times": times, "seed": seed}
    failed = False
    for name in words[2:] or CASES:
        with tempfile.TemporaryDirectory(prefix="gaudi-launch-gateway-") as folder:
            site = Site(Path(folder), random.Random(seed), times)
            began = time.monotonic()
            try:
                found = CASES[name](site)
            finally:
                site.down()
            left = site.place.left()
            if left:
                found.wrong.append(f"left: {left}")
        failed = failed or bool(found.wrong)
        shown: dict[str, object] = {
            "tried": found.tried, "failed": len(found.wrong), "wrong": found.wrong[:5],
            "seconds": round(time.monotonic() - began), **found.figures,
        }  # fmt: skip
        report[name] = shown
        print(json.dumps({name: shown}), file=sys.stderr, flush=True)
    print(json.dumps(report, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
