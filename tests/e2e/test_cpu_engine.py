"""The main job on a real engine that cannot start.

That it answers, streams and is kept is seen in test_services.py; that it stops, and what remains
when it is killed, in test_vllm_gaudi.py.
"""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest

from tests.support.every_case import ONE_MORE_ENGINE
from tests.support.real_engines import Serve
from tests.support.serve import write_model

pytestmark = pytest.mark.e2e


@ONE_MORE_ENGINE
def test_an_engine_that_cannot_load_the_model_is_exit_4_with_its_cause(
    engine: Path, tiny_model: Path, port: int, tmp_path: Path, serving: list[Serve]
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(tiny_model, broken)
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(
        json.dumps({**config, "architectures": ["NobodyKnowsThisForCausalLM"]})
    )
    serve = Serve(tmp_path, "-w", str(broken), "--engine", "cpu", "-p", str(port))
    serving.append(serve)
    code, err = serve.wait()
    assert code == 4 and "does not support this model" in err and "engine.log" in err


def test_a_taken_port_is_exit_3_before_anything_starts(
    engine: Path, tmp_path: Path, serving: list[Serve]
) -> None:
    model = write_model(tmp_path / "Small")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        serve = Serve(
            tmp_path, "-w", str(model), "--engine", "cpu", "-p", str(taken.getsockname()[1])
        )
        serving.append(serve)
        code, err = serve.wait()
    assert code == 3 and "is in use" in err
