"""Files of a gateway: HAProxy's configuration, its maps, the answerer's settings.

Pure: records in, texts by file name out. Directives: HAProxy 2.8 configuration manual.

A request is kept in one buffer, to find its model and to send it to another engine. HAProxy copies
the complete buffer for that, however short the request is (measured: docs/decisions/gateway.md).
Therefore two processes: the first has the address, keys and limits, and small buffers; it passes
requests above 112 KiB to the second one, which has large buffers.

vLLM sends the head of a stream before its first token, and HAProxy sends no request again once it
has a head. Therefore each process passes a request through itself: the inner part waits for the
first byte of the body, and answers 502 where the engine ends before it; the outer part sends the
request again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.base.reader import standalone
from gaudi_launch.core.base.server_address import in_url
from gaudi_launch.core.render.gateway import GatewayFiles
from gaudi_launch.extensions.stack.gateway.gateway_settings import (
    SMALL_BYTES,
    Backend,
    GatewaySettings,
    RequestLimits,
    check_backends,
)

CONFIG = "haproxy.cfg"
LARGE_CONFIG = "large.cfg"
LARGE_SOCKET = "large.sock"
INNER_SOCKET = "inner.sock"
LARGE_INNER_SOCKET = "large-inner.sock"
MODELS_MAP = "models.map"
USERS_MAP = "users.map"
RATES_MAP = "rates.map"
CONCURRENT_MAP = "concurrent.map"
# the sockets on which each HAProxy answers questions (runtime/gateway_process.py, Children)
MASTERS = (f"{CONFIG}.sock", f"{LARGE_CONFIG}.sock")
ANSWERER = "gateway.json"
ANSWERER_SOCKET = "answerer.sock"

RUNTIME = Path(__file__).parent / "runtime"
PROCESS = RUNTIME / "gateway_process.py"
ROUTE = RUNTIME / "route.lua"

# OpenAI's and vLLM's paths whose request names a model; no other path reaches an engine
# (vllm-project/vllm 0.32.0:vllm/entrypoints)
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
# no limit, as the largest number for HAProxy's integers of 32 bits
_NO_LIMIT = 2_000_000_000
_RETRY_SECONDS = 5
# digits of a length that 32 bits contain
_LENGTH_DIGITS = 9
_HEAD_SECONDS = 10
_BODY_SECONDS = 60
# a client that takes or sends nothing, also in a TLS handshake; not one that waits for an answer
_CLIENT_SECONDS = 60
# checks, metrics and the answerer; a request has two connections, to the inner part as well
_OWN_CONNECTIONS = 100
_MODEL_HEADER = "x-gaudi-model"
_USER_HEADER = "x-gaudi-user"
_SECTION_HEADER = "x-gaudi-section"
_PREFIX_HEADER = "x-gaudi-prefix"
_OWN_HEADERS = (_MODEL_HEADER, _USER_HEADER, _SECTION_HEADER, _PREFIX_HEADER)


_LOG_FORMAT = (
    "%ci user=%[var(txn.user)] %b/%s status=%ST wait=%Tr total=%Ta bytes=%B end=%ts retries=%rc"
)


def gateway_files(
    backends: Sequence[Backend],
    settings: GatewaySettings,
    *,
    program: str,
    python: str,
    folder: Path,
    services: Path | None = None,
) -> GatewayFiles:
    """Return the files below ``folder`` and the arguments of the gateway's process.

    ``program`` is HAProxy, ``python`` any interpreter from 3.10 on. ``services`` is the folder of
    the services' states on this machine; None: the state of a model is whether its engines answer.
    Raises LaunchError (USAGE) for backends that cannot be routed to.
    """
    check_backends(backends)
    lines = [
        f"{name} {section_of(number, backend)}\n"
        for number, backend in enumerate(backends)
        for name in backend.names
    ]
    # the settings of the process that reads the keys and answers
    models: list[dict[str, Any]] = [
        {
            "model": backend.model,
            "aliases": list(backend.aliases),
            "replicas": [
                {"url": url, "service": service} for url, service in backend.replicas.items()
            ],
        }
        for backend in backends
    ]
    document = {
        "schema": 1,
        "program": program,
        "config": CONFIG,
        "large_config": LARGE_CONFIG,
        "files": [CONFIG, LARGE_CONFIG, MODELS_MAP, RATES_MAP, CONCURRENT_MAP, ROUTE.name],
        "socket": ANSWERER_SOCKET,
        "keys_file": mapped(str, settings.keys_file),
        "users_map": USERS_MAP,
        "tls": {"certificate": str(settings.tls.certificate), "key": str(settings.tls.key)}
        if settings.tls
        else None,
        "services": str(services) if services else None,
        "models": models,
        "texts": {
            id: text(f"gateway.{id}")
            for id in ("api_warming", "api_warming_left", "api_down", "api_model")
        },
    }
    texts = {
        CONFIG: haproxy_config(backends, settings),
        LARGE_CONFIG: large_config(backends, settings),
        MODELS_MAP: "".join(lines),
        RATES_MAP: _limits_map(settings, lambda limits: limits.requests_per_minute),
        CONCURRENT_MAP: _limits_map(settings, lambda limits: limits.concurrent),
        ANSWERER: json.dumps(document, indent=1, ensure_ascii=False) + "\n",
        ROUTE.name: ROUTE.read_text(encoding="utf-8"),
        PROCESS.name: standalone(PROCESS),
    }
    argv = (python, str(folder / PROCESS.name), str(folder / ANSWERER))
    return GatewayFiles(argv, {str(folder / name): content for name, content in texts.items()})


def haproxy_config(backends: Sequence[Backend], settings: GatewaySettings) -> str:
    """Return the configuration with the address; paths are relative to its folder."""
    sections = [
        _global(settings.connections, settings.threads, settings.small_buffer_bytes),
        _defaults(settings),
        _frontend(settings),
        _inner(settings, INNER_SOCKET),
        *map(_backend, range(len(backends)), backends),
        _ANSWERER_SECTION,
        _LARGE_SECTION,
        _TABLES,
    ]
    return "\n".join(sections)


def large_config(backends: Sequence[Backend], settings: GatewaySettings) -> str:
    """Return the configuration for large requests, which come from the first."""
    lines = [
        "frontend large",
        f"    bind unix@{LARGE_SOCKET} mode 600",
        f"    maxconn {settings.large_connections}",
        "    http-request use-service prometheus-exporter if { path /metrics/large }",
        f"    http-request set-var(txn.user) req.hdr({_USER_HEADER})",
        f"    http-request wait-for-body time {_BODY_SECONDS}s",
        _refuse(413, "gateway.api_large", f"if {{ req.body_size gt {settings.body_mib << 20} }}"),
        *_routed("TRUE"),
        *_chosen("TRUE"),
    ]
    sections = [
        _global(settings.large_connections, settings.threads, settings.large_buffer_bytes),
        _defaults(settings),
        "\n".join([*lines, ""]),
        _inner(settings, LARGE_INNER_SOCKET),
        *map(_backend, range(len(backends)), backends),
        _ANSWERER_SECTION,
    ]
    return "\n".join(sections)


def section_of(number: int, backend: Backend) -> str:
    """Return the name of a model's section, in metrics and in the log."""
    return f"model{number}-" + re.sub(r"[^A-Za-z0-9._-]", "_", backend.model)[:60]


def _global(connections: int, threads: int, buffer_bytes: int) -> str:
    return f"""\
global
    maxconn {2 * connections + _OWN_CONNECTIONS}
    nbthread {threads}
    tune.bufsize {buffer_bytes}
    tune.stick-counters 4
    lua-load-per-thread {ROUTE.name}
    log stdout format raw local0 info
"""


def _defaults(settings: GatewaySettings) -> str:
    return f"""\
defaults
    mode http
    log global
    log-format "{_LOG_FORMAT}"
    # also the time before a request is sent again when one engine is left
    timeout connect 300ms
    timeout client {settings.timeout_seconds}s
    timeout server {settings.timeout_seconds}s
    timeout http-request {_HEAD_SECONDS}s
    timeout http-keep-alive 75s
    timeout check 5s
    option http-no-delay
    option abortonclose
    option redispatch 1
    retries 5
    retry-on conn-failure
{_error_pages()}
"""


# what HAProxy answers itself
_PAGES = {400: "request", 408: "slow", 500: "failed", 502: "broken", 503: "none", 504: "hang"}


def _error_pages() -> str:
    lines = []
    for status, name in _PAGES.items():
        after = f" hdr Retry-After {_RETRY_SECONDS}" if status == 503 else ""
        content = _error(status, f"gateway.api_{name}")
        lines.append(
            f"    http-error status {status} content-type application/json{after} string {content}"
        )
    return "\n".join(lines)


def _error(status: int, id: str) -> str:
    """Return an error in OpenAI's form as a quoted argument of the configuration."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    document = {"error": {"message": text(id), "type": kind, "code": id.partition(".")[2][4:]}}
    # no character that ends an argument or starts a variable: quotes and backslashes are escaped
    # below
    content = json.dumps(document, ensure_ascii=False)
    return "'" + content.replace("'", "\\u0027") + "'"


_TYPES = {401: "authentication_error", 429: "rate_limit_error", 503: "service_unavailable"}


def _refuse(status: int, id: str, condition: str, retry: int | None = None) -> str:
    after = f" hdr Retry-After {retry}" if retry is not None else ""
    kind = "content-type application/json"
    return (
        f"    http-request return status {status} {kind}{after} string {_error(status, id)} "
        f"{condition}"
    )


def _frontend(settings: GatewaySettings) -> str:
    host = in_url(settings.host)
    tls = ""
    if settings.tls:
        tls = " ssl crt tls.pem alpn h2,http/1.1 ssl-min-ver TLSv1.2"
    large = "is_model_path !is_small"
    lines = [
        "frontend openai",
        f"    bind {host}:{settings.port}{tls}",
        f"    maxconn {settings.connections}",
        f"    timeout client {_CLIENT_SECONDS}s",
        "    acl is_model_path path -m str " + " ".join(PATHS),
        "    acl is_list path -m beg /v1/models",
        "    acl is_here src 127.0.0.0/8 ::1",
        "    acl is_metrics path /metrics",
        "    acl is_large_metrics path /metrics/large",
        # hdr_val() has 32 bits; a request of unknown length counts as a large one
        f"    acl is_length req.hdr(content-length) -m len 1:{_LENGTH_DIGITS}",
        f"    acl is_short req.hdr_val(content-length) le {SMALL_BYTES}",
        "    acl is_small var(txn.small) -m bool",
        *_addresses(settings),
        "    http-request set-var(txn.small) bool(true) if is_length is_short",
        "    http-request return status 200 content-type text/plain string OK if { path /health }",
        "    http-request use-service prometheus-exporter if is_metrics is_here",
    ]
    if settings.keys_file is not None:
        lines += _keys("unless is_large_metrics is_here")
    lines += [
        "    http-request use-service prometheus-exporter if is_metrics",
        # the engines are behind the gateway's keys and have none: a key of a user stays here
        "    http-request del-header authorization",
        "    http-request del-header x-api-key",
        *(f"    http-request del-header {name}" for name in _OWN_HEADERS),
    ]
    if settings.keys_file is not None:
        lines += _limited(settings.limits)
        lines.append(
            f"    http-request set-header {_USER_HEADER} %[var(txn.user)] if is_model_path"
        )
    lines += [
        _refuse(
            404,
            "gateway.api_path",
            "unless is_model_path METH_POST or is_list METH_GET or is_large_metrics",
        ),
        _refuse(
            413,
            "gateway.api_large",
            "if { req.hdr(content-length) -m found } !is_length or "
            f"{{ req.hdr_val(content-length) gt {settings.body_mib << 20} }}",
        ),
        *_counted(3, "large_requests", settings.large_connections // 2, large),
        # the other process logs it, with its model
        f"    http-request set-log-level silent if {large}",
        f"    http-request wait-for-body time {_BODY_SECONDS}s if is_model_path is_small",
        *_routed("is_model_path is_small"),
        f"    use_backend large if {large} or is_large_metrics",
        "    use_backend answerer if is_list METH_GET",
        *_chosen("is_model_path"),
    ]
    return "\n".join([*lines, ""])


def _routed(condition: str) -> list[str]:
    """Return the rules that find the section of a request's model, under a condition."""
    return [
        f"    http-request lua.route if {condition}",
        _refuse(400, "gateway.api_json", f"if {condition} !{{ var(txn.model) -m found }}"),
        (
            f"    http-request set-var(txn.section) var(txn.model),map_str({MODELS_MAP}) if "
            f"{condition}"
        ),
        _refuse(404, "gateway.api_model", f"if {condition} !{{ var(txn.section) -m found }}"),
        f"    http-request set-var(txn.up) var(txn.section),nbsrv if {condition}",
        (
            f"    http-request set-header {_MODEL_HEADER} %[var(txn.model)] if {condition} {{ "
            "var(txn.up) -m int 0 }"
        ),
        f"    http-request set-header {_SECTION_HEADER} %[var(txn.section)] if {condition}",
        f"    http-request set-header {_PREFIX_HEADER} %[var(txn.prefix),sha1,hex] if {condition}",
        f"    http-request set-log-level silent if {condition} !{{ var(txn.up) -m int 0 }}",
    ]


def _chosen(condition: str) -> list[str]:
    """Return the choice of a section: the answerer where no engine is up."""
    return [
        f"    use_backend answerer if {condition} {{ var(txn.up) -m int 0 }}",
        "    use_backend inner",
    ]


def _inner(settings: GatewaySettings, socket: str) -> str:
    """Return the part that has the engines, and the way to it."""
    lines = [
        "backend inner",
        # before the first byte of an answer only: nothing that a client has seen is sent twice
        "    retry-on conn-failure empty-response 502 503",
        "    http-reuse always",
        f"    server inner unix@{socket}",
        "",
        "frontend inner",
        f"    bind unix@{socket} mode 600",
        f"    http-request set-var(txn.user) req.hdr({_USER_HEADER})",
        f"    http-request set-var(txn.section) req.hdr({_SECTION_HEADER})",
        f"    http-request set-var(txn.prefix) req.hdr({_PREFIX_HEADER})",
        *(f"    http-request del-header {name}" for name in _OWN_HEADERS),
        f"    http-response wait-for-body time {settings.timeout_seconds}s at-least 1",
        # the engine has ended after the head: nothing of the answer was forwarded yet
        "    http-response return status 502 content-type application/json string "
        + _error(502, "gateway.api_broken")
        + " if { res.body_len 0 } !{ res.hdr(content-length) -m found }",
        "    use_backend %[var(txn.section)]",
        "",
    ]
    return "\n".join(lines)


def _keys(unless: str) -> list[str]:
    """Return the rules that find the user of a key; keys are compared as SHA-256."""
    # fhdr() is the complete value, which may contain commas
    bearer = "req.fhdr(authorization),regsub(^bearer[[:space:]]+,,i)"
    return [
        f"    http-request set-var(txn.key) {bearer} if {{ req.hdr(authorization) -m found }}",
        # Anthropic's header, for /v1/messages
        (
            "    http-request set-var(txn.key) req.fhdr(x-api-key) if !{ req.hdr(authorization) -m "
            "found }"
        ),
        f"    http-request set-var(txn.user) var(txn.key),sha2(256),hex,lower,map_str({USERS_MAP})",
        "    http-request unset-var(txn.key)",
        _refuse(401, "gateway.api_key", f"{unless} or {{ var(txn.user) -m found }}"),
    ]


def _addresses(settings: GatewaySettings) -> list[str]:
    """Return the rules that limit connections and requests of one address.

    An address is a network of /64 for IPv6. Connections of trusted proxies are not limited, and
    their requests count for the last address of X-Forwarded-For.
    """
    lines = [
        # also of a client whose address is written as one of IPv6
        "    acl is_ipv4 src 0.0.0.0/0",
        "    tcp-request connection set-var(sess.address) src,ipmask(32,64)",
        "    tcp-request connection set-var(sess.address) src if is_ipv4",
        "    tcp-request connection track-sc1 var(sess.address) table addresses",
        "    tcp-request connection reject if "
        f"{{ sc1_conn_cur(addresses) gt {settings.connections // 2} }}",
    ]
    if settings.trusted_proxies:
        lines.insert(0, f"    acl is_trusted src {' '.join(settings.trusted_proxies)}")
        lines[-2] += " unless is_trusted"
        lines.append("    http-request set-src req.hdr_ip(x-forwarded-for,-1) if is_trusted")
    return [
        *lines,
        "    http-request set-var(txn.address) src,ipmask(32,64)",
        "    http-request set-var(txn.address) src if is_ipv4",
        # a connection of HTTP/2, or of a proxy, has many requests
        *_counted(2, "requests", settings.connections // 2, "TRUE"),
    ]


def _counted(counter: int, table: str, most: int, condition: str) -> list[str]:
    """Return the rules that refuse more than ``most`` requests of an address."""
    count = f"sc_conn_cur({counter},{table})"
    return [
        f"    http-request track-sc{counter} var(txn.address) table {table} if {condition}",
        _refuse(429, "gateway.api_address", f"if {{ {count} gt {most} }}", retry=1),
    ]


def _limited(limits: RequestLimits) -> list[str]:
    """Return the rules that count a user's requests and apply the limits."""
    rate, concurrent = _number(limits.requests_per_minute), _number(limits.concurrent)
    return [
        "    http-request track-sc0 var(txn.user) table users",
        f"    http-request set-var(txn.rate) var(txn.user),map_str_int({RATES_MAP},{rate})",
        (
            "    http-request set-var(txn.concurrent) "
            f"var(txn.user),map_str_int({CONCURRENT_MAP},{concurrent})"
        ),
        _refuse(429, "gateway.api_rate", "if { sc0_http_req_rate(users),sub(txn.rate) gt 0 }", 10),
        _refuse(
            429, "gateway.api_concurrent", "if { sc0_conn_cur(users),sub(txn.concurrent) gt 0 }", 1
        ),
    ]


def _backend(number: int, backend: Backend) -> str:
    lines = [f"backend {section_of(number, backend)}"]
    if backend.balance == "prefix":
        lines += [
            # the same replica for the turns of a conversation, unless it has half more than its
            # share
            "    balance hash var(txn.prefix)",
            "    hash-type consistent sdbm avalanche",
            "    hash-balance-factor 150",
        ]
    else:
        lines.append("    balance leastconn")
    lines += [
        "    option httpchk GET /health",
        "    default-server check inter 1s fastinter 250ms downinter 500ms fall 3 rise 1"
        " observe layer4 error-limit 1 on-error mark-down",
    ]
    # the name of an engine's service is in the log and in metrics
    lines += [
        f"    server {service or f'replica{at}'} {url.removeprefix('http://')}"
        for at, (url, service) in enumerate(backend.replicas.items())
    ]
    return "\n".join([*lines, ""])


_ANSWERER_SECTION = f"""\
backend answerer
    server answerer unix@{ANSWERER_SOCKET}
"""

_LARGE_SECTION = f"""\
backend large
    # the second process sends a request again where that helps
    retry-on conn-failure
    server large unix@{LARGE_SOCKET}
"""

_TABLES = """\
backend users
    stick-table type string len 64 size 100k expire 2m store http_req_rate(60s),conn_cur

backend addresses
    stick-table type ipv6 size 100k expire 2m store conn_cur

backend requests
    stick-table type ipv6 size 100k expire 2m store conn_cur

backend large_requests
    stick-table type ipv6 size 100k expire 2m store conn_cur
"""


def _limits_map(settings: GatewaySettings, of: Callable[[RequestLimits], int | None]) -> str:
    """Return the map of one limit of the users that have an own one."""
    return "".join(
        f"{user} {_number(of(limits))}\n" for user, limits in settings.user_limits.items()
    )


def _number(limit: int | None) -> int:
    return _NO_LIMIT if limit is None else limit
