"""The faults of simulated cards: when they come, what they do, and what is left of them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gaudi_launch.core.services.diagnosis.diagnose import diagnose
from gaudi_launch.extensions.simulated.engine import RUNTIME

if TYPE_CHECKING:
    from gaudi_simulated_faults import Fault, Faults


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(RUNTIME))
    yield


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def fault(kind: str, after: float = 10.0, module: int | None = None) -> Fault:
    from gaudi_simulated_faults import Fault

    return Fault(kind, after, module)


def started(*coming: Fault) -> tuple[Faults, Clock, list[str]]:
    from gaudi_simulated_faults import Faults

    clock, lines = Clock(), list[str]()
    faults = Faults(list(coming), lines.append, clock)
    faults.start()
    return faults, clock, lines


def test_a_step_before_its_time_is_as_ever() -> None:
    faults, clock, lines = started(fault("oom"), fault("slow-card", module=3), fault("compile"))
    clock.seconds = 9.9
    faults.before_step()
    assert (faults.slowness(), faults.once("compile"), lines) == (1.0, None, [])


@pytest.mark.parametrize(("kind", "cause"), [("oom", "device_oom"), ("card-lost", "device_reset")])
def test_a_failed_card_ends_the_engine_with_its_cause_in_the_log(kind: str, cause: str) -> None:
    faults, clock, lines = started(fault(kind, module=2))
    clock.seconds = 10.0
    with pytest.raises(RuntimeError) as failed:
        faults.before_step()
    assert lines == [f"Simulated fault of module 2: {kind}, 10 s after the warm-up"]
    assert (
        diagnose(f"RuntimeError: {failed.value}", exit_status=1, outcome="died").causes[0].id
        == cause
    )


def test_a_slow_card_delays_every_step_of_its_engine() -> None:
    faults, clock, lines = started(fault("slow-card", module=3))
    clock.seconds = 10.0
    assert [faults.slowness(), faults.slowness(), len(lines)] == [2.0, 2.0, 1]


def test_an_engine_that_hangs_never_ends_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    import gaudi_simulated_faults

    faults, clock, lines = started(fault("hang"))
    clock.seconds = 10.0
    monkeypatch.setattr(gaudi_simulated_faults, "_FOREVER_SECONDS", 0.01)
    step = threading.Thread(target=faults.before_step, daemon=True)
    step.start()
    step.join(0.3)
    assert step.is_alive()
    assert lines == ["Simulated fault: hang, 10 s after the warm-up"]


def test_a_crash_needs_no_step() -> None:
    program = (
        "import time; from gaudi_simulated_faults import Fault, Faults\n"
        "Faults([Fault('crash', 0.05)], lambda line: print(line, flush=True)).start()\n"
        "time.sleep(60)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=RUNTIME,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGSEGV
    assert done.stdout == "Simulated fault: crash, 0 s after the warm-up\n"


def entry(kind: str, module: int | None = None, rank: int = 0) -> dict[str, Any]:
    return {"kind": kind, "after": 5.0, "module": module, "rank": rank}


def test_another_copy_of_the_model_has_no_fault() -> None:
    from gaudi_simulated_faults import faults_of, missing_card

    document = [entry("card-lost", 2, rank=1)]
    assert faults_of(document, 0, restarts=0) == []
    assert not missing_card(document, 0, restarts=1)


def test_restarts_are_read_from_the_service(tmp_path: Path) -> None:
    from gaudi_simulated_faults import restarts_in

    assert restarts_in(None) == restarts_in(str(tmp_path)) == 0
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"restarts": 2}))
    assert restarts_in(str(tmp_path)) == 2
    for broken in ("", "[]", '{"restarts": "x"}'):
        state.write_text(broken)
        assert restarts_in(str(tmp_path)) == 0
