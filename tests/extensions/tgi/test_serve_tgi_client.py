"""``serve --engine tgi`` with the real docker client, where there is one: our words are read,
signals handed on."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.docker_api import Api
from tests.support.processes import free_port
from tests.support.serve import ready_lines
from tests.support.serve_tgi import IMAGE, User, hurry
from tests.support.waiting import GENEROUS, until

__all__ = ["free_port"]


def is_docker() -> bool:
    if shutil.which("docker") is None:
        return False
    answer = subprocess.run(["docker", "--version"], capture_output=True, text=True, check=False)
    return answer.returncode == 0 and answer.stdout.startswith("Docker version")


pytestmark = pytest.mark.skipif(not is_docker(), reason="no docker client")


class Real(NamedTuple):
    user: User
    api: Api


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Real]:
    user, api = User(tmp_path), Api(tmp_path / "api")
    user.docker.unlink()
    user.environment |= {"DOCKER_HOST": api.address, "HF_TOKEN": "hf_s3cret"}
    yield Real(user, api)
    user.close()
    api.close()


def test_it_reads_our_words_and_stops_on_ctrl_c(real: Real, free_port: int) -> None:
    process = real.user.start("-w", "MODEL", "-n", "2", "-p", str(free_port))
    assert ready_lines(process)[0].endswith(f"answers at http://127.0.0.1:{free_port}\n")
    ((name, made),) = real.api.created.items()
    host = made["HostConfig"]
    assert (made["Image"], name) == (IMAGE, f"gaudi-launch-tgi-Small-{free_port}")
    started = "--model-id /models/Small --sharded true --num-shard 2"
    assert made["Cmd"][:6] == started.split()
    assert [pair.split("=")[0] for pair in made["Env"]] == ["HABANA_VISIBLE_DEVICES"]
    assert host["PortBindings"] == {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(free_port)}]}
    assert host["Binds"] == [f"{real.user.model}:/models/Small:ro"]
    assert (host["Runtime"], host["IpcMode"], host["CapAdd"]) == (
        "habana",
        "host",
        ["CAP_SYS_NICE"],
    )
    assert (host["Init"], host["AutoRemove"]) == (True, True) and host["CpusetCpus"]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=GENEROUS)
    assert (process.returncode, real.api.living) == (130, [])
    assert f"POST /containers/{name}/kill TERM" in real.api.asked and "Traceback" not in err


def test_a_token_reaches_the_container_and_nothing_else(real: Real, free_port: int) -> None:
    process = real.user.start("-w", "me/small", "-p", str(free_port), "--tuning", "reference")
    ready_lines(process)
    ((_, made),) = real.api.created.items()
    assert "HF_TOKEN=hf_s3cret" in made["Env"]
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=GENEROUS)
    written = [
        path.read_text(errors="replace") for path in real.user.state.rglob("*") if path.is_file()
    ]
    assert not any("hf_s3cret" in text for text in (out, err, *written))


def test_a_deaf_container_is_removed(real: Real, free_port: int) -> None:
    real.api.deaf = True
    process = real.user.start("-w", "MODEL", "-p", str(free_port), "--name", "deaf")
    ready_lines(process)
    hurry(real.user, process, "deaf")
    assert real.api.living == []
    assert real.api.asked[-1].startswith("DELETE /containers/")


def test_a_killed_launcher_stops_its_container(real: Real, free_port: int) -> None:
    process = real.user.start("-w", "MODEL", "-p", str(free_port))
    ready_lines(process)
    process.kill()
    process.communicate()
    until(lambda: real.api.living == [], "the container's end")
