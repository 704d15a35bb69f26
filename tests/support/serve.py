"""A simulated Gaudi machine on which serve runs the trivial engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import called
from tests.support.machines import link_tree

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "hidden_size": 256,
    "max_position_embeddings": 4096,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    folder = tmp_path / "machine"
    link_tree("hls2", folder)
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "models" / "Small")


def write_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    # weights whose size is not known
    (folder / "pytorch_model.bin").touch()
    return folder


class Gaudi:
    """Runs the command as a user with a separate machine."""

    def __init__(self, tmp_path: Path, machine: Path, python: Path, pids: Path) -> None:
        self.state = tmp_path / "state"
        self.environment = {
            **{
                k: v
                for k, v in os.environ.items()
                if not k.startswith(("VLLM_", "HABANA_", "PT_HPU", "LC_", "LANG"))
            },
            "XDG_STATE_HOME": str(self.state),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "XDG_DATA_HOME": str(tmp_path / "data"),
            "GAUDI_LAUNCH_ROOT": str(machine),
            "PATH": f"{machine / 'bin'}:{os.environ['PATH']}",
            "TRIVIAL_PIDS": str(pids),
        }
        self.python = python
        self.running: list[subprocess.Popen[str]] = []

    def asked(self, *words: str) -> tuple[str, ...]:
        return ("serve", "--no-doctor", "--python", str(self.python), *words)

    def start(self, *words: str, do: str = "", **variables: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "gaudi_launch", *self.asked(*words)],
            env={**self.environment, "TRIVIAL_DO": do, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return process

    def run(self, *words: str, do: str = "") -> tuple[int, str, str]:
        """Serve here what ends by itself."""
        return called({**self.environment, "TRIVIAL_DO": do}, *self.asked(*words))


@pytest.fixture
def gaudi(tmp_path: Path, machine: Path, trivial_python: Path, pids: Path) -> Iterator[Gaudi]:
    user = Gaudi(tmp_path, machine, trivial_python, pids)
    yield user
    for process in user.running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ready_lines(process: subprocess.Popen[str]) -> list[str]:
    """Return the lines when it answers: address, chat, first request, log."""
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(4)]
