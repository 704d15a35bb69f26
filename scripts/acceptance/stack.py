"""Prove what a stack promises: nothing lost, nothing changed twice, nothing left.

`stack.py [--part cpu|simulated|all] [--requests 200] [--file FILE --kill MODEL] [--json]`

`cpu` is two copies of the demo model and one embedding model on the CPU engine, `simulated` five
copies of the demo model on simulated cards, each behind a gateway with keys (`gaudi-launch setup
cpu` and `setup gateway`). `--file` proves another stack instead; it must have a keys
file. Each is started with `stack up`, and then:

- a second `up` changes nothing: no process, no file;
- a wrong key and none get 401;
- of the streamed chats, 8 at once, none fails that had not begun to stream, while one engine is
  killed with SIGKILL after a third of them; embeddings in the meantime are answered, too;
- the killed engine serves again; so does the gateway after a SIGKILL of its process and of HAProxy;
- `down` leaves no process, no open port and no file, except those that vLLM's executor leaves in
  the temporary folder (vllm_dist_*), which are counted.

The user's own services are not touched: state and temporary files are in a separate folder.
What the gateway adds to the times is measured by gateway.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
from gateway import Load, Server, drive, free_port

from gaudi_launch.core.base.paths import state_dir
from gaudi_launch.core.services.addresses import port_free
from gaudi_launch.core.services.server_request import ask
from gaudi_launch.core.services.state.chosen import find
from gaudi_launch.core.services.state.identity import identity_in
from gaudi_launch.extensions.stack.stack_file import StackFile, read_stack
from gaudi_launch.extensions.vllm_cpu.install import EMBEDDED

TOP = Path(__file__).parents[2]
MAKE_MODEL = TOP / "gaudi_launch/extensions/vllm_cpu/runtime/make_demo.py"
USER, KEY = "alice", "sk-proof-alice"
_TOKENS = 16
_READY_SECONDS = 900.0
_ANSWER_SECONDS = 60.0
# between two embeddings
_EMBEDDING_SECONDS = 0.2
# from an answer to the kill: engines that compute in step have begun the next ones
# what stays in any case: the program's log and the warm-up times that it learned, and what vLLM's
# executor does not remove from the temporary folder (vllm-project/vllm 0.32.0:
# vllm/utils/network_utils.py get_file_store_init_method)
_OWN_FILES = ("gaudi-launch.log", "warmup-times.json")
_ENGINES_FILE = "vllm_dist_"
# processes that were signalled are gone within this time
_GONE_SECONDS = 10.0

_CPU = """\
schema: 1
name: proof
gateway: {port: PORT, keys-file: keys}
models:
- name: text
  model: ./Tiny-embedding
  options: {engine: cpu, engine-arguments: [--runner, pooling, --convert, embed]}
- name: chat
  model: demo
  replicas: 2
  after: [text]
  options: {engine: cpu, max-model-len: 2k}
"""
_SIMULATED = """\
schema: 1
name: proof
gateway: {port: PORT, keys-file: keys}
models:
- name: chat
  model: demo
  replicas: 5
  options: {engine: simulated, cards: 1, max-model-len: 2k}
"""


@dataclass(frozen=True)
class Check:
    """One promise: whether it was kept, and the figures that show it."""

    name: str
    kept: bool
    figures: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """A stack to prove, the model whose engine is killed, that for embeddings."""

    stack: StackFile
    kill: str
    embedding: str = ""

    @property
    def port(self) -> int:
        return self.stack.gateway.port

    @property
    def key(self) -> str:
        """Return the first key of the stack's keys file."""
        if self.stack.gateway.keys_file is None:
            sys.exit(f"{self.stack.path} has no keys file")
        for line in self.stack.gateway.keys_file.read_text(encoding="utf-8").splitlines():
            if line.strip() and not line.startswith("#"):
                return line.split()[1]
        sys.exit(f"{self.stack.gateway.keys_file} has no key")

    @property
    def services(self) -> tuple[str, ...]:
        """Return the names of all services, the gateway's first."""
        engines = [name for model in self.stack.models for name in self.stack.services_of(model)]
        return (self.stack.gateway_service, *engines)

    @property
    def victim(self) -> str:
        """Return the service whose engine is killed."""
        model = next(each for each in self.stack.models if each.name == self.kill)
        return self.stack.services_of(model)[0]


def launch(*words: str) -> dict[str, object]:
    """Run gaudi-launch as a user does; return its JSON.

    Ends the script where it fails.
    """
    command = [sys.executable, "-m", "gaudi_launch", *words, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=TOP)
    if done.returncode:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}")
    document: dict[str, object] = json.loads(done.stdout)
    return document


def up(subject: Subject) -> dict[str, object]:
    return launch("stack", "up", str(subject.stack.path), "--no-doctor")


def until(condition: Callable[[], bool], what: str, seconds: float) -> float:
    """Wait for a condition; return the seconds that it took.

    Ends the script after ``seconds``.
    """
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            sys.exit(f"{what} did not happen within {seconds:.0f} s")
        time.sleep(0.1)
    return round(time.monotonic() - began, 1)


def status(
    subject: Subject, path: str, key: str | None, document: dict[str, object] | None = None
) -> int:
    """Return the status of one request to the gateway, 0 without an answer."""
    answer = ask(f"http://127.0.0.1:{subject.port}{path}", _ANSWER_SECONDS, key, document)
    return 0 if isinstance(answer, str) else answer.status


def chat_answers(subject: Subject) -> bool:
    document: dict[str, object] = {
        "model": subject.kill,
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 1,
    }
    return status(subject, "/v1/chat/completions", subject.key, document) == 200


def all_ready(subject: Subject) -> bool:
    """Return True where every replica of every model answers."""
    answer = ask(f"http://127.0.0.1:{subject.port}/v1/models", _ANSWER_SECONDS, subject.key)
    if isinstance(answer, str) or answer.status != 200:
        return False
    return all(each["replicas"] == each["replicas_ready"] for each in answer.document["data"])


def process_of(service: str) -> int:
    """Return the process of a service's engine or gateway; 0 between two."""
    found = identity_in(find(service).state, "engine_process")
    return found.pid if found is not None else 0


def picture(subject: Subject) -> dict[str, object]:
    """Return what a second ``up`` must not change: processes, settings and records."""
    files = [*state_dir().rglob("job.json"), *state_dir().rglob("stack.json")]
    return {
        "processes": {name: process_of(name) for name in subject.services},
        "files": {str(path): path.stat().st_mtime_ns for path in files},
    }


def own_processes(state: Path) -> list[psutil.Process]:
    """Return the processes that were started with this folder of states."""
    found = []
    for process in psutil.process_iter():
        try:
            mine = process.environ().get("XDG_STATE_HOME") == str(state)
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return [process for process in found if process.pid != os.getpid()]


def started(subject: Subject) -> Check:
    began = time.monotonic()
    document = up(subject)
    seconds = round(time.monotonic() - began, 1)
    complete = document["started"] == list(subject.services) and all_ready(subject)
    return Check("up starts all", complete, {"seconds": seconds, "services": document["started"]})


def unchanged(subject: Subject) -> Check:
    before = picture(subject)
    document = up(subject)
    kept = document["started"] == [] and picture(subject) == before
    return Check("up twice changes nothing", kept, {"started": document["started"]})


def refused(subject: Subject) -> Check:
    found = [status(subject, "/v1/models", key) for key in ("sk-wrong", None)]
    return Check("a wrong key and none get 401", found == [401, 401], {"status": found})


class Embeddings(threading.Thread):
    """Send one embedding after the other until `stop` is set; count their statuses."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.statuses: dict[int, int] = {}
        self._subject = subject

    def run(self) -> None:
        document: dict[str, object] = {
            "model": self._subject.embedding,
            "input": "A short sentence.",
        }
        while self._subject.embedding and not self.stop.is_set():
            found = status(self._subject, "/v1/embeddings", self._subject.key, document)
            self.statuses[found] = self.statuses.get(found, 0) + 1
            time.sleep(_EMBEDDING_SECONDS)


def engine_killed(subject: Subject, requests: int, pid: int) -> Check:
    """Stream chats while an engine is killed after a third of them."""
    embeddings = Embeddings(subject)
    embeddings.start()
    server = Server(subject.port, subject.kill, subject.key)
    answers, seconds = asyncio.run(drive(server, Load(requests, 8, _TOKENS), {requests // 3: pid}))
    embeddings.stop.set()
    embeddings.join()
    cut = [each for each in answers if not each.complete]
    lost = [each for each in cut if not each.pieces]
    figures: dict[str, object] = {
        "requests": len(answers),
        "complete": len(answers) - len(cut),
        "cut_in_stream": len(cut) - len(lost),
        "failed_before_stream": len(lost),
        "embeddings": embeddings.statuses,
        "seconds": round(seconds, 1),
    }
    others = set(embeddings.statuses) <= {200}
    kept = len(answers) == requests and not lost and others and not psutil.pid_exists(pid)
    return Check("no request fails that had not begun to stream", kept, figures)


def engine_back(subject: Subject, killed: int) -> Check:
    """Wait until a new process serves instead of the killed one."""

    def serves() -> bool:
        return process_of(subject.victim) not in (0, killed) and all_ready(subject)

    seconds = until(serves, "the restart of the engine", _READY_SECONDS)
    return Check("the killed engine serves again", True, {"seconds": seconds})


def gateway_back(subject: Subject, name: str, victim: int) -> Check:
    """Kill a process of the gateway; return how soon requests are answered again."""
    service = subject.stack.gateway_service
    os.kill(victim, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(victim), f"the end of {name}", _GONE_SECONDS)
    seconds = until(lambda: chat_answers(subject), "an answer", _ANSWER_SECONDS)
    until(lambda: process_of(service) not in (0, victim), "the gateway's record", _GONE_SECONDS)
    return Check(f"{name} is killed and comes back", True, {"seconds": seconds})


def nothing_left(subject: Subject, folders: tuple[Path, ...]) -> Check:
    ports = {subject.port}
    for name in subject.services[1:]:
        ports.add(int(find(name).url.rpartition(":")[2]))
    launch("stack", "down", str(subject.stack.path), "--drain", "0")
    _gone, alive = psutil.wait_procs(own_processes(folders[0]), timeout=_GONE_SECONDS)
    files = [path for folder in folders for path in folder.rglob("*") if not path.is_dir()]
    left = [path for path in files if path.name not in _OWN_FILES]
    of_engines = [path for path in left if path.name.startswith(_ENGINES_FILE)]
    figures: dict[str, object] = {
        "processes": [f"{each.pid} {each.name()}" for each in alive],
        "ports": sorted(port for port in ports if not port_free("127.0.0.1", port)),
        "files": sorted(str(path) for path in left if path not in of_engines),
    }
    kept = not any(figures.values())
    figures["files of vLLM"] = len(of_engines)
    return Check("down leaves no process, port or file", kept, figures)


def prove(subject: Subject, requests: int, folders: tuple[Path, ...]) -> list[Check]:
    """Take a stack from its launch to its end; say each check on stderr."""
    checks: list[Check] = []

    def add(check: Check) -> None:
        checks.append(check)
        mark = "kept" if check.kept else "BROKEN"
        print(f"{mark}: {check.name} {json.dumps(check.figures)}", file=sys.stderr, flush=True)

    try:
        add(started(subject))
        add(unchanged(subject))
        add(refused(subject))
        engine = process_of(subject.victim)
        add(engine_killed(subject, requests, engine))
        add(engine_back(subject, engine))
        gateway = process_of(subject.stack.gateway_service)
        add(gateway_back(subject, "the gateway's process", gateway))
        gateway = process_of(subject.stack.gateway_service)
        children = psutil.Process(gateway).children()
        add(gateway_back(subject, "HAProxy", min(children, key=psutil.Process.cmdline).pid))
        add(nothing_left(subject, folders))
    except SystemExit:
        launch("stack", "down", str(subject.stack.path), "--drain", "0")
        raise
    return checks


def written(part: str, folder: Path) -> Subject:
    """Write the file of a part, its keys and its embedding model; return the stack."""
    content = _CPU if part == "cpu" else _SIMULATED
    path = folder / "stack.yaml"
    path.write_text(content.replace("PORT", str(free_port())), encoding="utf-8")
    keys = folder / "keys"
    keys.write_text(f"{USER} {KEY}\n", encoding="utf-8")
    keys.chmod(0o600)
    if part == "cpu":
        # a language model makes embeddings by its options, as Qwen3-Embedding does
        words = [str(EMBEDDED.python()), str(MAKE_MODEL), "tiny"]
        subprocess.run([*words, str(folder / "Tiny-embedding")], check=True, stdout=sys.stderr)
    return Subject(read_stack(path), "chat", "text" if part == "cpu" else "")


def one_part(part: str, options: argparse.Namespace) -> list[Check]:
    """Prove one stack with separate folders for state and temporary files."""
    names = ("XDG_STATE_HOME", "TMPDIR")
    with tempfile.TemporaryDirectory(prefix="stack-") as name:
        folders = tuple(Path(name) / each for each in ("state", "tmp"))
        for folder, variable in zip(folders, names, strict=True):
            folder.mkdir()
            os.environ[variable] = str(folder)
        if options.file is None:
            subject = written(part, Path(name))
        else:
            subject = Subject(read_stack(options.file), options.kill)
        return prove(subject, options.requests, folders)


def main() -> int:
    """Prove the chosen stacks; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--part", choices=("cpu", "simulated", "all"), default="all")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--file", type=Path, help="the file of another stack")
    parser.add_argument("--kill", help="the model of that file whose engine is killed")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    parts = ("cpu", "simulated") if options.part == "all" else (options.part,)
    if options.file is not None:
        parts = (str(options.file),)
    found = {part: one_part(part, options) for part in parts}
    if options.json:
        document = {part: [asdict(each) for each in checks] for part, checks in found.items()}
        print(json.dumps({"schema": 1, "stacks": document}, indent=1))
    return 0 if all(each.kept for checks in found.values() for each in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
