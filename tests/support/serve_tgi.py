"""serve with a TGI image and a stand-in for docker."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

from tests.support.cli import called
from tests.support.docker_daemon import Daemon
from tests.support.machines import link_tree
from tests.support.places import SUPPORT
from tests.support.serve import CONFIG
from tests.support.waiting import GENEROUS, until

STUB = SUPPORT / "docker_stub.py"


IMAGE = "ghcr.io/huggingface/text-generation-inference:3.3.5-gaudi"


class User:
    """Runs the command on a separate machine, with a separate docker."""

    engine: tuple[str, ...] = ("--engine", "tgi")

    def __init__(self, folder: Path) -> None:
        machine = folder / "machine"
        link_tree("hls2", machine)
        docker = machine / "bin" / "docker"
        docker.write_text(f'#!/bin/sh\nexec {sys.executable} {STUB} "$@"\n')
        docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
        self.docker = docker
        self.daemon = Daemon(folder / "docker", images={IMAGE})
        self.model = folder / "models" / "Small"
        self.model.mkdir(parents=True)
        (self.model / "config.json").write_text(json.dumps(CONFIG))
        (self.model / "tokenizer.json").write_text("{}")
        (self.model / "pytorch_model.bin").touch()
        self.state = folder / "state"
        ours = ("VLLM_", "HABANA_", "PT_HPU", "LC_", "LANG", "HF_", "QUANT_")
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(ours)},
            "HOME": str(folder / "home"),
            "XDG_STATE_HOME": str(self.state),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_DATA_HOME": str(folder / "data"),
            "GAUDI_LAUNCH_ROOT": str(machine),
            "PATH": f"{machine / 'bin'}:{os.environ['PATH']}",
            "STUB_DOCKER": str(self.daemon.path),
        }
        self.running: list[subprocess.Popen[str]] = []

    def asked(self, *words: str) -> list[str]:
        named = [str(self.model) if word == "MODEL" else word for word in words]
        return ["serve", "--no-doctor", *self.engine, *named]

    def start(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "gaudi_launch", *self.asked(*words)],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return process

    def run(self, *words: str) -> tuple[int, str, str]:
        """Serve here what ends by itself."""
        return called(self.environment, *self.asked(*words))

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.daemon.close()


def hurry(user: User, process: subprocess.Popen[str], name: str) -> None:
    """End a service whose engine ignores SIGTERM, by a second signal.

    It is sent once the first has its effect.
    """
    state = user.state / "gaudi-launch/services" / name / "state.json"
    process.send_signal(signal.SIGTERM)
    until(lambda: json.loads(state.read_text())["phase"] == "stopping", "the first signal's effect")
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=GENEROUS)
    assert process.returncode == 130
