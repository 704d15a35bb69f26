"""A gateway as a service: real processes, engines that die, keys, limits and new settings."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from gaudi_launch.core.launch import waiting
from gaudi_launch.core.launch.report import Silent
from gaudi_launch.core.launch.stop import end, restart
from gaudi_launch.core.services.state import store
from gaudi_launch.core.services.state.chosen import find
from gaudi_launch.extensions.stack.gateway import gateway_job as gateway
from gaudi_launch.extensions.stack.gateway import running as running_gateway
from gaudi_launch.extensions.stack.gateway.gateway_job import is_current
from gaudi_launch.extensions.stack.gateway.gateway_settings import (
    Backend,
    GatewaySettings,
    RequestLimits,
)
from tests.support.gateways import (
    KEYS,
    Answered,
    FakeEngine,
    backend,
    call,
    certificate_in,
    chat,
    engines,
    gateway_engines,
    keys_file,
    many,
    members_of,
    running,
)
from tests.support.places import TOP
from tests.support.refusals import raising
from tests.support.service_record import service
from tests.support.waiting import GENEROUS, until, unused_port

__all__ = ["gateway_engines"]

pytestmark = pytest.mark.usefixtures("plain_english")

_IDLE = 'haproxy_backend_current_sessions{proxy="model1-p"} 0'


@dataclass(frozen=True)
class Site:
    """A gateway with keys: model a on two engines, model b on one."""

    port: int
    first: FakeEngine
    second: FakeEngine
    third: FakeEngine

    def ask(self, document: object, **more: object) -> Answered:
        return call(self.port, document, **{"key": "sk-alice", **more})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def site(gateway_engines: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    limited = {"bob": RequestLimits(requests_per_minute=4, concurrent=2)}
    settings = GatewaySettings(
        port=unused_port(),
        keys_file=keys_file(folder, f"{KEYS}carol a,b,,c\n"),
        user_limits=limited,
        body_mib=2,
    )
    with (
        pytest.MonkeyPatch.context() as environment,
        engines("aps", "aps", ["b", "org/b"]) as found,
    ):
        environment.setenv("XDG_STATE_HOME", str(folder))
        first, second, third = found
        backends = [
            backend("a", first, second),
            backend("p", first, second, balance="prefix"),
            backend("b", third, aliases=("org/b",)),
        ]
        with running("site", backends, settings, gateway_engines) as port:
            yield Site(port, first, second, third)


def nested(levels: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for _ in range(levels):
        found = {"in": found}
    return found


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ('{"model": "b", "prompt": "x", "max_tokens": 1}', 200),
        ('{"prompt": "x", "max_tokens": 1, "model": "org/b"}', 200),
        # PHP escapes the slash, and others letters
        (r'{"prompt": "x", "max_tokens": 1, "model": "org\/b"}', 200),
        (r'{"prompt": "x", "max_tokens": 1, "mod\u0065l": "\u0062"}', 200),
        # texts that look like the field
        (r'{"prompt": "\", \"model\": \"a\"", "max_tokens": 1, "model": "b"}', 200),
        (r'{"prompt": "ends with \\", "meta": {"model": "a"}, "max_tokens": 1, "model": "b"}', 200),
        ('{"prompt": ["model", "a"], "max_tokens": 1, "model": "b"}', 200),
        # of two, the last one counts, as for the engine
        ('{"model": "a", "prompt": "x", "max_tokens": 1, "model": "b"}', 200),
        ('{"model": "b", "prompt": "x", "max_tokens": 1, "model": "a"}', 200),
        (json.dumps({"tools": nested(60), "prompt": "x", "max_tokens": 1, "model": "b"}), 200),
        (' \n{ "model" : "b" , "prompt":"提示\\n", "max_tokens":1 } ', 200),
        ('{"model": "nobody", "prompt": "x"}', 404),
        ('{"model": "a\\nmodel0-a", "prompt": "x"}', 404),
        ('{"prompt": "x"}', 400),
        ('{"model": 7, "prompt": "x"}', 400),
        ('{"model": "b", "model": null}', 400),
        ('{"model": "b", "prompt": "x"', 400),
        ('["model", "b"]', 400),
        ("model=b", 400),
    ],
)
def test_the_model_of_the_body_decides(site: Site, body: str, status: int) -> None:
    # an engine answers 404 for another one's model
    answered = site.ask(None, raw=body.encode(), path="/v1/completions")
    assert (answered.status, answered.error) == (status, "")


def test_a_form_is_routed_by_its_field(site: Site) -> None:
    parts = (
        '--xyz\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
        'name="model"\r\n\r\na\r\n'
        '--xyz\r\nContent-Disposition: form-data; name="model"\r\n\r\nnobody\r\n--xyz--\r\n'
    )
    kind = {"Content-Type": "multipart/form-data; boundary=xyz"}
    answered = site.ask(None, raw=parts.encode(), path="/v1/audio/transcriptions", headers=kind)
    assert (answered.status, answered.document["error"]["code"]) == (404, "model")


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/v1/completions", {"prompt": "x", "max_tokens": 1}),
        ("/v1/embeddings", {"input": "x"}),
        ("/v1/rerank", {"query": "q", "documents": ["d"]}),
        ("/rerank", {"query": "q", "documents": ["d"]}),
        ("/score", {"text_1": "q", "text_2": "d"}),
        ("/pooling", {"input": "x"}),
    ],
)
def test_every_kind_of_model_has_its_paths(
    site: Site, path: str, document: dict[str, object]
) -> None:
    assert site.ask({**document, "model": "b"}, path=path).status == 200


@pytest.mark.parametrize(
    "path", ["/sleep", "/v1/load_lora_adapter", "/collective_rpc", "/fake", "/v1/models/x"]
)
def test_no_other_path_reaches_an_engine(site: Site, path: str) -> None:
    before = [engine.seen()["requests"] for engine in (site.first, site.second, site.third)]
    assert site.ask(chat("b"), path=path).status == 404
    assert [engine.seen()["requests"] for engine in (site.first, site.second, site.third)] == before


def test_a_prompt_of_a_megabyte_arrives_unchanged_and_a_larger_one_is_refused(site: Site) -> None:
    assert site.ask(chat("b", "a " * 500_000, tokens=1)).complete
    assert site.third.seen()["largest"] > 1_000_000
    largest = site.third.seen()["largest"]
    # it is refused while the body still comes: the connection may end before the answer is read
    assert site.ask(chat("b", "a " * 1_100_000)).status in (413, 0)
    assert site.third.seen()["largest"] == largest


@pytest.mark.parametrize("size", [1_000, 200_000])
def test_requests_of_every_size_have_the_same_rules(site: Site, size: int) -> None:
    text = "a " * (size // 2)
    assert site.ask(chat("b", text, tokens=1)).complete
    assert site.ask(chat("nobody", text)).status == 404
    assert site.ask(chat("b", text), key="wrong").status == 401
    assert site.ask(chat("a", text, user="drop")).status == 502
    assert site.ask(None, raw=b'{"prompt": "' + b"a" * size).status == 400
    headers = site.third.seen()["headers"]
    assert not [each for each in headers if "authorization" in each or "x-gaudi-user" in each]


def test_a_request_of_unknown_length_is_routed(site: Site) -> None:
    pieces = [b'{"prompt": "', b"a " * 20_000, b'", "max_tokens": 1, "model": "b"}']
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
    connection.request(
        "POST",
        "/v1/completions",
        iter(pieces),
        {"Authorization": "Bearer sk-alice"},
        encode_chunked=True,
    )
    assert connection.getresponse().status == 200
    connection.close()


def test_tokens_come_one_by_one(site: Site) -> None:
    answered = site.ask(chat("b", tokens=10))
    # 10 tokens, 20 ms apart
    assert answered.stamps[-1] - answered.stamps[0] > 0.15
    assert len(answered.stamps) >= 8


def test_a_key_is_needed_and_never_reaches_an_engine(site: Site) -> None:
    assert [
        site.ask(chat("b", tokens=1), key=key).status
        for key in (None, "wrong", "sk-alice ", "alice")
    ] == [401, 401, 200, 401]
    assert site.ask(chat("b", tokens=1), key=None, headers={"x-api-key": "sk-alice"}).status == 200
    assert site.ask(None, key=None, path="/v1/models").status == 401
    headers = site.third.seen()["headers"]
    assert headers
    assert not [each for each in headers if "authorization" in each or "x-api-key" in each]
    assert "sk-alice" not in json.dumps(headers)


def test_a_user_above_the_limits_waits_and_others_do_not(site: Site) -> None:
    slow = [chat("a", tokens=25) for _ in range(3)]
    at_once = many(site.port, slow, at_once=3, key="sk-bob")
    assert sorted(answered.status for answered in at_once) == [200, 200, 429]
    rest = [call(site.port, chat("b", tokens=1), key="sk-bob") for _ in range(4)]
    assert [answered.status for answered in rest] == [200, 429, 429, 429]
    assert rest[-1].headers["retry-after"] == "10"
    assert site.ask(chat("b", tokens=1)).status == 200


def test_an_engine_with_fewer_requests_gets_the_next_one(site: Site) -> None:
    before = [engine.seen()["requests"] for engine in (site.first, site.second)]
    answers = many(site.port, [chat("a", tokens=10) for _ in range(20)], at_once=4, key="sk-alice")
    assert all(answered.complete for answered in answers)
    after = [engine.seen()["requests"] for engine in (site.first, site.second)]
    assert [new - old for new, old in zip(after, before, strict=True)] == [10, 10]


def test_the_turns_of_a_conversation_stay_on_an_engine(site: Site) -> None:
    system = {"role": "system", "content": "You are helpful. " * 400}
    for number in range(6):
        messages = [system, {"role": "user", "content": f"conversation {number} of the test"}]
        where = []
        for turn in range(4):
            before = site.first.seen()["requests"]
            assert site.ask(
                {"model": "p", "messages": messages, "max_tokens": 1, "stream": True}
            ).complete
            where.append(site.first.seen()["requests"] - before)
            # one that HAProxy still counts would be half of the load
            until(
                lambda: _IDLE in call(site.port, path="/metrics").body.decode(),
                "no request of the model",
            )
            messages = [
                *messages,
                {"role": "assistant", "content": "w0"},
                {"role": "user", "content": f"turn {turn}"},
            ]
        assert len(set(where)) == 1


def test_a_failure_before_the_first_byte_is_tried_elsewhere_and_one_after_it_is_not(
    site: Site,
) -> None:
    assert site.ask(chat("a", user="drop")).status == 502
    before = [engine.seen()["requests"] for engine in (site.first, site.second)]
    broken = site.ask(chat("a", user="die:3"))
    assert broken.begun
    assert not broken.complete
    after = [engine.seen()["requests"] for engine in (site.first, site.second)]
    assert sum(after) - sum(before) == 1


def test_metrics_name_models_and_no_user(site: Site) -> None:
    page = call(site.port, path="/metrics").body.decode()
    assert 'haproxy_backend_http_responses_total{proxy="model2-b",code="2xx"}' in page
    assert "alice" not in page


@pytest.fixture
def pair() -> Iterator[list[FakeEngine]]:
    with engines("a", "a") as found:
        yield found


@pytest.mark.parametrize("prefill", [0.0, 0.1])
def test_requests_survive_an_engine_that_is_killed(prefill: float, gateway_engines: Path) -> None:
    settings = GatewaySettings(port=unused_port())
    with (
        engines("a", "a", first=prefill) as (first, second),
        running("gw", [backend("a", first, second)], settings, gateway_engines) as port,
    ):
        done: list[Answered] = []

        def one(number: int) -> None:
            done.append(call(port, chat("a", f"request {number}", tokens=5)))
            if len(done) == 60:
                first.kill()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(one, range(200)))
        assert len(done) == 200
        # what had begun to stream on the killed engine is cut, and nothing else
        failed = [answered for answered in done if not answered.complete]
        assert [answered for answered in failed if not answered.begun] == []
        assert len(failed) <= 8
        first.start()
        until(
            lambda: call(port, chat("a", tokens=1)).complete and first.seen()["requests"],
            "used again",
            20,
        )


def test_whatever_of_a_gateway_is_killed_the_newest_settings_are_served_again(
    pair: list[FakeEngine], gateway_engines: Path
) -> None:
    settings = GatewaySettings(port=unused_port())
    first, second = pair
    with running("gw", [backend("a", first)], settings, gateway_engines) as port:
        gateway.renew("gw", [backend("a", second, aliases=("x",))], settings)
        first.kill()
        # twice the same, at once and a moment later: no pause gets longer
        for kind in ("haproxy", "haproxy worker", "large", "large worker", "process", "process"):
            members_of("gw")[kind].kill()
            began = time.monotonic()
            until(lambda: call(port, chat("x", tokens=1)).status == 404, "an engine's answer")
            until(lambda: is_current("gw"), "the newest settings")
            assert call(port, chat("a", "a " * 100_000, tokens=1)).complete
            # a second of the launcher, and what a machine with other work adds
            assert time.monotonic() - began < 10
        assert find("gw").state["restarts"] == 2
        restart("gw", 0, Silent())
        waiting.until_ready("gw", 60)
        until(lambda: call(port, chat("a", tokens=1)).complete, "an answer")
        family = [*members_of("gw").values()]
    assert [each for each in family if each.is_running() and each.status() != "zombie"] == []


def test_new_settings_end_no_request(
    pair: list[FakeEngine],
    gateway_engines: Path,
    monkeypatch: pytest.MonkeyPatch,
    own_folders: Path,
) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(gateway_engines))
    first, second = pair
    keys = keys_file(own_folders)
    settings = GatewaySettings(port=unused_port(), keys_file=keys)
    with running("gw", [backend("a", first)], settings, gateway_engines) as port:
        assert call(port, chat("x", tokens=1), key="sk-alice").status == 404
        with ThreadPoolExecutor(5) as pool:
            long = [
                pool.submit(call, port, chat("a", tokens=600), key="sk-alice") for _ in range(4)
            ]
            until(lambda: first.seen()["running"] == 4, "4 requests")
            keys_file(own_folders, "alice sk-alice\ncarol sk-carol\n")
            renewed = pool.submit(
                gateway.renew,
                *("gw", [backend("a", first, aliases=("x",)), backend("y", second)], settings),
            )
            # HAProxy's masters close their sockets while they take the settings
            counts = Counter[int]()
            while not renewed.done():
                found = running_gateway.routed_engines("gw").values()
                counts[sum(each.requests for each in found)] += 1
            renewed.result()
            assert set(counts) == {4}
            statuses = [
                call(port, chat("a", tokens=1), key=key).status for key in ("sk-carol", "sk-bob")
            ]
            assert statuses == [200, 401]
            assert first.seen()["running"] == 4
            # a stream longer than the stop of a gateway takes
            assert [each.result().complete for each in long] == [True] * 4
        names = [
            entry["id"] for entry in call(port, path="/v1/models", key="sk-carol").document["data"]
        ]
        assert names == ["a", "x", "y"]
        with raising("gateway.other_address"):
            gateway.renew("gw", [backend("a", first)], GatewaySettings(port=1))


def test_a_model_that_is_starting_is_listed_and_refused_with_the_time_left(
    pair: list[FakeEngine], gateway_engines: Path, own_folders: Path
) -> None:
    starting = Backend("b", {f"http://127.0.0.1:{unused_port()}": "b-0"})
    down = Backend("c", {f"http://127.0.0.1:{unused_port()}": ""})
    settings = GatewaySettings(port=unused_port())
    with (
        service("b-0", next(iter(starting.replicas)), phase="warmup_decode") as folder,
        running("gw", [backend("a", *pair)], settings, gateway_engines) as port,
        pytest.MonkeyPatch.context() as environment,
    ):
        environment.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(gateway_engines))
        state = store.read(folder, "state.json") or {}
        store.write(folder, "state.json", {**state, "left_seconds": 125.5})
        gateway.renew("gw", [backend("a", *pair), starting, down], settings)
        until(lambda: len(call(port, path="/v1/models").document["data"]) == 3, "three models")
        until(lambda: call(port, chat("b")).headers.get("retry-after") == "126", "the time left")
        listed = call(port, path="/v1/models").document["data"]
        assert [(each["id"], each["state"], each["left_seconds"]) for each in listed] == [
            ("a", "ready", None),
            ("b", "warmup_decode", 125.5),
            ("c", "down", None),
        ]
        assert call(port, path="/v1/models/b").document["replicas_ready"] == 0
        refused = call(port, chat("b"))
        assert (refused.status, refused.document["error"]["code"]) == (503, "model_not_ready")
        assert refused.document["error"]["message"] == (
            "The model b is starting (warmup_decode), about 126 s are left. Try again then."
        )
        # HAProxy itself answers with 5 s while a reload of a busy machine lasts
        until(
            lambda: call(port, chat("c")).headers["retry-after"] == "30", "the model that is down"
        )


def test_clients_speak_tls_and_a_renewed_certificate_is_taken(
    pair: list[FakeEngine], gateway_engines: Path, tmp_path: Path
) -> None:
    tls = certificate_in(tmp_path)
    settings = GatewaySettings(port=unused_port(), tls=tls)
    context = ssl.create_default_context(cafile=str(tls.certificate))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(gateway_engines))
        gateway.start("gw", [backend("a", *pair)], settings)
        try:
            waiting.until_ready("gw", 60)
            until(
                lambda: call(settings.port, chat("a"), tls=context).complete, "an answer over TLS"
            )
            assert call(settings.port, chat("a")).status in (0, 400)
            assert is_current("gw")
            certificate_in(tmp_path)
            assert not is_current("gw")
            gateway.renew("gw", [backend("a", *pair)], settings)
            assert call(settings.port, chat("a"), tls=context).status == 0
            renewed = ssl.create_default_context(cafile=str(tls.certificate))
            assert call(settings.port, chat("a"), tls=renewed).complete
        finally:
            end(find("gw"), 0, Silent())


def sent(port: int, head: str, pieces: Iterable[bytes]) -> bytes:
    """Send a request as it is, without an end; return the first line of the answer."""
    with socket.create_connection(("127.0.0.1", port), GENEROUS) as connection:
        # it is refused while the body still comes
        with contextlib.suppress(OSError):
            connection.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode())
            for piece in pieces:
                connection.sendall(piece)
        return connection.recv(64).partition(b"\r\n")[0]


LONG_HEAD = "".join(f"X-{number}: {'a' * 1000}\r\n" for number in range(60))


@pytest.mark.parametrize("head", ["", LONG_HEAD])
@pytest.mark.parametrize(
    "length",
    [2**21 + 1, 2**31, 2**31 + 100, 2**32, 2**32 + 64, 2**33 + 5, 2**53, 2**63 - 1, 2**64 - 1],
)
def test_no_length_lets_a_body_pass_the_limit(site: Site, length: int, head: str) -> None:
    before = site.third.seen()["received"]
    body = (b" " * 65536 for _ in range(48))
    key = "Authorization: Bearer sk-alice\r\n"
    found = sent(site.port, f"{key}{head}Content-Length: {length}\r\n", [b'{"model":"b"}', *body])
    assert found == b"HTTP/1.1 413 Request Entity Too Large"
    assert site.third.seen()["received"] == before


@pytest.mark.parametrize("head", ["", LONG_HEAD])
@pytest.mark.parametrize("size", [7, 100, 65536, 300_000])
def test_a_body_of_unknown_length_ends_at_the_limit(site: Site, size: int, head: str) -> None:
    before = site.third.seen()["received"]
    chunk = b"%x\r\n%s\r\n" % (size, b" " * size)
    piece = chunk * max(1, 65536 // len(chunk))
    pieces = [b'd\r\n{"model":"b"}\r\n', *([piece] * (6 * 2**20 // len(piece)))]
    key = "Authorization: Bearer sk-alice\r\n"
    found = sent(site.port, f"{key}{head}Transfer-Encoding: chunked\r\n", pieces)
    assert found == b"HTTP/1.1 413 Request Entity Too Large"
    assert site.third.seen()["received"] == before


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Authorization: bearer sk-alice", 200),
        ("AUTHORIZATION: BEARER   sk-alice", 200),
        ("Authorization: Bearer a,b,,c", 200),
        ("X-API-Key: a,b,,c", 200),
        ("Authorization: Bearer a", 401),
        ("Authorization: Bearer x, sk-alice", 401),
        ("Authorization: Bearer sk-alice,", 401),
        ("Authorization: Bearer x\r\nx-api-key: sk-alice", 401),
        ("x-gaudi-user: alice", 401),
    ],
)
def test_a_key_has_one_form(site: Site, header: str, status: int) -> None:
    body = json.dumps({"model": "b", "prompt": "x", "max_tokens": 1}).encode()
    found = sent(site.port, f"{header}\r\nContent-Length: {len(body)}\r\n", [body])
    assert int(found.split()[1]) == status


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("HEAD", "/v1/models", 200),
        ("HEAD", "/v1/models/b", 200),
        ("HEAD", "/v1/models/none", 404),
        ("HEAD", "/v1/chat/completions", 404),
        ("PUT", "/v1/models", 404),
    ],
)
def test_every_method_is_answered_in_the_same_form(
    site: Site, method: str, path: str, status: int
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=GENEROUS)
    connection.request(method, path, headers={"Authorization": "Bearer sk-alice"})
    response = connection.getresponse()
    kind, body = response.getheader("content-type"), response.read()
    connection.close()
    assert (response.status, kind) == (status, "application/json")
    if method == "HEAD":
        assert body == b""
    else:
        assert set(json.loads(body)["error"]) == {"message", "type", "code"}


@contextlib.contextmanager
def held(port: int, count: int, source: str = "127.0.0.1") -> Iterator[None]:
    """Hold connections that have sent the beginning of a request."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            with contextlib.suppress(OSError):
                connection = socket.create_connection(
                    ("127.0.0.1", port), GENEROUS, source_address=(source, 0)
                )
                stack.enter_context(connection)
                connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHo")
        yield


def status_from(port: int, source: str, forwarded: str = "", tokens: int = 1) -> int:
    """Return the status of a streamed chat from a loopback address; 0 for no answer."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", port, timeout=GENEROUS, source_address=(source, 0)
    )
    headers = {"X-Forwarded-For": forwarded} if forwarded else {}
    try:
        body = json.dumps(chat("a", tokens=tokens))
        connection.request("POST", "/v1/chat/completions", body, headers)
        response = connection.getresponse()
        response.read()
        return response.status
    except OSError:
        return 0
    finally:
        connection.close()


def test_no_address_has_all_connections(pair: list[FakeEngine], gateway_engines: Path) -> None:
    settings = GatewaySettings(
        port=unused_port(), connections=20, trusted_proxies=("127.0.0.8/31",)
    )
    with running("gw", [backend("a", *pair)], settings, gateway_engines) as port:
        with held(port, 30):
            assert (status_from(port, "127.0.0.2"), status_from(port, "127.0.0.1")) == (200, 0)
            # what a client says about its address counts only from a proxy
            assert status_from(port, "127.0.0.1", "10.0.0.9") == 0
        with held(port, 15, "127.0.0.9"):
            assert status_from(port, "127.0.0.9", "10.0.0.1") == 200

        def many_from(forwarded: str, count: int) -> Counter[int]:
            with ThreadPoolExecutor(count) as pool:
                tasks = [
                    pool.submit(status_from, port, "127.0.0.9", forwarded, 50) for _ in range(count)
                ]
                return Counter(task.result() for task in tasks)

        # the last address of the header is the one that the proxy has seen
        assert many_from("10.0.0.2, 10.0.0.1", 13) == {200: 10, 429: 3}
        assert status_from(port, "127.0.0.9", "10.0.0.2") == 200


def test_files_of_users_are_only_theirs(
    pair: list[FakeEngine], gateway_engines: Path, own_folders: Path
) -> None:
    settings = GatewaySettings(port=unused_port(), keys_file=keys_file(own_folders))
    with running("gw", [backend("a", *pair)], settings, gateway_engines):
        folder = store.service_dir("gw")
        wrong = []
        for path in folder.rglob("*"):
            if path.is_file() and "sk-alice" in path.read_text(encoding="utf-8", errors="replace"):
                wrong.append(path)
        assert wrong == []
        assert stat.S_IMODE((folder / "gateway" / "users.map").stat().st_mode) == 0o600
        assert stat.S_IMODE((folder / "gateway" / "answerer.sock").stat().st_mode) == 0o600
        arguments = Counter(
            word
            for process in psutil.process_iter(["cmdline"])
            for word in process.info["cmdline"] or ()
        )
        assert [word for word in arguments if "sk-alice" in word] == []


def test_the_short_form_of_the_acceptance_fails_no_request(
    gateway_engines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(gateway_engines))
    script = TOP / "scripts" / "acceptance" / "gateway.py"
    words = [sys.executable, str(script), "--short", "--runs", "1", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=GENEROUS)
    document = json.loads(done.stdout)
    # the other tests of the run disturb its times, which the script itself judges
    assert (document["overhead"]["failed"], document["killed"]["failed_before_stream"]) == (0, 0)
    assert document["killed"]["complete"] >= 60 - 8
    assert document["overhead"]["runs"][0]["gateway"]["tokens_per_second"] > 0
