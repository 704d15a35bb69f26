"""A hub on this machine that speaks both protocols, as far as the clients ask.

And can misbehave on demand.
"""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import parse_qs, unquote, urlparse

from tests.support.waiting import GENEROUS

REVISION = "a" * 40


@dataclass
class Hub:
    """Serves ``files`` as the repository ``repo``, others by their names.

    ``others`` and ``datasets`` are further repositories. ``trouble`` is one of "", ``busy``,
    ``always_busy``, ``cut``, ``lie``, ``lie_once``, ``hang``, ``gated``, ``token``,
    ``stay`` (a large file comes to three quarters, the rest when ``go`` is set); ``asked`` records
    downloads as (path, Range), ``tokens`` their credentials.
    """

    files: dict[str, bytes]
    repo: str = "me/small"
    trouble: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    others: dict[str, dict[str, bytes]] = field(default_factory=dict)
    datasets: dict[str, dict[str, bytes]] = field(default_factory=dict)
    go: threading.Event = field(default_factory=threading.Event)
    troubled: int = 0

    def __enter__(self) -> Hub:
        self._server = HubServer(self)
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.go.set()
        self._server.shutdown()
        self._server.server_close()

    def environment(self) -> dict[str, str]:
        return {
            "HF_ENDPOINT": self.url,
            "HF_HUB_OFFLINE": "0",
            "MODELSCOPE_DOMAIN": self.url,
            "MODELSCOPE_ENDPOINT": self.url,
        }


class HubServer(ThreadingHTTPServer):
    """A server on a free port of this machine; ``hub`` has what it serves."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.hub = hub


class Handler(BaseHTTPRequestHandler):
    """Answers as both hubs do, with the trouble set for its hub."""

    protocol_version = "HTTP/1.1"
    server: HubServer

    @property
    def hub(self) -> Hub:
        return self.server.hub

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        url = urlparse(self.path)
        path, query = unquote(url.path), parse_qs(url.query)
        is_dataset = path.startswith(("/datasets/", "/api/datasets/", "/api/v1/datasets/"))
        known = (
            self.hub.datasets if is_dataset else {**self.hub.others, self.hub.repo: self.hub.files}
        )
        self.repo = next((name for name in known if f"/{name}/" in f"{path}/"), "no/body")
        self.files = known.get(self.repo, {})
        self.kind = "datasets" if is_dataset else "models"
        if self.hub.trouble == "gated":
            return self.give({"error": "gated"}, 403, {"X-Error-Code": "GatedRepo"})
        if self.hub.trouble == "token":
            refused = "Invalid credentials in Authorization header"
            return self.give({"error": refused}, 401, {"X-Error-Message": refused})
        if path.startswith("/api/v1/"):
            return self.modelscope(path.removeprefix("/api/v1/"), query)
        return self.hugging_face(path)

    def hugging_face(self, path: str) -> None:
        if path.startswith(f"/api/{self.kind}/{self.repo}"):
            rest = path.removeprefix(f"/api/{self.kind}/{self.repo}").strip("/").split("/")
            if rest[0] == "tree":
                return self.give([self.entry(name) for name in self.files])
            if rest[0] == "revision" and rest[1] not in ("main", REVISION):
                return self.give({"error": "no"}, 404, {"X-Error-Code": "RevisionNotFound"})
            siblings = [{"rfilename": name} for name in self.files]
            return self.give(
                {"id": self.repo, "sha": REVISION, "siblings": siblings, "private": False}
            )
        begin = (
            f"/datasets/{self.repo}/resolve/"
            if self.kind == "datasets"
            else f"/{self.repo}/resolve/"
        )
        if path.startswith(begin):
            name = path.removeprefix(begin).split("/", 1)[1]
            if name in self.files:
                return self.content(name)
        return self.give({"error": "no"}, 404, {"X-Error-Code": "RepoNotFound"})

    def entry(self, name: str) -> dict[str, object]:
        content = self.files[name]
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        entry: dict[str, object] = {"type": "file", "path": name, "size": len(content), "oid": blob}
        if name.endswith(".safetensors"):
            sha256 = hashlib.sha256(content).hexdigest()
            entry["lfs"] = {"oid": sha256, "size": len(content), "pointerSize": 130}
        return entry

    def modelscope(self, path: str, query: dict[str, list[str]]) -> None:
        if path == f"{self.kind}/{self.repo}/repo/{'tree' if self.kind == 'datasets' else 'files'}":
            rows = [
                {
                    "Name": name.rsplit("/", 1)[-1],
                    "Path": name,
                    "Type": "blob",
                    "Size": len(content),
                    "Revision": REVISION,
                    "Sha256": hashlib.sha256(content).hexdigest(),
                }
                for name, content in self.files.items()
            ]
            folders = sorted({name.rpartition("/")[0] for name in self.files} - {""})
            rows += [
                {"Name": folder, "Path": folder, "Type": "tree", "Size": 0} for folder in folders
            ]
            return self.give({"Code": 200, "Success": True, "Data": {"Files": rows}})
        name = query.get("FilePath", [""])[0]
        if path == f"{self.kind}/{self.repo}/repo" and name in self.files:
            return self.content(name)
        return self.give({"Code": 404, "Success": False, "Message": "not found"}, 404)

    def content(self, name: str) -> None:
        """Send a file or the requested range of it."""
        content = self.files[name]
        asked = self.headers.get("Range", "")
        if self.command == "GET":
            self.hub.asked.append((name, asked))
            self.hub.tokens.add(self.headers.get("Authorization", ""))
            if self.busy():
                return self.give({"error": "wait"}, 429, {"Retry-After": "1"})
            if self.hub.trouble == "hang":
                self.hub.go.wait(GENEROUS)
            if self.lies():
                content = bytes(len(content))
        begin, end = _range(asked, len(content))
        body = content[begin:end]
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{hashlib.sha256(self.files[name]).hexdigest()}"')
        self.send_header("X-Repo-Commit", REVISION)
        if asked:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(content)}")
        self.end_headers()
        if self.command != "HEAD":
            self.send_body(body)

    def busy(self) -> bool:
        """Return True for a download that has to wait: each one, or the first two."""
        if self.hub.trouble == "always_busy":
            return True
        if self.hub.trouble != "busy" or self.hub.troubled >= 2:
            return False
        self.hub.troubled += 1
        return True

    def lies(self) -> bool:
        """Return True for a download that gets wrong bytes: each one, or the first."""
        if self.hub.trouble == "lie":
            return True
        if self.hub.trouble != "lie_once" or self.hub.troubled:
            return False
        self.hub.troubled += 1
        return True

    def send_body(self, body: bytes) -> None:
        """Send the content, cut off once or with a pause where requested."""
        if self.hub.trouble == "cut" and len(body) > 1000 and self.hub.troubled < 1:
            self.hub.troubled += 1
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            # closed alone it stays open for our own files of it, and the client waits out its
            # minute
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        if self.hub.trouble == "stay" and len(body) > 1 << 17:
            self.wfile.write(body[: len(body) * 3 // 4])
            self.hub.go.wait(GENEROUS)
            body = body[len(body) * 3 // 4 :]
        self.wfile.write(body)

    def give(
        self, document: object, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _range(asked: str, size: int) -> tuple[int, int]:
    """Return begin and end of the requested bytes."""
    if not asked.startswith("bytes="):
        return 0, size
    first, _, last = asked.removeprefix("bytes=").partition("-")
    return int(first), int(last) + 1 if last else size
