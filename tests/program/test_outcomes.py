"""What a command prints of its use case's result, and the exit code that it ends with."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.launch import serve as launch_serve
from gaudi_launch.core.services import run_record as services_run_record
from gaudi_launch.core.services.run_record import RunRecord
from gaudi_launch.core.services.state import store as state_store
from gaudi_launch.extensions.cluster import case as cluster_case
from gaudi_launch.extensions.cluster import view as cluster_view
from tests.support.cli import output

pytestmark = pytest.mark.usefixtures("plain_english")


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace a function of the program, by a result."""

    def replace_it(
        place: Callable[..., Any], result: Any
    ) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

        def called(*arguments: Any, **named: Any) -> Any:
            calls.append((arguments, named))
            if isinstance(result, BaseException):
                raise result
            return result

        monkeypatch.setattr(sys.modules[place.__module__], place.__name__, called)
        return calls

    return replace_it


PLAN = SimpleNamespace(model={"name": "Qwen3-8B", "path": "/m"}, url="http://h:2")


def started(tmp_path: Path, kind: str | None) -> SimpleNamespace:
    outcome = None if kind is None else SimpleNamespace(kind=kind)
    return SimpleNamespace(name="chat", outcome=outcome, log=tmp_path / "engine.log", plan=PLAN)


def test_a_serve_that_was_stopped_ends_with_130_and_the_run_of_simulated_cards(
    replaced: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    replaced(launch_serve.start, started(tmp_path, "stopped"))
    replaced(state_store.read, {"engine_began": 5.0})
    record = RunRecord(10, 0, 1.0, 0.0, None, 4, 1.0, real_time=True)
    reads = replaced(services_run_record.read_run_record, record)
    code, out, err = output(capsys, "serve", "/m")
    assert (code, out, reads) == (130, "", [((tmp_path, 5.0), {})])
    assert len(err.splitlines()) == 2
    assert err.splitlines()[1].startswith("The simulated cards were in time: 0 of 10 steps late")


def test_stop_goes_on_after_a_service_that_cannot_be_stopped(
    replaced: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gaudi_launch.core.base.errors import ExitCode, LaunchError
    from gaudi_launch.core.launch import stop as use_case
    from gaudi_launch.core.services.state import chosen
    from gaudi_launch.core.services.stop import Stopped

    calls: list[tuple[Any, ...]] = []

    def end(service: Any, drain: float, reporter: Any, *, forget: bool) -> Any:
        calls.append((service.name, drain, forget))
        if service.name in ("a", "c"):
            raise LaunchError(
                "profiles.missing", ExitCode.ENGINE, where=service.name, name="an end"
            )
        return Stopped(service, was_alive=True, left=0, orphans=())

    monkeypatch.setattr(use_case, "end", end)
    monkeypatch.setattr(chosen, "find", lambda name: SimpleNamespace(name=name))
    assert output(capsys, "stop", "a", "b", "c", "--drain", "5m", "--forget") == (
        4,
        "",
        "b: stopped; no process remains\na lacks an end.\ngaudi-launch: c lacks an end.\n",
    )
    assert calls == [("a", 300.0, True), ("b", 300.0, True), ("c", 300.0, True)]
    code, out, _ = output(capsys, "stop", "b", "--json")
    assert (code, calls[3:]) == (0, [("b", 30.0, False)])
    assert json.loads(out)["stopped"][0]["name"] == "b"


@pytest.mark.parametrize(("trouble", "code"), [(None, 0), ("x", 1)])
def test_a_part_of_a_cluster_that_does_not_end_is_exit_code_1(
    trouble: str | None, code: int, replaced: Any
) -> None:
    replaced(cluster_case.to_end, ("site", ()))
    downs = replaced(cluster_case.down, {("a", "ray"): trouble})
    replaced(cluster_view.show_down, None)
    assert run(["cluster", "down"]) == code
    assert downs == [(("site", ()), {})]
