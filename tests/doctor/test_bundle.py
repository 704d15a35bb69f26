"""The support bundle: what is in it, what never is."""

from __future__ import annotations

import gzip
import json
import os
import random
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from gaudi_launch.doctor import bundle
from gaudi_launch.doctor.bundle import Redactor
from gaudi_launch.errors import LaunchError
from gaudi_launch.paths import state_dir
from gaudi_launch.redact import REMOVED
from tests.support.places import DATA
from tests.support.secret_forms import drawn_texts

pytestmark = pytest.mark.usefixtures("own_folders")

SECRETS = [
    "hf_abcdefghijklmnopqrstuvwx",
    "sk-0123456789abcdef",
    "s3cr3t-value",
    "eyJhbGciOi.eyJzdWIiOiI.c2lnbmF0dXJl",
    "hunter2",
]
LOG = f"""
INFO starting on gpu-host-7 as ann at 10.20.30.40 (fe80::1ff:fe23:4567:890a, 3c:ec:ef:00:11:22)
export HF_TOKEN={SECRETS[0]}
curl -H "Authorization: Bearer {SECRETS[1]}"
http://ann:{SECRETS[4]}@10.20.30.41:8000/v1
--api-key {SECRETS[2]} --max-num-batched-tokens 8192 --max-model-len=16384
MY_SECRET_KEY: "{SECRETS[2]}" jwt {SECRETS[3]}
weights in /home/ann/models, mail ann@example.org, local 127.0.0.1
"""


def everything(keep_names: bool) -> str:
    place = state_dir() / "services" / "one"
    place.mkdir(parents=True, exist_ok=True)
    (place / "engine.log").write_text(LOG)
    (place / "plan.json").write_text(
        json.dumps({"env": {"HF_TOKEN": SECRETS[0], "VLLM_TOKENS": 1}, "max_tokens": 5})
    )
    (place / "link.log").unlink(missing_ok=True)
    (place / "link.log").symlink_to("/etc/passwd")
    redactor = Redactor(keep_names, ("gpu-host-7", "ann"))
    host = {
        "hostname": "gpu-host-7",
        "cards": [{"serial": "AM123", "module": 0}],
        "addresses": ["10.20.30.40"],
    }
    files = bundle.contents(
        host, {"environment": {"http_proxy": "http://u:hunter2@p"}}, {"findings": []}, redactor
    )
    assert set(files) == {
        "host.json",
        "config.json",
        "findings.json",
        "versions.json",
        "plans/1-plan.json",
        "logs/1-engine.log",
    }
    for name, text in files.items():
        if name.endswith(".json"):
            json.loads(text)
    return "\n".join(files.values())


@pytest.mark.parametrize("keep_names", [False, True])
def test_secrets_are_always_gone(keep_names: bool) -> None:
    text = everything(keep_names)
    assert [secret for secret in SECRETS if secret in text] == []
    assert "--max-num-batched-tokens 8192 --max-model-len=16384" in text
    assert '"max_tokens": 5' in text


def test_a_secret_in_the_element_after_its_option_is_gone() -> None:
    place = state_dir() / "services" / "one"
    place.mkdir(parents=True)
    argv = [
        "vllm",
        "serve",
        "--ssl-keyfile-password",
        "first-S",
        "--hf-token",
        "second-S",
        "--port",
        "80",
    ]
    settings = [
        {"name": "--ssl-keyfile-password", "value": "first-S"},
        {"name": "--port", "value": "80"},
    ]
    (place / "plan.json").write_text(
        json.dumps({"argv": argv, "settings": settings, "api_key": ["a", "third-S"]})
    )
    (place / "engine.log").write_text(
        "{'api_key': ['a', 'third-S']}\n" + "a" * 30_000 + "\nPASSPHRASE=fourth-S\n"
    )
    files = bundle.contents({}, {}, {}, Redactor())
    text = "\n".join(files.values())
    assert "-S" not in text
    assert json.loads(files["plans/1-plan.json"])["argv"][-2:] == ["--port", "80"]


def test_names_go_by_default_and_stay_when_asked_for() -> None:
    names = [
        "gpu-host-7",
        "ann",
        "10.20.30.40",
        "10.20.30.41",
        "fe80::1ff",
        "3c:ec:ef",
        "AM123",
        "example.org",
    ]
    assert [name for name in names if name in everything(False)] == []
    kept = everything(True)
    assert [name for name in names if name not in kept] == []
    assert "127.0.0.1" in everything(False)


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        # names of variables and options, numbers and known words stay
        ("export MY_ZORB=Zq9x", "export MY_ZORB=[removed]"),
        (
            "vllm serve demo --zorb Zq9x -p Zq9x --port 80",
            "vllm serve demo --zorb [removed] -p [removed] --port 80",
        ),
        ("zorb: the Zq9x\nport: 80", "[removed]: the [removed]\nport: 80"),
        ("owner:\n  - Zq9x\nport: 80", "owner:\n  - [removed]\nport: 80"),
        (
            "Namespace(zorb='Zq9x', max_num_seqs=4)",
            "Namespace([removed]='[removed]', max_num_seqs=4)",
        ),
        ("docker login -u u -p Zq9x", "docker login -u u -p [removed]"),
        ("ZORB=3 vllm serve Qwen/Qwen3-8B", "ZORB=3 vllm serve Qwen/Qwen3-8B"),
        (
            "KeyError: 'Zq9x' 4839201 48392017 4839-2017-5566",
            "KeyError: '[removed]' 4839201 [removed] [removed]",
        ),
        ("引擎 Zq9x 0.9.1+gaudi122", "引擎 [removed] 0.9.1+gaudi122"),
    ],
)
def test_values_of_unknown_names_go(text: str, stays: str) -> None:
    assert Redactor(keep_names=True).text(text) == stays


def test_no_drawn_text_lets_a_secret_through() -> None:
    """Names known and unknown x separators x quotes x nesting; eight characters in a row count."""
    redactor = Redactor(keep_names=True)
    found = []
    for secret, text in drawn_texts(random.Random(35), 6_000):
        shown = redactor.text(text)
        if any(secret[at : at + 8] in shown for at in range(len(secret) - 7)):
            found.append((secret, text, shown))
    assert found == []


def _strings(document: Any) -> list[str]:
    if isinstance(document, str):
        return [document]
    if isinstance(document, dict):
        return _strings(list(document.values()))
    if isinstance(document, list):
        return [text for each in document for text in _strings(each)]
    return []


def test_a_healthy_bundle_is_readable() -> None:
    """What stays of logs: those that were recorded, and those of public questions."""
    recorded = [
        gzip.decompress(path.read_bytes()).decode() for path in (DATA / "logs").glob("*.txt.gz")
    ]
    threads = _strings(yaml.safe_load((DATA / "threads.yaml").read_text("utf-8")))
    for texts, least in ((recorded, 0.99), (threads, 0.93)):
        text = "\n".join(texts)
        gone = Redactor(keep_names=True).text(text).count(REMOVED)
        assert gone < (1 - least) * len(text.split()), gone
    kept = "INFO 11-21 03:03:01 [api_server.py:1042] vLLM 0.9.1+gaudi122 Qwen/Qwen3-8B 0000:33:00.0"
    assert Redactor().text(kept) == kept


def test_one_name_is_one_word_everywhere() -> None:
    redactor = Redactor(False, ("h7x",))
    assert (
        redactor.text("h7x 10.0.0.1 h7x 10.0.0.2 10.0.0.1")
        == "[name-3] [ip-1] [name-3] [ip-2] [ip-1]"
    )


def test_the_file_is_the_owners_only_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "case.tar.gz"
    path.write_text("an older one")
    path.chmod(0o644)
    old = os.umask(0)
    try:
        bundle.write(path, {"host.json": "{}\n", "logs/1-a.log": "Ω\n"})
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as archive:
        content = {m.name: archive.extractfile(m).read().decode() for m in archive}  # type: ignore[union-attr]
    assert content == {
        "gaudi-launch-bundle/host.json": "{}\n",
        "gaudi-launch-bundle/logs/1-a.log": "Ω\n",
    }
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_links_other_endings_and_missing_folders_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    link = tmp_path / "case.tar.gz"
    link.symlink_to(target)
    for path, id in (
        (link, "doctor.bundle.link"),
        (tmp_path / "case.zip", "doctor.bundle.name"),
        (tmp_path / "none" / "case.tgz", "doctor.bundle.write"),
    ):
        with pytest.raises(LaunchError) as error:
            bundle.write(path, {"a": "b"})
        assert error.value.id == id
    assert target.read_text() == "mine"
