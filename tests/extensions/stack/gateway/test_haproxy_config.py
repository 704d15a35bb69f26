"""The texts that a gateway's process reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.messages import set_language
from gaudi_launch.core.base.reader import standalone
from gaudi_launch.core.render.gateway import GatewayFiles
from gaudi_launch.extensions.stack.gateway.gateway_settings import (
    Backend,
    GatewaySettings,
    RequestLimits,
    Tls,
)
from gaudi_launch.extensions.stack.gateway.haproxy_config import (
    PROCESS,
    ROUTE,
    gateway_files,
    haproxy_config,
    large_config,
)
from tests.support.cli import golden

CHAT = Backend(
    "Qwen/Qwen3-8B",
    {"http://127.0.0.1:9201": "chat-0", "http://127.0.0.1:9202": "chat-1"},
    aliases=("chat",),
    balance="prefix",
)
EMBED = Backend("bge-m3", {"http://127.0.0.1:9203": ""})
KEYS = Path("/etc/gateway/keys")


def made(settings: GatewaySettings) -> GatewayFiles:
    return gateway_files(
        (CHAT, EMBED),
        settings,
        program="/opt/haproxy",
        python="/usr/bin/python3",
        folder=Path("/run/gw"),
        services=Path("/state/services"),
    )


def rules(settings: GatewaySettings, word: str) -> list[str]:
    return [
        line.strip()
        for line in haproxy_config((CHAT, EMBED), settings).splitlines()
        if word in line
    ]


FULL = GatewaySettings(
    host="::",
    port=8443,
    tls=Tls(Path("/etc/gateway/cert.pem"), Path("/etc/gateway/key.pem")),
    keys_file=KEYS,
    limits=RequestLimits(requests_per_minute=60, concurrent=4),
    user_limits={"ann": RequestLimits(600), "bob": RequestLimits(None, 2)},
    body_mib=16,
    timeout_seconds=600,
    connections=100,
    large_connections=10,
    threads=2,
)


@pytest.mark.parametrize(("name", "settings"), [("plain", GatewaySettings()), ("full", FULL)])
def test_the_files_of_a_gateway(name: str, settings: GatewaySettings) -> None:
    files = made(settings)
    assert files.argv == ("/usr/bin/python3", "/run/gw/gateway_process.py", "/run/gw/gateway.json")
    sources = {"/run/gw/gateway_process.py": PROCESS, "/run/gw/route.lua": ROUTE}
    parts = []
    for path, content in sorted(files.files.items()):
        if path in sources:
            assert content == standalone(sources[path])
        else:
            parts.append(f"### {path}\n{content}")
    golden(f"gateway-{name}.txt", "".join(parts))


def test_the_process_gets_its_settings_and_nothing_else() -> None:
    files = made(GatewaySettings(keys_file=KEYS))
    assert files.argv == ("/usr/bin/python3", "/run/gw/gateway_process.py", "/run/gw/gateway.json")
    names = sorted(Path(path).name for path in files.files)
    assert names == [
        "concurrent.map",
        "gateway.json",
        "gateway_process.py",
        "haproxy.cfg",
        "large.cfg",
        "models.map",
        "rates.map",
        "route.lua",
    ]
    assert {Path(path).parent for path in files.files} == {Path("/run/gw")}


def test_every_name_of_a_model_leads_to_its_section() -> None:
    files = made(GatewaySettings()).files
    assert files["/run/gw/models.map"] == (
        "Qwen/Qwen3-8B model0-Qwen_Qwen3-8B\nchat model0-Qwen_Qwen3-8B\nbge-m3 model1-bge-m3\n"
    )


def test_the_answerer_knows_the_service_of_each_engine() -> None:
    document = json.loads(made(GatewaySettings(keys_file=KEYS)).files["/run/gw/gateway.json"])
    assert document["models"] == [
        {
            "model": "Qwen/Qwen3-8B",
            "aliases": ["chat"],
            "replicas": [
                {"url": "http://127.0.0.1:9201", "service": "chat-0"},
                {"url": "http://127.0.0.1:9202", "service": "chat-1"},
            ],
        },
        {
            "model": "bge-m3",
            "aliases": [],
            "replicas": [{"url": "http://127.0.0.1:9203", "service": ""}],
        },
    ]
    assert (document["keys_file"], document["services"], document["tls"]) == (
        str(KEYS),
        "/state/services",
        None,
    )


def test_a_prefix_keeps_conversations_and_load_decides_otherwise() -> None:
    assert rules(GatewaySettings(), "balance") == [
        "balance hash var(txn.prefix)",
        "hash-balance-factor 150",
        "balance leastconn",
    ]


def test_a_buffer_has_room_for_the_largest_request_and_its_head() -> None:
    settings = GatewaySettings(body_mib=8)
    assert rules(settings, "bufsize") == ["tune.bufsize 131072"]
    # the largest head that the first process takes fits, too: a full buffer has too large a body
    assert "tune.bufsize 8536064" in large_config((CHAT, EMBED), settings)
    assert "{ req.hdr_val(content-length) gt 8388608 }" in rules(settings, "status 413")[-1]


def test_the_process_for_large_requests_has_no_address_and_no_keys() -> None:
    config = large_config((CHAT, EMBED), GatewaySettings(keys_file=KEYS, large_connections=50))
    binds = [line.strip() for line in config.splitlines() if line.strip().startswith("bind")]
    assert binds == ["bind unix@large.sock mode 600", "bind unix@large-inner.sock mode 600"]
    assert "users.map" not in config
    assert "    maxconn 50\n" in config


def test_tls_is_on_the_clients_side_only() -> None:
    settings = GatewaySettings(host="::", port=443, tls=Tls(Path("/c.pem"), Path("/k.pem")))
    inner = "bind unix@inner.sock mode 600"
    assert rules(settings, "bind") == [
        "bind [::]:443 ssl crt tls.pem alpn h2,http/1.1 ssl-min-ver TLSv1.2",
        inner,
    ]
    assert rules(GatewaySettings(), "bind") == ["bind 127.0.0.1:8000", inner]


def test_no_engine_gets_a_key_also_where_the_gateway_needs_none() -> None:
    for settings in (GatewaySettings(), GatewaySettings(keys_file=KEYS)):
        assert rules(settings, "del-header authorization") == [
            "http-request del-header authorization"
        ]


def test_limits_are_of_users_so_without_keys_there_are_none() -> None:
    limits = RequestLimits(requests_per_minute=60, concurrent=4)
    assert rules(GatewaySettings(limits=limits), "sc0") == []
    found = rules(GatewaySettings(keys_file=KEYS, limits=limits), "map_str_int")
    assert found == [
        "http-request set-var(txn.rate) var(txn.user),map_str_int(rates.map,60)",
        "http-request set-var(txn.concurrent) var(txn.user),map_str_int(concurrent.map,4)",
    ]


def test_a_trusted_proxy_names_the_address_that_is_limited() -> None:
    limited = ["tcp-request connection reject if { sc1_conn_cur(addresses) gt 50 }"]
    own = "tcp-request connection track-sc1 var(sess.address) table addresses"
    plain = GatewaySettings(connections=100)
    assert rules(plain, "connection track") == [own]
    assert rules(plain, "connection reject") == limited
    assert rules(plain, "x-forwarded-for") == []
    behind = GatewaySettings(connections=100, trusted_proxies=("10.0.0.0/8", "::1"))
    assert rules(behind, "is_trusted") == [
        "acl is_trusted src 10.0.0.0/8 ::1",
        f"{own} unless is_trusted",
        "http-request set-src req.hdr_ip(x-forwarded-for,-1) if is_trusted",
    ]
    assert rules(behind, "connection reject") == limited


def test_a_user_may_have_limits_of_their_own() -> None:
    own = {"bob": RequestLimits(20, 2), "carol": RequestLimits()}
    files = made(GatewaySettings(keys_file=KEYS, user_limits=own)).files
    assert files["/run/gw/rates.map"] == "bob 20\ncarol 2000000000\n"
    assert files["/run/gw/concurrent.map"] == "bob 2\ncarol 2000000000\n"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_answer_of_haproxy_is_an_openai_error(language: str) -> None:
    set_language(language)
    config = haproxy_config((CHAT, EMBED), GatewaySettings(keys_file=KEYS))
    texts = [
        line.split(" string '", 1)[1].rpartition("'")[0]
        for line in config.splitlines()
        if " string '" in line
    ]
    errors = [json.loads(text)["error"] for text in texts]
    assert len(errors) == 16
    assert all(set(error) == {"message", "type", "code"} for error in errors)
    assert not any("'" in text for text in texts)


def test_backends_that_cannot_be_routed_to_make_no_files() -> None:
    with pytest.raises(LaunchError):
        gateway_files((), GatewaySettings(), program="p", python="p", folder=Path("/run/gw"))
