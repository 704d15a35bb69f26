"""Stacks with real processes: engines' stand-ins on a machine in a folder, and a gateway."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psutil
import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.launch.report import Silent
from gaudi_launch.core.launch.stop import end
from gaudi_launch.core.services.addresses import port_free
from gaudi_launch.core.services.state import registry, store
from gaudi_launch.core.services.state.chosen import find
from gaudi_launch.core.services.state.identity import identity_in
from gaudi_launch.core.services.state.registry import services
from gaudi_launch.core.services.why import why
from gaudi_launch.extensions.stack import case as stack
from gaudi_launch.extensions.stack import change as stack_change
from gaudi_launch.extensions.stack import init as stack_init
from gaudi_launch.extensions.stack import stack_plan
from gaudi_launch.extensions.stack.change import ChangedStack, ChangeOptions
from gaudi_launch.extensions.stack.stack_plan import StackChanges
from tests.support.gateways import call, chat, gateway_engines, keys_file, members_of
from tests.support.machines import link_tree
from tests.support.places import TOP
from tests.support.processes import TRIVIAL, living, pids, write_engine_python
from tests.support.refusals import failing, refused
from tests.support.reporters import Lines
from tests.support.serve import write_model
from tests.support.waiting import GENEROUS, until, unused_port

__all__ = ["gateway_engines", "pids"]

pytestmark = pytest.mark.usefixtures("plain_english")


Write = Callable[[str], Path]


@pytest.fixture
def write(
    tmp_path: Path,
    own_folders: Path,
    pids: Path,
    gateway_engines: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Write]:
    """Return what writes stack.yaml beside a model, on a machine with an engine's stand-in.

    ``PORT`` and ``PYTHON`` in its text are replaced. What still runs at the end is stopped.
    """
    machine = tmp_path / "machine"
    link_tree("hls2", machine)
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(machine))
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(gateway_engines))
    monkeypatch.setenv("TRIVIAL_PIDS", str(pids))
    monkeypatch.setenv("PATH", f"{machine / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    python = write_engine_python(tmp_path / "engine-python", f"{sys.executable} {TRIVIAL}")
    write_model(tmp_path / "Small")
    port = str(unused_port())
    path = tmp_path / "stack.yaml"

    def made(content: str) -> Path:
        path.write_text(
            content.replace("PORT", port).replace("PYTHON", str(python)), encoding="utf-8"
        )
        return path

    yield made
    for state in stack.ps():
        stack.down(state.record.name, Silent(), 0)


TWO = """\
schema: 1
gateway: {port: PORT, keys-file: keys}
models:
- name: a
  model: ./Small
  replicas: 2
  aliases: [org/a]
  after: [b]
  options: {cards: 2, python: PYTHON}
- name: b
  model: ./Small
  options: {cards: 4, python: PYTHON}
"""


def port_of(path: Path) -> int:
    return stack_plan.plan(path).stack.gateway.port


def begun(name: str) -> object:
    return find(name).state.get("engine_began")


def up(path: Path) -> tuple[tuple[str, ...], list[str]]:
    reporter = Lines()
    started = stack.up(path, reporter, no_doctor=True)[1].started
    return started, reporter.lines


def test_a_stack_answers_stays_as_it_is_heals_and_leaves_nothing(
    write: Write, tmp_path: Path, pids: Path
) -> None:
    keys_file(tmp_path)
    path = write(TWO)
    names = ("stack-gateway", "stack-a", "stack-a-2", "stack-b")
    started, lines = up(path)
    assert started == names
    # b answers before an engine of a is started
    # beside it may stand what another engine of this machine left behind
    own = [line.split()[0] for line in lines if line.startswith(("The", "stack-"))]
    assert own == ["The", "stack-b", "stack-b", *["stack-a", "stack-a-2"] * 2]
    cards = {name: find(name).modules for name in names}
    assert cards == {
        "stack-gateway": (),
        "stack-a": (4, 5),
        "stack-a-2": (6, 7),
        "stack-b": (0, 1, 2, 3),
    }
    port = port_of(path)
    assert {
        model: call(port, chat(model, stream=False), key="sk-alice").status
        for model in ("a", "org/a", "b")
    } == {"a": 200, "org/a": 200, "b": 200}
    assert call(port, chat("a"), key="wrong").status == 401
    assert {service.url.partition(":3")[0] for service in services() if service.modules} == {
        "http://127.0.0.1"
    }

    # up twice changes nothing
    before = {name: begun(name) for name in names}
    assert run(["stack", "up", str(path), "--no-doctor"]) == 0
    assert {name: begun(name) for name in names} == before

    # up starts what is missing, and only that; the gateway finds it
    launcher = find("stack-b").launcher
    assert launcher is not None
    launcher.send(signal.SIGTERM)
    until(lambda: not find("stack-b").alive, "the end of stack-b")
    assert up(path)[0] == ("stack-b",)
    assert {name: begun(name) == before[name] for name in names} == {
        name: name != "stack-b" for name in names
    }
    assert find("stack-b").modules == (0, 1, 2, 3)
    until(lambda: call(port, chat("b", stream=False), key="sk-bob").status == 200, "an answer of b")

    # what runs is not changed by other settings
    path.write_text(path.read_text().replace("cards: 4", "cards: 1"), encoding="utf-8")
    with pytest.raises(LaunchError) as raised:
        up(path)
    assert (raised.value.id, raised.value.text.values["services"]) == ("stack.changed", "stack-b")

    _, ended = stack.down(str(path), Silent(), 0)
    assert sorted(each.service.name for each in ended) == sorted(names)
    assert (services(), living(pids), call(port).status) == ([], [], 0)
    state = tmp_path / "state"
    assert [each for each in state.rglob("*") if "stack" in each.name] == []
    assert stack.down(str(path), Silent(), 0)[1] == ()


def test_a_failed_model_is_reported_and_the_others_stay(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIVIAL_DO", "die")
    path = write(
        'schema: 1\ngateway: {port: PORT}\nmodels:\n- name: a\n  model: ./Small\n  restart: "no"\n'
        "  options: {cards: 1, python: PYTHON}\n"
    )
    with pytest.raises(LaunchError) as raised:
        up(path)
    assert raised.value.exit_code is ExitCode.ENGINE
    assert [(each.name, each.alive) for each in stack.ps("stack")[0].services] == [
        ("stack-gateway", True),
        ("stack-a", False),
    ]
    monkeypatch.delenv("TRIVIAL_DO")
    # the failed one is no longer in the file, so nothing of it is left
    path.write_text(path.read_text().replace("name: a", "name: c"), encoding="utf-8")
    gateway = find("stack-gateway")
    with pytest.raises(LaunchError) as raised:
        up(path)
    assert raised.value.text.values["services"] == "stack-gateway"
    end(gateway, 0, Silent())
    assert up(path)[0] == ("stack-gateway", "stack-c")
    assert sorted(each.name for each in services()) == ["stack-c", "stack-gateway"]


class Removing(Lines):
    """Removes a folder as soon as the gateway answers."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def say(self, line: str) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def test_a_first_launch_that_fails_is_named_with_its_line_and_leaves_no_record(
    write: Write, tmp_path: Path
) -> None:
    path = write(ONE)
    with failing("stack.at_line", ExitCode.MODEL) as raised:
        stack.up(path, Removing(tmp_path / "Small"), no_doctor=True)
    assert raised.value.text.values["line"] == 4
    assert (stack.ps(), services()) == ((), [])
    # beside an engine that was started, the record stays
    write_model(tmp_path / "Small")
    write_model(tmp_path / "Other")
    path = write(TWO.replace(", keys-file: keys", "").replace("./Small\n  rep", "./Other\n  rep"))
    with failing("stack.at_line", ExitCode.MODEL) as raised:
        stack.up(path, Removing(tmp_path / "Other"), no_doctor=True)
    assert raised.value.text.values["line"] == 4
    [state] = stack.ps()
    assert {each.name: each.alive for each in state.services} == {
        "stack-gateway": True,
        "stack-b": True,
    }


def test_what_another_service_or_variable_has_is_refused(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(ONE)
    folder = store.service_dir("stack-a")
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(json.dumps({"schema": 1, "phase": "ready"}))
    for change in (up, apply):
        taken = refused("services.name_taken", ExitCode.USAGE, name="stack-a")
        with registry.hold("stack-a"), taken:
            change(path)
        with monkeypatch.context() as given:
            given.setenv("VLLM_API_KEY", "k")
            with refused("stack.api_key", ExitCode.USAGE):
                change(path)
    assert stack.ps() == ()


class Taking(Lines):
    """Takes a port as soon as the gateway answers."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port, self.taken = port, socket.socket()
        self.taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    def say(self, line: str) -> None:
        if not self.lines:
            self.taken.bind(("127.0.0.1", self._port))
            self.taken.listen()
        super().say(line)


def test_a_port_that_is_taken_after_the_plan_is_no_engines(write: Write) -> None:
    path = write(TWO.replace(", keys-file: keys", "").replace("  replicas: 2\n", ""))
    planned = [int(each.options.port or 0) for each in stack_plan.plan(path).services]
    reporter = Taking(planned[0])
    with reporter.taken:
        stack.up(path, reporter, no_doctor=True)
        found = {each.name: int(each.url.rpartition(":")[2]) for each in services()}
        assert found["stack-b"] == planned[1]
        assert found["stack-a"] not in planned
        assert [call(port_of(path), chat(model)).status for model in "ab"] == [200, 200]


def apply(path: Path, *, agree: bool = False) -> tuple[ChangedStack | None, list[StackChanges]]:
    """Apply a file; return what was done, and the changes that needed consent."""
    asked: list[StackChanges] = []

    def consent(changes: StackChanges) -> bool:
        asked.append(changes)
        return agree

    _, changed = stack.apply(path, Silent(), ChangeOptions(no_doctor=True, drain=5), consent)
    return changed, asked


ONE = """\
schema: 1
gateway: {port: PORT}
models:
- name: a
  model: ./Small
  options: {cards: 4, python: PYTHON}
"""


def statuses(port: int, *keys: str) -> list[int]:
    return [call(port, chat("a", stream=False), key=key).status for key in keys]


def test_keys_count_by_content_and_broken_ones_leave_the_earlier_in_force(
    write: Write, tmp_path: Path
) -> None:
    keys = keys_file(tmp_path)
    path = write(ONE.replace("port: PORT", "port: PORT, keys-file: keys"))
    up(path)
    port, engine, gateway = port_of(path), begun("stack-a"), begun("stack-gateway")
    assert statuses(port, "sk-alice", "sk-bob") == [200, 200]
    keys_file(tmp_path, "bob sk-bob\n")
    assert stack.ps()[0].current is False
    assert apply(path)[0] == ChangedStack((), (), "renewed")
    # refused from the end of the command on
    assert statuses(port, "sk-alice", "sk-bob") == [401, 200]
    keys_file(tmp_path, "bob sk-bob\nalice sk-new\n")
    assert stack.up(path, Silent(), no_doctor=True)[1].gateway == "renewed"
    assert statuses(port, "sk-alice", "sk-bob", "sk-new") == [401, 200, 200]
    assert (apply(path)[0], up(path)[0], stack.ps()[0].current) == (ChangedStack(), (), True)

    for content, mode in (("bob sk-bob\nbroken\n", 0o600), ("bob sk-bob\n", 0o644), ("", 0o600)):
        keys.write_text(content, encoding="utf-8")
        keys.chmod(mode)
        for change in (apply, up):
            with failing("stack.access_kept", ExitCode.USAGE) as raised:
                change(path)
            assert f"{path}, line 2: " in str(raised.value)
        assert statuses(port, "sk-new", "sk-bob") == [200, 200]
    # also after a crash
    members_of("stack-gateway")["process"].kill()
    # its worker may answer until the new one is there
    until(lambda: begun("stack-gateway") != gateway, "its restart")
    until(lambda: statuses(port, "sk-new", "sk-bob", "sk-alice") == [200, 200, 401], "its keys")
    assert begun("stack-a") == engine


def engine_of() -> str:
    """Return the only engine of the only stack."""
    [name] = [name for name, model in stack.ps()[0].record.models.items() if model]
    return name


def test_streams_that_run_longer_than_the_drain_are_reported(write: Write) -> None:
    path = write(ONE)
    up(path)
    port = port_of(path)
    with ThreadPoolExecutor(2) as pool:
        streams = [pool.submit(call, port, chat("a", tokens=1000)) for _ in range(2)]
        until(lambda: stack.ps()[0].routed["stack-a"].requests == 2, "2 requests")
        reporter = Lines()
        stack.restart(stack.target("a"), 0.5, reporter)
        assert [each.result().complete for each in streams] == [False] * 2
    cut = "stack-a: 2 requests in progress when the time of --drain was over, cut"
    assert cut in reporter.lines
    # all of them, engines first
    assert stack.target("stack-a").names == stack.target("a").names == ("stack-a",)
    before = begun("stack-a"), begun("stack-gateway")
    reporter.lines.clear()
    stack.restart(stack.target(), 5, reporter)
    assert reporter.lines[-1] == text("stack.gateway_ready", url=f"http://127.0.0.1:{port}")
    assert begun("stack-a") != before[0] and begun("stack-gateway") != before[1]
    assert call(port, chat("a", stream=False)).status == 200


VICTIMS = (
    *("launcher", "process", "haproxy", "haproxy worker", "large", "large worker"),
    *("engine", "launcher of the engine", "command"),
)


def victim_of(kind: str, command: subprocess.Popen[bytes]) -> psutil.Process:
    """Return a process of the stack, or the command that changes it."""
    if kind == "command":
        return psutil.Process(command.pid)
    if kind in ("engine", "launcher of the engine"):
        field = "engine_process" if kind == "engine" else "launcher"
        return psutil.Process(find(engine_of()).state[field]["pid"])
    return members_of("stack-gateway")[kind]


def listed(port: int, key: str) -> list[tuple[str, str]]:
    """Return the models of a gateway, with their states."""
    data = call(port, path="/v1/models", key=key).document["data"]
    return [(each["id"], each["state"]) for each in data]


def test_whatever_is_killed_around_a_change_the_next_one_completes_it(
    write: Write, tmp_path: Path
) -> None:
    # by hand more of them: STACK_SEED=7 STACK_KILLS=90
    drawn = random.Random(int(os.environ.get("STACK_SEED", "1")))
    base = ONE.replace("port: PORT", "port: PORT, keys-file: keys")
    keys_file(tmp_path, "alice sk-0\n")
    path = write(base)
    up(path)
    port = port_of(path)
    rounds = int(os.environ.get("STACK_KILLS", str(len(VICTIMS))))
    for number in range(1, rounds + 1):
        kind = VICTIMS[number % len(VICTIMS)]
        # every second change starts a new version of the engine, all of them change the keys
        alias = f"n{number // 2}"
        write(base.replace("name: a", f"name: a\n  aliases: [{alias}]"))
        keys_file(tmp_path, f"alice sk-{number}\n")
        with ThreadPoolExecutor(4) as pool:
            streams = [
                pool.submit(call, port, chat("a", tokens=100), key=f"sk-{number - 1}")
                for _ in range(4)
            ]
            before = drawn.random() < 0.2
            words = ["stack", "apply", str(path), "--no-doctor", "--yes", "--drain", "5"]
            with subprocess.Popen(
                [sys.executable, "-m", "gaudi_launch", *words],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ) as command:
                time.sleep(0 if before else drawn.uniform(0.5, 5))
                with contextlib.suppress(psutil.Error, KeyError, ValueError):
                    victim = victim_of(kind, command)
                    victim.kill()
                    if kind != "command":
                        victim.wait(GENEROUS)
                command.wait(GENEROUS)
            apply(path, agree=True)
            cut = [each.result() for each in streams if not each.result().complete]
        where = f"round {number}: {kind}"
        if kind == "command":
            assert cut == [], where
        assert {each.status for each in cut} <= {0, 200, 401, 502, 503}, where
        keys = (f"sk-{number}", f"sk-{number - 1}")
        until(lambda keys=keys: statuses(port, *keys) == [200, 401], where)  # type: ignore[misc]
        assert stack.ps()[0].current, where
        # what the gateway found out about an engine is used for a second
        wanted = [("a", "ready"), (alias, "ready")]
        until(lambda keys=keys, wanted=wanted: listed(port, keys[0]) == wanted, where)  # type: ignore[misc]
        assert len(services()) == 2, where


def test_a_gateway_moves_to_another_address_and_the_engines_stay(write: Write) -> None:
    path = write(ONE)
    up(path)
    port, engine = port_of(path), begun("stack-a")
    other = unused_port()
    write(ONE.replace("PORT", str(other)))
    assert run(["stack", "apply", str(path)]) == ExitCode.USAGE
    assert call(port, chat("a", stream=False)).status == 200
    done, asked = apply(path)
    assert (done, len(asked)) == (None, 1)
    done, asked = apply(path, agree=True)
    assert (done, len(asked)) == (ChangedStack(("stack-gateway",), ("stack-gateway",), "moved"), 1)
    assert call(other, chat("a", stream=False)).status == 200
    assert (port_free("127.0.0.1", port), begun("stack-a")) == (True, engine)
    explained = why("stack-gateway", None)
    assert (explained.found.failed, explained.found.phase) == (False, "ready")


HEAD = "schema: 1\ngateway:\n  port: PORT\n"
MODEL = "models:\n- name: a\n  model: ./Small\n  options: {cards: 1, python: PYTHON}\n"


OTHER = """\
- name: b
  model: ./Small
  options: {cards: 1, python: PYTHON}
"""


def one(options: str) -> str:
    return MODEL.replace("cards: 1", options)


def second(options: str) -> str:
    return OTHER.replace("cards: 1", options)


@pytest.mark.parametrize(
    ("content", "line", "code"),
    [
        (HEAD + "  keys-file: none\n" + MODEL, 4, ExitCode.USAGE),
        (HEAD + "  tls: {certificate: c, key: k}\n" + MODEL, 4, ExitCode.USAGE),
        (HEAD + "  users: {al: {concurrent: 1}}\n" + MODEL, 4, ExitCode.USAGE),
        (HEAD + one("cards: 9"), 5, ExitCode.MACHINE),
        (HEAD + MODEL + second("cards: 8"), 8, ExitCode.MACHINE),
        (HEAD + one("max-model-len: abc"), 5, ExitCode.USAGE),
        (HEAD + MODEL.replace("./Small", "./None"), 5, ExitCode.MODEL),
        (HEAD + one("modules: 1").replace("./Small", "./Small\n  replicas: 2"), 5, ExitCode.USAGE),
        (HEAD + one("engine-arguments: [--api-key, x]"), 5, ExitCode.USAGE),
        (HEAD + one("modules: 1") + second("modules: 1"), 8, ExitCode.USAGE),
    ],
)
def test_bad_input_starts_nothing(
    write: Write, content: str, line: int, code: ExitCode, tmp_path: Path
) -> None:
    path = write(content)
    with pytest.raises(LaunchError) as raised:
        stack.up(path, Silent(), no_doctor=True)
    assert (raised.value.exit_code, raised.value.text.values["line"]) == (code, line), str(
        raised.value
    )
    assert f"{path}, line {line}: " in str(raised.value)
    assert (services(), stack.ps(), (tmp_path / "state/gaudi-launch/stacks").exists()) == (
        [],
        (),
        False,
    )


def test_a_port_of_another_process_is_refused_with_its_line(write: Write) -> None:
    path = write(HEAD + MODEL)
    with socket.create_server(("127.0.0.1", port_of(path))), pytest.raises(LaunchError) as raised:
        up(path)
    assert (raised.value.exit_code, raised.value.text.values["line"]) == (ExitCode.MACHINE, 3)
    assert (services(), stack.ps()) == ([], ())


def test_no_engine_gets_the_port_of_the_gateway(write: Write) -> None:
    path = write(HEAD + MODEL)
    first = int(stack_plan.plan(path).services[0].options.port or 0)
    path.write_text(path.read_text().replace(f"port: {port_of(path)}", f"port: {first}"))
    [engine] = stack_plan.plan(path).services
    assert engine.options.port != first


def test_init_writes_a_file_that_is_planned_alike(tmp_path: Path, own_folders: Path) -> None:
    path = tmp_path / "site.yaml"
    models = ("Qwen/Qwen3-8B", "meta-llama/Llama-3.3-70B-Instruct", "Qwen/Qwen3-8B")
    made = stack_init.init(models, path, port="8123", machine="simulated:hls2")
    again = stack_plan.plan(path, "simulated:hls2")
    found = [(each.name, each.plan.placement.modules) for each in again.services]
    assert found == [(each.name, each.plan.placement.modules) for each in made.services]
    assert found == [
        ("site-qwen3-8b", (4,)),
        ("site-qwen3-8b-2", (5,)),
        ("site-llama-3.3-70b-instruct", (0, 1, 2, 3)),
    ]
    assert (again.stack.gateway.port, again.free) == (8123, (6, 7))
    assert again.start_seconds == made.start_seconds
    first = path.read_text(encoding="utf-8").splitlines()[0]
    schema = Path(first.removeprefix("# yaml-language-server: $schema="))
    assert json.loads(schema.read_text(encoding="utf-8"))["title"].startswith("A stack")
    with failing("stack.exists", ExitCode.USAGE):
        stack_init.init(models, path)


def test_more_cards_than_there_are_write_nothing(tmp_path: Path, own_folders: Path) -> None:
    path = tmp_path / "site.yaml"
    with failing("stack.too_few", ExitCode.MACHINE):
        stack_init.init(["Qwen/Qwen3-8B"] * 9, path, machine="simulated:hls2")
    assert not path.exists()


def test_simulated_cards_are_none_of_this_machine(tmp_path: Path, own_folders: Path) -> None:
    made = stack_init.init(["Qwen/Qwen3-8B"] * 12, tmp_path / "site.yaml", engine="simulated")
    shown = {(each.modules, each.shown_cards) for each in made.services}
    assert (shown, made.cards) == ({((), "1 simulated")}, ())
    assert len({each.options.port for each in made.services}) == 12


def test_the_short_form_of_the_acceptance_keeps_every_promise(write: Write, tmp_path: Path) -> None:
    """An engine and the gateway are killed under load; stand-ins for the engines."""
    keys_file(tmp_path)
    path = write(
        "schema: 1\nname: proof\ngateway: {port: PORT, keys-file: keys}\nmodels:\n"
        "- name: a\n  model: ./Small\n  replicas: 2\n  options: {cards: 1, python: PYTHON}\n"
    )
    script = TOP / "scripts" / "acceptance" / "stack.py"
    words = ["--file", str(path), "--kill", "a", "--requests", "60", "--json"]
    done = subprocess.run(
        [sys.executable, str(script), *words], capture_output=True, text=True, timeout=GENEROUS
    )
    print(done.stderr)
    assert done.returncode == 0
    (checks,) = json.loads(done.stdout)["stacks"].values()
    assert [each["name"] for each in checks if not each["kept"]] == []
    figures = {each["name"]: each["figures"] for each in checks}
    load = figures["no request fails that had not begun to stream"]
    assert (load["requests"], load["failed_before_stream"]) == (60, 0)
    # at most those that the killed engine had
    assert load["cut_in_stream"] <= 8


# between two requests of a thread; without a pause the load needs more of the processor than
# all engines and launchers of a test
_LOAD_PAUSE_SECONDS = 0.02


class Load:
    """Asks a model all the time; ``failed`` are the answers other than 200."""

    def __init__(self, port: int, *models: str) -> None:
        self.statuses: Counter[tuple[str, int]] = Counter()
        self._port = port
        self._models = models
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(each,)) for each in models * 2]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, model: str) -> None:
        while not self._over.wait(_LOAD_PAUSE_SECONDS):
            answered = call(self._port, chat(model, stream=False))
            self.statuses[model, answered.status] += 1

    @property
    def failed(self) -> dict[tuple[str, int], int]:
        return {key: count for key, count in self.statuses.items() if key[1] != 200}


def test_a_new_version_takes_over_and_no_request_is_lost(write: Write, pids: Path) -> None:
    path = write(ONE + OTHER)
    up(path)
    port = port_of(path)
    before = {name: begun(name) for name in ("stack-gateway", "stack-a", "stack-b")}
    assert apply(path) == (ChangedStack(), [])
    with Load(port, "a", "b") as load:
        # another version of b, an alias and a new model beside it; a stays
        new = OTHER.replace("cards: 1", "cards: 1, max-num-seqs: 8")
        more = OTHER.replace("name: b", "name: c")
        write(ONE + new.replace("name: b", "name: b\n  aliases: [bb]") + more)
        done, asked = apply(path)
        assert done == ChangedStack(("stack-b.v2", "stack-c"), ("stack-b",), "renewed")
        assert asked == []
        assert call(port, chat("bb", stream=False)).status == 200
    assert (load.failed, min(load.statuses.values()) > 10) == ({}, True)
    assert [each.name for each in services()] == [
        "stack-a",
        "stack-b.v2",
        "stack-c",
        "stack-gateway",
    ]
    assert {name: begun(name) for name in before if name != "stack-b"} == {
        name: when for name, when in before.items() if name != "stack-b"
    }
    # what up does with it, and a second time
    assert (up(path)[0], apply(path)) == ((), (ChangedStack(), []))

    # models that the file names no more end, and their cards are used at once
    write(ONE.replace("cards: 4", "cards: 2, max-num-seqs: 4") + OTHER)
    with Load(port, "a") as load:
        done, asked = apply(path)
    assert (done, asked, load.failed) == (
        ChangedStack(("stack-a.v2", "stack-b"), ("stack-c", "stack-a", "stack-b.v2"), "renewed"),
        [],
        {},
    )
    assert call(port, chat("c")).status == 404
    assert sorted(each.name for each in services()) == ["stack-a.v2", "stack-b", "stack-gateway"]
    assert call(port, chat("b", stream=False)).status == 200


def test_a_version_that_needs_the_cards_of_the_old_one_needs_consent(write: Write) -> None:
    path = write(ONE.replace("cards: 4", "cards: 8"))
    up(path)
    port = port_of(path)
    write(ONE.replace("cards: 4", "cards: 8, max-num-seqs: 8"))
    before = begun("stack-a")
    done, asked = apply(path)
    assert (done, begun("stack-a")) == (None, before)
    [downtime] = asked[0].downtimes
    assert (downtime.model, downtime.has_load) == ("a", True)
    assert 0 < downtime.low_seconds <= downtime.high_seconds
    with Load(port, "a") as load:
        done, _asked = apply(path, agree=True)
    assert done == ChangedStack(("stack-a.v2",), ("stack-a",), "renewed")
    # the answer of the gateway meanwhile, and of nothing else
    assert {status for _model, status in load.statuses} == {200, 503}
    assert find("stack-a.v2").modules == tuple(range(8))


def test_replicas_change_one_by_one_and_gateway_settings_without_a_restart(
    write: Write, tmp_path: Path
) -> None:
    two = ONE.replace("model: ./Small", "model: ./Small\n  replicas: 2")
    path = write(two)
    up(path)
    port = port_of(path)
    with Load(port, "a") as load:
        keys_file(tmp_path)
        new = two.replace("cards: 4", "cards: 4, max-num-seqs: 8")
        write(new)
        done, asked = apply(path)
        assert (done, asked) == (
            ChangedStack(("stack-a.v2", "stack-a.v3"), ("stack-a", "stack-a-2"), "renewed"),
            [],
        )
        chosen = stack.target("a")
        before = {name: begun(name) for name in chosen.names}
        assert run(["stack", "restart", "a", "--drain", "5"]) == 0
        assert [name for name in chosen.names if begun(name) == before[name]] == []
    assert load.failed == {}
    gateway = begun("stack-gateway")
    write(new.replace("port: PORT", "port: PORT, keys-file: keys"))
    assert apply(path)[0] == ChangedStack((), (), "renewed")
    statuses = [call(port, chat("a", stream=False), key=key).status for key in (None, "sk-bob")]
    assert (statuses, begun("stack-gateway") == gateway) == ([401, 200], True)
    # fewer replicas
    write(new.replace("replicas: 2", "replicas: 1"))
    assert apply(path)[0] == ChangedStack((), ("stack-a.v3",), "renewed")


class WaitedFor(Lines):
    """Lets streams end once the requests that run are waited for."""

    def __init__(self, ended: Path) -> None:
        super().__init__()
        self._ended = ended

    def say(self, line: str) -> None:
        super().say(line)
        if line.endswith("waiting for 6 running requests"):
            self._ended.touch(exist_ok=False)


def test_no_stream_of_an_engine_without_metrics_is_cut(write: Write, tmp_path: Path) -> None:
    path = write(ONE)
    up(path)
    port = port_of(path)
    # at the end longer than what a gateway that is stopped gives its requests
    for command, tokens in (("apply", 50), ("restart", 50), ("down", 600)):
        reporter = WaitedFor(tmp_path / command)
        asked = chat("a", tokens=tokens, until=str(tmp_path / command))
        with ThreadPoolExecutor(6) as pool:
            streams = [pool.submit(call, port, asked) for _ in range(6)]
            until(lambda: stack.ps()[0].routed[engine_of()].requests == 6, "6 requests")
            if command == "apply":
                write(ONE.replace("name: a", "name: a\n  aliases: [n]"))
                options = ChangeOptions(no_doctor=True, drain=GENEROUS)
                stack.apply(path, reporter, options, lambda changes: False)
            elif command == "restart":
                stack.restart(stack.target("a"), GENEROUS, reporter)
            else:
                stack.down(str(path), reporter, GENEROUS)
            assert [each.result().complete for each in streams] == [True] * 6
        assert (tmp_path / command).exists()


def test_an_interrupted_change_is_mended_by_the_next_one(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(ONE)
    up(path)
    port = port_of(path)
    write(ONE.replace("cards: 4", "cards: 4, max-num-seqs: 8"))

    def interrupted(names: Sequence[str], reporter: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(stack_change, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt):
            apply(path)
    assert sorted(each.name for each in services()) == ["stack-a", "stack-a.v2", "stack-gateway"]
    with Load(port, "a") as load:
        assert apply(path)[0] == ChangedStack((), ("stack-a",), "renewed")
    assert load.failed == {}
    # a version that fails leaves the running one as it is
    monkeypatch.setenv("TRIVIAL_DO", "die")
    write(
        ONE.replace("cards: 4", "cards: 4, max-num-seqs: 4").replace(
            "model:", 'restart: "no"\n  model:'
        )
    )
    with Load(port, "a") as load, pytest.raises(LaunchError) as raised:
        apply(path)
    assert (raised.value.exit_code, load.failed) == (ExitCode.ENGINE, {})
    monkeypatch.delenv("TRIVIAL_DO")
    # back to what runs: what failed is removed
    write(ONE.replace("cards: 4", "cards: 4, max-num-seqs: 8"))
    apply(path)
    assert sorted(each.name for each in services()) == ["stack-a.v2", "stack-gateway"]
    assert call(port, chat("a", stream=False)).status == 200


def test_both_sides_find_each_other_again_after_a_crash(write: Write) -> None:
    path = write(HEAD + MODEL)
    up(path)
    port = port_of(path)

    def states() -> list[tuple[str, str]]:
        answered = call(port, path="/v1/models")
        if answered.status != 200:
            return []
        return [(each["id"], each["state"]) for each in answered.document["data"]]

    def restarted(name: str) -> bool:
        return find(name).state.get("restarts") == 1 and find(name).phase == "ready"

    assert states() == [("a", "ready")]
    for name in ("stack-a", "stack-gateway"):
        process = identity_in(find(name).state, "engine_process")
        assert process is not None
        process.send(signal.SIGKILL)
        until(partial(restarted, name), f"{name} is started again")
        until(lambda: states() == [("a", "ready")], "the model is listed as ready")
        assert call(port, chat("a", stream=False)).status == 200
    assert up(path)[0] == ()
