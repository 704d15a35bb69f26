"""What a command prints of its use case's result, and the exit code that it ends with."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app.render import Destination
from gaudi_launch.cli.main import run
from gaudi_launch.services.run_record import RunRecord
from gaudi_launch.services.state.orphans import Lost
from tests.support.cli import output

pytestmark = pytest.mark.usefixtures("plain_english")


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace a function of the program, by its module and name, by a result."""

    def replace_it(place: str, result: Any) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

        def called(*arguments: Any, **named: Any) -> Any:
            calls.append((arguments, named))
            if isinstance(result, BaseException):
                raise result
            return result

        module, name = place.split(":")
        monkeypatch.setattr(importlib.import_module(f"gaudi_launch.{module}"), name, called)
        return calls

    return replace_it


def file(size: int) -> SimpleNamespace:
    return SimpleNamespace(size=size)


def test_pull_names_the_folder_and_the_size(
    replaced: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    done = SimpleNamespace(
        folder=Path("/data/m"),
        listing=SimpleNamespace(source="hf", revision="abc"),
        files=(file(3 << 30), file(1 << 30)),
        fetched=1,
        unread=1,
    )
    replaced("app.model_setup:fetch", done)
    assert output(capsys, "pull", "me/m", "--json")[:2] == (
        0,
        json.dumps(
            {
                "schema": 1,
                "repo": "me/m",
                "source": "hf",
                "revision": "abc",
                "folder": "/data/m",
                "files": 2,
                "bytes": 4 << 30,
                "fetched": 1,
                "unread": 1,
            },
            indent=2,
        )
        + "\n",
    )
    code, out, err = output(capsys, "pull", "me/m")
    assert (code, err) == (0, "")
    assert out == (
        "2 files, 4.00 GiB, verified: /data/m\n1 of them have the size and time that they were"
        " verified with, and were not read again (--verify reads them).\n"
    )
    _, out, _ = output(capsys, "pull", "me/m", "--lang", "zh")
    assert out.splitlines()[0] == "2 个文件，4.00 GiB，已校验：/data/m"


STARTING = (
    "chat is starting; follow it with 'gaudi-launch wait chat' or 'gaudi-launch logs -f chat'.\n"
)
SERVED = SimpleNamespace(
    state={"served": "m", "answers": "/v1/completions", "no_chat": ""}, url="http://h:1"
)


def test_restart_waits_for_the_service_unless_it_must_not(
    replaced: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    replaced("app.stop:restart", None)
    waits = replaced("cli.service_progress:until_ready", SERVED)
    assert output(capsys, "restart", "chat", "--no-wait") == (
        0,
        "",
        STARTING,
    )
    assert waits == []
    assert output(capsys, "restart", "chat") == (0, "chat: m answers at http://h:1\n", "")
    assert waits == [(("chat",), {})]


PLAN = SimpleNamespace(model={"name": "Qwen3-8B", "path": "/m"}, url="http://h:2")


def started(tmp_path: Path, kind: str | None) -> SimpleNamespace:
    outcome = None if kind is None else SimpleNamespace(kind=kind)
    return SimpleNamespace(name="chat", outcome=outcome, log=tmp_path / "engine.log", plan=PLAN)


def test_a_detached_serve_ends_when_it_answers_or_at_once(
    replaced: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    replaced("app.serve:start", started(tmp_path, None))
    waits = replaced("cli.service_progress:until_ready", SERVED)
    code, out, err = output(capsys, "serve", "/m", "--detach", "--no-wait")
    assert (code, out, err) == (
        0,
        "",
        STARTING,
    )
    assert waits == []
    code, out, err = output(capsys, "serve", "/m", "--detach")
    assert (code, err, waits) == (0, "", [(("chat",), {})])
    lines = out.splitlines()
    assert re.fullmatch(r"Ready after \d+ s: m answers at http://h:1", lines[0])
    assert "http://h:1/v1/chat/completions" in lines[1]
    assert lines[2:] == [f"  log: {tmp_path}/engine.log", "  stop it: gaudi-launch stop chat"]


def test_ctrl_c_ends_the_wait_of_a_detached_serve_only(
    replaced: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    replaced("app.serve:start", started(tmp_path, None))
    replaced("cli.service_progress:until_ready", KeyboardInterrupt())
    code, out, err = output(capsys, "serve", "/m", "--detach")
    assert (code, out) == (130, "")
    assert err == (
        "chat is still starting; 'gaudi-launch wait chat' shows the progress, 'gaudi-launch stop "
        "chat' stops it.\n"
    )


def test_a_serve_that_was_stopped_ends_with_130_and_the_run_of_simulated_cards(
    replaced: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    replaced("app.serve:start", started(tmp_path, "stopped"))
    replaced("services.state.store:read", {"engine_began": 5.0})
    record = RunRecord(10, 0, 1.0, 0.0, None, 4, 1.0, real_time=True)
    reads = replaced("services.run_record:read_run_record", record)
    code, out, err = output(capsys, "serve", "/m")
    assert (code, out, reads) == (130, "", [((tmp_path, 5.0), {})])
    assert len(err.splitlines()) == 2
    assert err.splitlines()[1].startswith("The simulated cards were in time: 0 of 10 steps late")


def test_stop_goes_on_after_a_service_that_cannot_be_stopped(
    replaced: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gaudi_launch.app import stop as use_case
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.services.state import registry

    calls: list[tuple[Any, ...]] = []

    def end(service: Any, drain: float, reporter: Any, *, forget: bool) -> Any:
        calls.append((service.name, drain, forget))
        if service.name in ("a", "c"):
            raise LaunchError(
                "profiles.missing", ExitCode.ENGINE, where=service.name, name="an end"
            )
        stopped = SimpleNamespace(service=service, was_alive=True, left=0, orphans=())
        return SimpleNamespace(
            stopped=stopped, busy=(), run=None, name=service.name, was_running=True
        )

    monkeypatch.setattr(use_case, "end", end)
    monkeypatch.setattr(registry, "find", lambda name: SimpleNamespace(name=name))
    assert output(capsys, "stop", "a", "b", "c", "--drain", "5m", "--forget") == (
        4,
        "",
        "b: stopped; no process remains\na lacks an end.\ngaudi-launch: c lacks an end.\n",
    )
    assert calls == [("a", 300.0, True), ("b", 300.0, True), ("c", 300.0, True)]
    code, out, _ = output(capsys, "stop", "b", "--json")
    assert (code, calls[3:]) == (0, [("b", 30.0, False)])
    assert json.loads(out)["stopped"][0]["name"] == "b"


def test_stop_all_stops_what_runs(replaced: Any, capsys: pytest.CaptureFixture[str]) -> None:
    replaced(
        "services.state.registry:services",
        [SimpleNamespace(name="a", alive=False), SimpleNamespace(name="b", alive=False)],
    )
    ends = replaced("app.stop:end", None)
    assert output(capsys, "stop", "--all") == (
        0,
        "No service is running. 'gaudi-launch ps -a' also shows stopped services.\n",
        "",
    )
    assert ends == []


def test_without_orphans_nothing_is_asked_and_nothing_ended(
    replaced: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    replaced("services.state.orphans:look", Lost())
    ends = replaced("app.stop:end_orphans", ())
    assert output(capsys, "stop", "--orphans") == (0, "", "No orphaned process was found.\n")
    assert [arguments for arguments, _ in ends] == [((),)]
    code, out, err = output(capsys, "stop", "--orphans", "--yes", "--json")
    assert (code, json.loads(out), err) == (
        0,
        {"schema": 1, "ended": [], "left": [], "unsure": []},
        "",
    )


@pytest.mark.parametrize(("line", "whole", "code"), [("status", True, 0), ("status", False, 1)])
def test_a_cluster_that_is_not_whole_is_exit_code_1(
    line: str, whole: bool, code: int, replaced: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    state = SimpleNamespace(whole=whole)
    replaced("app.cluster:status", (SimpleNamespace(name="site"), state))
    shows = replaced("cli.views.cluster:show_status", None)
    assert run(["cluster", line, "--json"]) == code
    ((_, shown, as_json), _) = shows[0]
    assert (shown, as_json) == (state, True)


@pytest.mark.parametrize(("trouble", "code"), [(None, 0), ("x", 1)])
def test_a_part_of_a_cluster_that_does_not_end_is_exit_code_1(
    trouble: str | None, code: int, replaced: Any
) -> None:
    cluster = SimpleNamespace(members=(), name="site")
    replaced("app.cluster:to_end", cluster)
    downs = replaced("app.cluster:down", [SimpleNamespace(trouble=trouble)])
    replaced("cli.views.cluster:show_down", None)
    assert run(["cluster", "down"]) == code
    assert downs == [((cluster,), {})]


def test_the_metrics_are_one_object_or_a_page(
    replaced: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = replaced("watch.exporter:to_json", [{"name": "a"}])
    pages = replaced("watch.exporter:page", "a 1\n")
    line = "exporter --once --machine simulated:hls2"
    assert output(capsys, *shlex.split(line)) == (0, "a 1\n", "")
    code, out, _ = output(capsys, *shlex.split(f"{line} --json"))
    assert (code, json.loads(out)) == (0, {"schema": 1, "metrics": [{"name": "a"}]})
    assert objects == pages == [(("simulated:hls2",), {})]
    assert output(capsys, "exporter", "--once")[0] == 0
    assert pages[1] == ((None,), {})


def test_an_address_that_is_taken_is_refused_by_the_exporter(
    replaced: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    listens = replaced("watch.exporter_server:listen", OSError(98, "Address already in use"))
    replaced("watch.exporter:registry", "registry")
    code, out, err = output(capsys, "exporter", "-u", "h", "-p", "9000")
    assert (code, out, listens) == (3, "", [(("h", 9000, "registry"), {})])
    assert "h" in err and "9000" in err and "Address already in use" in err


@pytest.mark.parametrize(
    ("options", "output_to", "several"),
    [("--to /o", "/o", False), ("--helm /h --json", "/h/", True), ("", None, False)],
)
def test_rendered_objects_are_delivered_to_their_place(
    options: str, output_to: str | None, several: bool, replaced: Any
) -> None:
    replaced("app.kubernetes:render_kubernetes", ("files", "release"))
    delivered = replaced("app.render:deliver", "delivered")
    shows = replaced("cli.views.render:show", None)
    assert run(["render", "kubernetes", "/m", "--force", *shlex.split(options)]) == 0
    to = Destination(output_to, "release", several=several)
    assert delivered == [(("files", "kubernetes", to), {"force": True})]
    assert shows == [(("delivered",), {"as_json": several})]


def test_a_plan_that_is_saved_names_its_file(
    replaced: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    words = ("plan", "Qwen/Qwen3-8B", "-n", "1", "--machine", "simulated:hls2", "--save", str(path))
    code, _, err = output(capsys, *words)
    assert (code, path.is_file()) == (0, True)
    assert err == f"Saved to {path}. To start it: gaudi-launch serve --plan {path}\n"
    code, out, err = output(capsys, *words, "--json")
    assert (code, err, json.loads(out)["schema"]) == (0, "", 1)


@pytest.mark.parametrize(("yes", "changes", "code"), [(True, 1, 3), (False, 0, 3), (False, 1, 2)])
def test_repairs_are_applied_with_consent_only(
    yes: bool, changes: int, code: int, replaced: Any
) -> None:
    plan = SimpleNamespace(changes=("change",) * changes)
    replaced("app.doctor:plan_fix", plan)
    rights = replaced("app.doctor:check_rights", None)
    applies = replaced("app.doctor:apply", SimpleNamespace(exit_code=lambda strict: 3))
    shows = replaced("cli.views.doctor:show_planned", None)
    fixed = replaced("cli.views.doctor:show_fixed", None)
    words = ["doctor", "--fix", "--strict", "--verbose", *(["--yes"] if yes else [])]
    assert run(words) == code
    assert shows == [((plan, False), {})]
    assert len(rights) == changes
    # without a terminal nobody can agree
    done: list[Any] = [((plan,), {})] if code == 3 else []
    assert applies == done
    assert len(fixed) == len(done)
    assert [named for _, named in fixed] == [
        {"strict": True, "verbose": True, "as_json": False} for _ in done
    ]


@pytest.mark.parametrize("value", ["2.1", "-1", "x"])
def test_a_temperature_is_0_to_2(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = output(capsys, "chat", "http://h:1", "--temperature", value)
    assert (code, out) == (2, "")
    assert "--temperature" in err and value in err and "0.0 to 2.0" in err
