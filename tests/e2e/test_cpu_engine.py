"""The main job on a port that is taken.

That it answers, streams and is kept is seen in test_services.py; that it stops, and what remains
when it is killed, in test_vllm_gaudi.py.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.real_engines import Serve
from tests.support.serve import write_model

pytestmark = pytest.mark.e2e


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
