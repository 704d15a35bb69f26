"""The support bundle: what is in it, what never is."""

from __future__ import annotations

import json
import os
import random
import stat
import tarfile
from pathlib import Path

import pytest

from gaudi_launch.commands.doctor import bundle
from gaudi_launch.commands.doctor.bundle import Redactor
from gaudi_launch.core.base.paths import state_dir
from tests.support.refusals import raising
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


def test_values_of_secret_options_and_the_begin_of_a_long_log_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bundle, "_TAIL", 298)
    place = state_dir() / "services" / "one"
    place.mkdir(parents=True)
    argv = ["vllm", "serve", "--ssl-keyfile-password", "first-S", "--port", "80"]
    settings = [{"name": "--hf-token", "value": "second-S"}, {"name": "--port", "value": "80"}]
    (place / "plan.json").write_text(json.dumps({"argv": argv, "settings": settings}))
    end = f"{'port ' * 50}\nPASSPHRASE="
    (place / "engine.log").write_text(f"model {end}{'third-S ' * 4}\n")
    files = bundle.contents({}, {}, {}, Redactor())
    assert "-S" not in "".join(files.values())
    plan = json.loads(files["plans/1-plan.json"])
    assert (plan["argv"][-2:], plan["settings"][1]) == (["--port", "80"], settings[1])
    log = files["logs/1-engine.log"]
    assert (log.startswith("el port"), end in log) == (True, True)


def test_the_archive_is_complete_and_its_owners_only(tmp_path: Path) -> None:
    path = tmp_path / "case.tar.gz"
    path.write_text("an older one")
    path.chmod(0o644)
    files = {"host.json": "{}\n", "logs/1-a.log": "Ω\n"}
    old = os.umask(0)
    try:
        bundle.write(path, files)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as archive:
        found = {each.name: archive.extractfile(each).read().decode() for each in archive}  # type: ignore[union-attr]
        assert {each.mode for each in archive} == {0o600}
    assert found == {f"gaudi-launch-bundle/{name}": text for name, text in files.items()}
    assert [*tmp_path.iterdir()] == [path]


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
        with raising(id):
            bundle.write(path, {"a": "b"})
    assert target.read_text() == "mine"


def test_no_drawn_text_lets_a_secret_through() -> None:
    """Names known and unknown x separators x quotes x nesting; eight characters in a row count."""
    redactor = Redactor(keep_names=True)
    found = []
    for secret, text in drawn_texts(random.Random(35), 6_000):
        shown = redactor.text(text)
        if any(secret[at : at + 8] in shown for at in range(len(secret) - 7)):
            found.append((secret, text, shown))
    assert found == []
