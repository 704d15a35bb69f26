"""Background work survives what it raises, and no thread of the package is without that."""

from __future__ import annotations

import ast
import logging
import threading

import pytest

from gaudi_launch.core.base.background import Loop, in_background
from tests.support.places import PACKAGE
from tests.support.waiting import until

# threads that are not background work, and why
_OTHERS = {
    "core/base/background.py": "the one place",
    "core/base/http_client.py": "its caller waits and raises what the thread raised",
    "core/recipes/keeper.py": "not a daemon: the ledger is written to its end",
    "extensions/stack/gateway/runtime/gateway_process.py": "runs without the package",
    "extensions/ray/runtime/gaudi_ray_engine.py": "runs without the package",
    "extensions/ray/runtime/gaudi_ray_generate.py": "runs without the package",
    "core/hosts/agent.py": "runs without the package",
}


def test_every_thread_of_the_package_survives() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Thread"
    }
    assert found == set(_OTHERS)


def test_what_work_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        in_background(lambda: int("x")).join()
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_a_loop_continues_after_any_error_and_knows_the_age_of_its_success() -> None:
    calm, ended = threading.Event(), threading.Event()
    turns: list[int] = []
    errors: list[str] = []

    def turn() -> None:
        turns.append(1)
        if not calm.is_set():
            raise ArithmeticError(f"turn {len(turns)}")

    loop = Loop(turn, 0.01, lambda error: errors.append(str(error)), ended.set)
    loop.start()
    until(lambda: len(errors) >= 3, "three errors")
    before = loop.age
    calm.set()
    until(lambda: loop.age < before, "a success")
    loop.stop()
    assert ended.wait(20) and loop.is_stopped
    assert errors[:3] == ["turn 1", "turn 2", "turn 3"] and len(turns) > len(errors)
