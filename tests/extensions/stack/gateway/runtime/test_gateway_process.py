"""The answers of the gateway's process about models, without HAProxy."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.services.state.identity import start_ticks
from gaudi_launch.extensions.stack.gateway.runtime.gateway_process import (
    Gateway,
    digest_of,
    users_of,
)
from tests.support.gateways import engines
from tests.support.waiting import unused_port

# it writes files into the folder in which it runs
pytestmark = pytest.mark.usefixtures("current_folder")

DOWN = f"http://127.0.0.1:{unused_port()}"


def gateway(tmp_path: Path, *replicas: tuple[str, str], aliases: tuple[str, ...] = ()) -> Gateway:
    """Return a gateway of one model m with these (address, service)."""
    settings: dict[str, Any] = {
        "keys_file": None,
        "users_map": str(tmp_path / "users.map"),
        "tls": None,
        "services": str(tmp_path / "services"),
        "files": [],
        "models": [
            {
                "model": "m",
                "aliases": list(aliases),
                "replicas": [{"url": url, "service": service} for url, service in replicas],
            }
        ],
    }
    path = tmp_path / "gateway.json"
    path.write_text(json.dumps(settings), encoding="utf-8")
    found = Gateway(path)
    found.read()
    return found


def record(tmp_path: Path, name: str, content: object) -> None:
    folder = tmp_path / "services" / name
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(json.dumps(content), encoding="utf-8")


def test_keys_are_kept_as_hashes() -> None:
    # printf k | sha256sum
    digest = "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a"
    assert users_of("alice k\n") == [f"{digest} alice"]


def test_a_ready_model_is_listed_as_its_engine_lists_it(tmp_path: Path) -> None:
    with engines("m") as (engine,):
        listed = gateway(tmp_path, (engine.url, ""), (DOWN, ""), aliases=("n",)).models()
    own = {"root": "m", "state": "ready", "replicas": 2, "replicas_ready": 1, "left_seconds": None}
    base = {"object": "model", "owned_by": "fake"}
    assert listed == {
        "object": "list",
        "data": [{**base, "id": "m", **own}, {**base, "id": "n", **own}],
    }


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ({"phase": "load"}, ("load", None)),
        ({"phase": "warmup_prompt", "left_seconds": 12.5}, ("warmup_prompt", 12.5)),
        ({"phase": "waiting", "left_seconds": 5}, ("waiting", 5.0)),
        ({"phase": "failed"}, ("failed", None)),
        ({"phase": "stopped"}, ("stopped", None)),
        # it was ready, and does not answer
        ({"phase": "ready"}, ("down", None)),
        # its launcher was killed, or another process has its number
        ({"phase": "load", "launcher": {"pid": 4194304, "ticks": 1}}, ("down", None)),
        ({"phase": "load", "launcher": {"pid": os.getpid(), "ticks": 1}}, ("down", None)),
        (
            {"phase": "load", "launcher": {"pid": os.getpid(), "ticks": start_ticks(os.getpid())}},
            ("load", None),
        ),
        # damaged files
        ({"phase": 7, "left_seconds": "soon"}, ("down", None)),
        ({"phase": "load", "left_seconds": -4}, ("load", None)),
        ({"phase": "load", "left_seconds": True}, ("load", None)),
        ([], ("down", None)),
        ({"phase": "load", "launcher": "pid"}, ("load", None)),
        ({"phase": "load", "launcher": {}}, ("down", None)),
        (None, ("down", None)),
    ],
)
def test_a_model_without_an_engine_shows_its_service(
    tmp_path: Path, state: object, shown: tuple[str, float | None]
) -> None:
    record(tmp_path, "s", state)
    found = gateway(tmp_path, (DOWN, "s")).models()["data"][0]
    assert (found["state"], found["left_seconds"]) == shown


def test_of_two_that_start_the_sooner_counts(tmp_path: Path) -> None:
    record(tmp_path, "slow", {"phase": "warmup_prompt", "left_seconds": 300})
    record(tmp_path, "soon", {"phase": "warmup_decode", "left_seconds": 20})
    record(tmp_path, "dead", {"phase": "failed", "left_seconds": 1})
    found = gateway(tmp_path, (DOWN, "slow"), (DOWN, "soon"), (DOWN, "dead")).models()["data"][0]
    assert (found["left_seconds"], found["replicas"], found["replicas_ready"]) == (20.0, 3, 0)


def test_a_service_without_a_record_is_down(tmp_path: Path) -> None:
    found = gateway(tmp_path, (DOWN, "never"), (DOWN, "")).models()["data"][0]
    assert (found["state"], found["left_seconds"]) == ("down", None)


def test_the_digest_changes_with_every_content() -> None:
    settings = {"files": ["a.cfg", "b.map"]}
    contents = {"a.cfg": b"a", "b.map": b"b"}
    given = (json.dumps(settings), b"hash alice\n", b"c\nk")
    found = [digest_of(*given, contents.__getitem__)]
    for name in contents:
        found.append(digest_of(*given, {**contents, name: b"other"}.__getitem__))
    found.append(digest_of(given[0], b"hash bob\n", given[2], contents.__getitem__))
    found.append(digest_of(given[0], given[1], b"c\nl", contents.__getitem__))
    found.append(digest_of(json.dumps({**settings, "x": 1}), *given[1:], contents.__getitem__))
    # no content can be moved from one file to the next
    found.append(digest_of(*given, {"a.cfg": b"ab", "b.map": b""}.__getitem__))
    assert len(set(found)) == len(found) == 7


def test_keys_that_cannot_be_read_again_leave_the_earlier_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice k\n", encoding="utf-8")
    found = gateway(tmp_path)
    found.settings["keys_file"] = str(keys)
    (tmp_path / "gateway.json").write_text(json.dumps(found.settings), encoding="utf-8")
    found.read()
    users, applied = tmp_path / "users.map", tmp_path / "applied.cfg"
    before = (users.read_text(encoding="utf-8"), applied.read_text(encoding="utf-8"))
    assert before[0] == f"{users_of('alice k')[0]}\n"
    for broken in ("bob\n", "", None):
        if broken is None:
            keys.unlink()
        else:
            keys.write_text(broken, encoding="utf-8")
        found.read()
        now = (users.read_text(encoding="utf-8"), applied.read_text(encoding="utf-8"))
        assert now == before
        assert "users.map is not made again, the earlier one stays" in capsys.readouterr().out
    users.unlink()
    with pytest.raises(OSError):
        found.read()
