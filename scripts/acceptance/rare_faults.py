"""Try rare faults: kills, sparse packs, reused PIDs, jumping clocks, homes.

Use: `python scripts/acceptance/rare_faults.py [--engine simulated] [TIMES [SEED [CASE...]]]` (30
times by default).

The engine is a stand-in with real processes on a simulated machine; with `--engine simulated` it is
the engine of that name, whose environment must be installed (`gaudi-launch setup cpu`), as
`ray_homes` needs that of Ray (`setup ray`). `reused_pids` and `full_disk` need root,
`read_only_home` and `ray_homes` setpriv, `clock_jumps` a C compiler; a case that cannot run here is
reported as such. Every command must end with a documented exit code, without a
traceback and within 60 s (600 s with a real engine). Prints one JSON object; the exit status is 0
when nothing failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import psutil

from gaudi_launch.core.base import paths
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.host.simulated import write_tree
from gaudi_launch.core.services.addresses import port_free
from gaudi_launch.extensions.offline import pack_manifest
from tests.support import trivial_calibration
from tests.support.calibration_scripts import write_scripts
from tests.support.keeper import Keeper
from tests.support.packs import made
from tests.support.places import TOP
from tests.support.processes import TRIVIAL, write_engine_python
from tests.support.real_engines import ask
from tests.support.serve import write_model
from tests.support.waiting import unused_port

_SECONDS = 60.0
_REAL_SECONDS = 600.0
_SIMULATED = (
    *("Qwen/Qwen2.5-7B-Instruct", "--engine", "simulated", "--machine", "simulated:hls2"),
    *("--time-scale", "500"),
)
_TOKEN = "GAUDI_LAUNCH_ACCEPTANCE_TOKEN"
_CODES = {*(int(code) for code in ExitCode), 130, 143}
_LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
_NOBODY = 65534
Env = Mapping[str, str]
_NONE: Env = MappingProxyType({})


class Case(Protocol):
    """A fault, tried once: "" where nothing was wrong."""

    __name__: str

    def __call__(self, place: Place, number: int) -> str: ...


class CannotRun(Exception):
    """A case that needs what this machine does not have."""


class Place:
    """A user with a simulated machine, a model and a stand-in or a simulated engine."""

    def __init__(self, folder: Path, chance: random.Random, engine: str) -> None:
        self.folder, self.chance = folder, chance
        self.seconds = _REAL_SECONDS if engine else _SECONDS
        # simulated cards are none of this machine's: each service has all of them
        self.shares_cards = not engine
        write_tree("hls2", folder / "machine")
        self.model = write_model(folder / "models" / "Small")
        python = write_engine_python(folder / "engine-python", f"{sys.executable} {TRIVIAL}")
        engines = str(paths.engines_dir())
        self.user = Keeper(folder, folder / "machine", python, folder / "pids")
        self.user.environment[_TOKEN] = folder.name
        # engines of the user who runs this are for `--engine` only
        self.user.environment.pop("GAUDI_LAUNCH_ENGINES_DIR", None)
        self.served: tuple[str, ...] = ("-w", str(self.model), "--python", str(python))
        if engine:
            self.served = _SIMULATED
            self.user.environment["GAUDI_LAUNCH_ENGINES_DIR"] = engines

    def serve(self, name: str, *words: str, port: int = 0) -> list[str]:
        """Return the arguments to launch a service on two cards."""
        cards = () if "-n" in words else ("-n", "2")
        at = ("-p", str(port or unused_port()), "--name", name, "--no-doctor", "--detach")
        return ["serve", *self.served, *cards, *at, *words]

    def begin(self, *words: str, more: Env = _NONE) -> subprocess.Popen[str]:
        """Start a command and return."""
        return subprocess.Popen(
            [sys.executable, "-m", "gaudi_launch", *words],
            env={**self.user.environment, "TRIVIAL_DO": "", **more},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
            errors="replace",
        )  # fmt: skip

    def left(self) -> list[str]:
        """Return the command lines of processes that this user has started and that live."""
        found = []
        for process in psutil.process_iter():
            try:
                if (
                    process.environ().get(_TOKEN) == self.folder.name
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.append(f"{process.pid} {' '.join(process.cmdline())}"[:100])
            except psutil.Error:
                continue
        return found

    def run(
        self,
        *words: str,
        before: tuple[str, ...] = (),
        seconds: float = 0.0,
        more: Env = _NONE,
    ) -> tuple[int, str]:
        """Return exit code and output of a command; -1 for one that does not end."""
        seconds = seconds or self.seconds
        argv = [*before, sys.executable, "-m", "gaudi_launch", *words]
        environment = {**self.user.environment, "TRIVIAL_DO": "", **more}
        try:
            done = subprocess.run(
                argv, env=environment, capture_output=True, text=True, errors="replace",
                timeout=seconds, stdin=subprocess.DEVNULL, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return -1, f"{words}: no end after {seconds:.0f} s"
        return done.returncode, done.stdout + done.stderr

    def ended(self, command: subprocess.Popen[str]) -> tuple[int, str]:
        """Return the exit code of a started command, and what was wrong with its end."""
        try:
            shown = command.communicate(timeout=self.seconds)[0]
        except subprocess.TimeoutExpired:
            command.kill()
            return -1, f"no end after {self.seconds:.0f} s: {command.communicate()[0][-500:]}"
        bad = "Traceback" in shown or "is a bug" in shown
        return command.returncode, shown[-500:] if bad else ""

    def good(self, *words: str, codes: set[int] | None = None, more: Env = _NONE) -> str:
        """Return "" where a command ended as documented, else what was wrong."""
        code, shown = self.run(*words, more=more)
        if code not in (codes or _CODES) or "Traceback" in shown or "is a bug" in shown:
            return f"{' '.join(words)}: {code}: {shown[-500:]}"
        return ""

    def detach(self, name: str, more: Env = _NONE) -> str:
        """Start a service that becomes ready; return "" or what was wrong."""
        return self.good(*self.serve(name), codes={0}, more=more)

    def launcher(self, name: str) -> int:
        document = json.loads((self.user.folder(name) / "state.json").read_text(encoding="utf-8"))
        return int(document["launcher"]["pid"])


def sparse_packs(place: Place, number: int) -> str:
    """Try a pack of a few KiB whose list and member state up to 8 TiB of zeros."""
    pack = made(place.folder / f"pack-{number}")
    target = pack / "model" / "weights"
    os.truncate(target, 1 << place.chance.randint(12, 30))
    manifest = json.loads((pack / pack_manifest.NAME).read_text(encoding="utf-8"))
    size = 1 << place.chance.randint(36, 43)
    for entry in manifest["files"]:
        if entry["path"] == "model/weights":
            entry["size"] = size
    plain = {name: value for name, value in manifest.items() if name not in ("bytes", "digest")}
    # the digest of a list is public: who makes a pack can make it right
    manifest["digest"] = pack_manifest._digest(plain)
    (pack / pack_manifest.NAME).write_text(json.dumps(manifest), encoding="utf-8")
    os.truncate(target, size)
    archive = place.folder / f"sparse-{number}.tar"
    form = place.chance.choice(["gnu", "posix"])
    files = [pack_manifest.NAME, "model/config", "model/weights", "wheels/a.whl"]
    subprocess.run(
        ["tar", "-S", f"--format={form}", "-cf", str(archive), "-C", str(pack), *files], check=True
    )
    shutil.rmtree(pack)
    # show reads the list only
    return place.good("offline", "show", str(archive), codes={0}) or place.good(
        "offline", "install", str(archive), codes={1}
    )


def reused_pids(place: Place, number: int) -> str:
    """Give a killed launcher's PID to another process, neither shown nor ended."""
    if os.geteuid() or not os.access(_LAST_PID, os.W_OK):
        raise CannotRun("root and ns_last_pid")
    ours = f"reused{os.getpid()}-"
    name = f"{ours}{number}"
    wrong = place.detach(name)
    if wrong:
        return wrong
    pid = place.launcher(name)
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    other = None
    while other is None and time.monotonic() < deadline:
        _LAST_PID.write_text(str(pid - 1))
        started = subprocess.Popen(["sleep", "600"], start_new_session=True)
        if started.pid == pid:
            other = started
        else:
            started.kill()
            started.wait()
    if other is None:
        return "the PID was not given again"
    try:
        shown = json.loads(place.run("ps", "--json")[1])["services"]
        if any(each["name"] == name and each.get("launcher_pid") == pid for each in shown):
            return f"ps shows {pid} as its launcher"
        wrong = place.good("stop", name)
        # root sees those of every user and of other runs: 2 reads for --yes, which would end them
        code, shown = place.run("stop", "--orphans")
        if code not in (0, 2) or ours in shown or "Traceback" in shown:
            wrong = wrong or f"stop --orphans: {code}: {shown[-500:]}"
        if not wrong and other.poll() is not None:
            wrong = f"stop ended the other process {pid}"
        return wrong or place.detach(name) or place.good("stop", name, codes={0})
    finally:
        other.kill()
        other.wait()


def clock_jumps(place: Place, number: int) -> str:
    """Let the wall clock of all processes jump while a service runs."""
    library, stamp = place.folder / "clock.so", place.folder / f"clock-{number}"
    if not library.is_file():
        if shutil.which("cc") is None:
            raise CannotRun("a C compiler")
        source = str(Path(__file__).with_name("jumping_clock.c"))
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), source, "-ldl"], check=True)
    stamp.write_text("0")
    clock = {"LD_PRELOAD": str(library), "JUMPING_CLOCK": str(stamp)}
    name = f"clock{number}"
    wrong = place.detach(name, more=clock)
    if wrong:
        return wrong
    stamp.write_text(str(place.chance.choice((-1, 1)) * 10 ** place.chance.randint(2, 8)))
    for words in (("ps",), ("status", name), ("wait", name, "--timeout", "20"), ("cache", "list")):
        wrong = wrong or place.good(*words, codes={0}, more=clock)
    stamp.write_text(str(place.chance.choice((0, -200_000, 200_000))))
    wrong = wrong or place.good("stop", name, "--drain", "1", codes={0}, more=clock)
    return wrong or ("" if name not in place.run("ps")[1] else "it still runs")


_READ_ONLY = (
    ("plan", "-w", "{model}", "-n", "2", "--python", "{python}"),
    ("estimate", "-w", "{model}"), ("devices",), ("ps",), ("doctor",), ("stop", "--orphans"),
    ("serve", "-w", "{model}", "-n", "2", "-p", "{port}", "--no-doctor", "--python", "{python}",
     "--detach"),
    ("why", "{model}/config.json"), ("logs", "none"), ("cache", "list"),
    ("bench", "--learn", "{model}/config.json"),
    ("setup", "gateway"), ("stack", "ps"), ("recommend", "-w", "{model}"), ("inspect", "{model}"),
    ("doctor", "--bundle", "{home}/case.tar.gz"), ("tune", "{home}/none.yaml"),
)  # fmt: skip


def read_only_home(place: Place, number: int) -> str:
    """Commands of a user whose home folder and all below it cannot be written."""
    if os.geteuid() or shutil.which("setpriv") is None:
        raise CannotRun("root and setpriv")
    home = place.folder / "home"
    home.mkdir(exist_ok=True, mode=0o555)
    if number % 3 == 1:
        # not even a folder
        home = Path("/dev/null")
    place.folder.chmod(0o755)
    words = [
        each.format(model=place.model, python=place.user.python, port=unused_port(), home=home)
        for each in _READ_ONLY[number % len(_READ_ONLY)]
    ]
    below = {f"XDG_{kind}_HOME": "" for kind in ("STATE", "CACHE", "DATA", "CONFIG")}
    before = ("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups")
    code, shown = place.run(*words, before=before, more={"HOME": str(home), **below})
    if code not in _CODES or "Traceback" in shown or "is a bug" in shown:
        return f"{' '.join(words)}: {code}: {shown[-500:]}"
    return ""


def fix_races(place: Place, number: int) -> str:
    """Run `doctor --fix` while another process exchanges files for links."""
    root = place.folder / f"root-{number}"
    write_tree("hls2", root)
    victim = place.folder / f"victim-{number}"
    victim.write_text("mine")
    folders = [root / "etc" / name for name in ("sysctl.d", "modprobe.d", "security/limits.d")]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    ended = threading.Event()
    chance = random.Random(place.chance.random())

    def exchange() -> None:
        while not ended.is_set():
            folder = chance.choice(folders)
            names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
            name = chance.choice([*names, "99-gaudi-launch.conf", ".99-gaudi-launch.conf.new"])
            path = folder / name
            try:
                path.unlink(missing_ok=True)
                path.symlink_to(victim)
            except OSError:
                continue
            time.sleep(chance.uniform(0, 0.02))

    racer = threading.Thread(target=exchange, daemon=True)
    racer.start()
    try:
        more = {"GAUDI_LAUNCH_ROOT": str(root)}
        wrong = place.good("doctor", "--fix", "--yes", more=more)
        wrong = wrong or place.good("doctor", "--undo", "--yes", more=more)
    finally:
        ended.set()
        racer.join()
    if victim.read_text(encoding="utf-8") != "mine":
        wrong = "a file behind a symbolic link was written"
    return wrong


def temporary_links(place: Place, number: int) -> str:
    """Lay links on guessable temporary names; none is followed."""
    shared, victim = place.folder / f"shared-{number}", place.folder / f"kept-{number}"
    root = place.folder / f"linked-{number}"
    write_tree("hls2", root)
    for folder in (shared, victim, root / "tmp", root / "run" / "lock"):
        folder.mkdir(parents=True, exist_ok=True)
    (victim / "file").write_text("mine")
    # the folders of locks as links, or their files
    for folder in (root / "tmp" / "gaudi-launch-locks", root / "run" / "lock" / "gaudi-launch"):
        if number % 2:
            folder.symlink_to(victim)
            continue
        folder.mkdir()
        for module in range(8):
            (folder / f"module-{module}.lock").symlink_to(victim / f"new-{module}")
    (shared / "case.tar.gz").symlink_to(victim / "file")
    last = int(_LAST_PID.read_text())
    for pid in range(last, last + 3000):
        (shared / f".free.tar.gz.{pid}").symlink_to(victim / f"new-{pid}")
    more = {"GAUDI_LAUNCH_ROOT": str(root), "TMPDIR": str(shared)}
    wrong = place.good("doctor", "--fix", "--yes", more=more)
    for name in ("case", "free"):
        wrong = wrong or place.good("doctor", "--bundle", f"{shared}/{name}.tar.gz", more=more)
    # refused, or without a reservation; the links are what counts
    more = {**more, "TRIVIAL_DO": "exit"}
    wrong = wrong or place.good(*place.serve(f"links{number}"), more=more)
    place.run("stop", "--all", more=more)
    found = {each.name: each.read_bytes() for each in victim.iterdir()}
    return wrong or ("" if found == {"file": b"mine"} else f"followed: {found}"[:500])


def killed_learn(place: Place, number: int) -> str:
    """`bench --learn` killed at a drawn moment, then again, two at once."""
    run = place.folder / "run.json"
    shutil.copyfile(next(Path("tests/data/bench").glob("*.json")), run)
    words = [sys.executable, "-m", "gaudi_launch", "bench", "--learn", str(run)]
    environment = {**place.user.environment}
    for _ in range(2):
        with subprocess.Popen(
            words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as first:
            time.sleep(place.chance.uniform(0.05, 1.5))
            first.kill()
    both = [
        subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for _ in range(2)
    ]
    shown = [each.communicate()[0].decode() for each in both]
    if any("Traceback" in each or "is a bug" in each for each in shown):
        return shown[0] + shown[1]
    return place.good("bench", "--learned") or place.good("plan", "-w", str(place.model), "-n", "2")


def killed(place: Place, words: list[str], moment: float) -> None:
    """Kill a command after this time, and wait for its children to end."""
    argv = [sys.executable, "-m", "gaudi_launch", *words]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(argv, env=place.user.environment, stdout=quiet, stderr=quiet) as first:
        time.sleep(moment)
        first.kill()


def killed_tune(place: Place, number: int) -> str:
    """Kill `tune` at a drawn moment; the next run completes, nothing is left."""
    place.user.environment.update(TIMED_PIDS=str(place.folder / "timed"), TRIVIAL_GRAPHS="1")
    (place.folder / "timed").touch()
    module = f"env PYTHONPATH={TOP} {sys.executable} -m tests.support.timed_engine"
    python = write_engine_python(place.folder / "timed-python", module)
    files = [str(place.folder / f"{number}-{batch}.yaml") for batch in (number + 1, 64)]
    for file in files:
        batch = Path(file).stem.partition("-")[2]
        launch = ["plan", str(place.model), "--python", str(python), "-n", "2", "-b", batch]
        place.good(*launch, "--save", file)
    words = ["tune", *files, "-p", str(unused_port()), "--no-doctor", "--concurrency", "2"]
    words += ["-i", "16", "-o", "8", "--requests", "4", "--minutes", "20", "--json"]
    killed(place, words, place.chance.uniform(0.2, 20.0))
    # the server of the killed search runs as a service, as `ps` shows it
    wrong = place.good("stop", "--all")
    code, shown = place.run(*words, seconds=_SECONDS * 5)
    if code or "Traceback" in shown:
        wrong = wrong or f"{code}: {shown[-600:]}"
    if json.loads(place.run("ps", "--json")[1])["services"]:
        wrong = wrong or "a service is left"
    return wrong


def killed_calibrate(place: Place, number: int) -> str:
    """`fp8 calibrate` killed at two drawn moments; the third run completes it."""
    source = place.folder / "calibration-source"
    if not source.is_dir():
        write_scripts(source / "calibration", "1.22")
    python = place.folder / "calibration-python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {trivial_calibration.__file__} "$@"\n')
    python.chmod(0o755)
    (place.folder / "set.pkl").write_bytes(b"set")
    model = place.folder / f"Qwen3-{number}" / "Qwen3-8B"
    model.mkdir(parents=True)
    config = {"model_type": "qwen3", "num_hidden_layers": 2, "num_attention_heads": 8}
    (model / "config.json").write_text(json.dumps({**config, "hidden_size": 256}))
    more = {
        "TRIVIAL_CALLS": str(place.folder / "calls"), "TRIVIAL_SOURCE": str(source),
        "TRIVIAL_KIND": "1.22", "XDG_DATA_HOME": str(place.folder / f"data-{number}"),
    }  # fmt: skip
    place.user.environment.update(more)
    words = ["fp8", "calibrate", str(model), "-n", "2", "--python", str(python)]
    words += ["--dataset", str(place.folder / "set.pkl")]
    for _ in range(2):
        killed(place, words, place.chance.uniform(0.2, 6.0))
    wrong = place.good(*words, codes={0})
    done = list((place.folder / f"data-{number}").rglob("maxabs_quant_g2.json"))
    return wrong or ("" if len(done) == 1 else "its configuration is not written")


def two_homes(place: Place, number: int) -> str:
    """Start services of two homes with one data folder; no card twice."""
    other = place.folder / f"other-home-{number}"
    homes = [place.user.environment, {**place.user.environment, "XDG_STATE_HOME": str(other)}]
    started = []
    for at in range(4):
        words = place.serve(f"home{number}-{at}", "-n", "4")
        started.append(place.begin(*words, more=homes[at % 2]))
    shown = [each.communicate()[0] for each in started]
    codes = [each.returncode for each in started]
    taken: list[int] = []
    for home in homes:
        listed = place.run("ps", "--json", more={"XDG_STATE_HOME": home["XDG_STATE_HOME"]})[1]
        for service in json.loads(listed)["services"]:
            taken += service["modules"]
    for home in homes:
        place.run("stop", "--all", more={"XDG_STATE_HOME": home["XDG_STATE_HOME"]})
    wanted = [0, 0, 3, 3] if place.shares_cards else [0, 0, 0, 0]
    if sorted(codes) != wanted or len(taken) != len(set(taken)) or "Traceback" in str(shown):
        return f"{codes}, modules {taken}: {shown}"[-900:]
    return ""


_FAULTS = (
    *("kill launcher", "kill engine", "kill child", "kill command", "30 TERM", "30 INT"),
    *("HUP launcher", "HUP engine", "stop and kill", "mixed"),
)
_MODES = ("", "deaf", "hang", "sick")


def _family(place: Place, name: str) -> dict[str, psutil.Process]:
    """Return launcher, engine and a child of it, as far as they live."""
    path = place.user.folder(name) / "state.json"
    found = {}
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        found["launcher"] = psutil.Process(state["launcher"]["pid"])
        found["engine"] = psutil.Process(state["engine_process"]["pid"])
        found["child"] = place.chance.choice(found["engine"].children(recursive=True))
    except (OSError, ValueError, KeyError, TypeError, IndexError, psutil.Error):
        pass
    return found


def _strike(place: Place, fault: str, name: str, command: psutil.Process) -> None:
    family = {**_family(place, name), "command": command}
    what, _, whom = fault.partition(" ")
    launcher = family.get("launcher", family["command"])
    signals: list[tuple[psutil.Process, int]] = []
    if what == "kill" and whom in family:
        signals = [(family[whom], signal.SIGKILL)]
    elif what == "HUP" and whom in family:
        signals = [(family[whom], signal.SIGHUP)]
    elif what == "30":
        signals = [(launcher, getattr(signal, f"SIG{whom}"))] * 30
    elif what == "mixed":
        kinds = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL)
        victims = list(family.values())
        signals = [(place.chance.choice(victims), place.chance.choice(kinds)) for _ in range(10)]
    elif what == "stop":
        stopping = place.begin("stop", name)
        time.sleep(place.chance.uniform(0.0, 2.0))
        launcher_gone = place.chance.random() < 0.5
        signals = [(launcher if launcher_gone else psutil.Process(stopping.pid), signal.SIGKILL)]
    for process, number in signals:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
        time.sleep(place.chance.uniform(0.0, 0.05))


def storms(place: Place, number: int) -> str:
    """Kill processes of a service at a drawn moment; the next commands leave nothing."""
    port, name = unused_port(), f"storm{number}"
    mode = _MODES[number // len(_FAULTS) % len(_MODES)]
    command = place.begin(*place.serve(name, port=port), more={"TRIVIAL_DO": mode})
    begun = psutil.Process(command.pid)
    if number % 2 and mode in ("", "deaf"):
        command.wait(place.seconds)
    else:
        time.sleep(place.chance.uniform(0.2, place.seconds / 12))
    _strike(place, _FAULTS[number % len(_FAULTS)], name, begun)
    time.sleep(place.chance.uniform(0.0, 2.0))
    wrong = place.good("ps")
    # a launch that hangs in its warm-up is stopped, not waited for, as soon as it has a record
    record = place.user.folder(name) / "state.json"
    until = time.monotonic() + place.seconds
    while command.poll() is None and not record.exists() and time.monotonic() < until:
        time.sleep(0.1)
    if record.exists():
        wrong = wrong or place.good("stop", name, "--drain", "0")
    wrong = wrong or place.ended(command)[1]
    # it may have been started after that stop
    if place.left():
        place.run("stop", "--all", "--drain", "0")
    wrong = wrong or "; ".join(place.left())
    if not wrong and not port_free("127.0.0.1", port):
        wrong = f"port {port} is not free"
    shown = json.dumps(json.loads(place.run("ps", "--json")[1])["services"])
    return wrong or ("" if '"running"' not in shown else shown[:500])


_KINDS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_LAUNCHER = "gaudi_launch.core.services.process.detach"
_ENDED = (
    *("exited without a message", "is stopped", "failed", "was killed", "ended by"),
    *("was interrupted", "ended with"),
)


def killed_launcher(place: Place, number: int) -> str:
    """End the child of `serve --detach` at a drawn moment; it ends with a reason.

    The moment is counted from the child's start: before its lock is passed on, before it has read
    its job, while it writes its state, starts the engine, warms up.
    """
    port, name = unused_port(), f"child{number}"
    mode = _MODES[number % len(_MODES)]
    command = place.begin(*place.serve(name, port=port), more={"TRIVIAL_DO": mode})
    begun = psutil.Process(command.pid)
    child = None
    while child is None and command.poll() is None:
        with contextlib.suppress(psutil.Error):
            child = next((c for c in begun.children() if _LAUNCHER in c.cmdline()), None)
    if child is None:
        return f"no child: {place.ended(command)}"
    # 0.3 ms to 5 s
    time.sleep(10 ** place.chance.uniform(-3.5, 0.7))
    kind = _KINDS[number % len(_KINDS)]
    with contextlib.suppress(psutil.Error):
        child.send_signal(kind)
    try:
        shown = command.communicate(timeout=place.seconds)[0]
    except subprocess.TimeoutExpired:
        command.kill()
        shown = command.communicate()[0]
        return f"{kind.name}: no end after {place.seconds:.0f} s: {shown[-500:]}"
    code = command.returncode
    wrong = ""
    # it may have been ready before
    if code not in (0, 1, 4) or "Traceback" in shown or "is a bug" in shown:
        wrong = f"{code}: {shown[-600:]}"
    if code and not any(words in shown for words in _ENDED):
        wrong = f"{code}, no sentence: {shown[-600:]}"
    if mode == "deaf" or kind is signal.SIGKILL:
        # the engine outlives its launcher, or its children outlive it
        place.run("stop", "--orphans", "--yes")
    until = time.monotonic() + 20
    while place.left() and time.monotonic() < until:
        time.sleep(0.2)
    wrong = wrong or "; ".join(place.left())
    wrong = wrong or place.good("ps", codes={0}) or place.good("status", name)
    if not wrong and not port_free("127.0.0.1", port):
        wrong = f"port {port} is not free"
    print(f"killed_launcher {number}: {kind.name} {mode or 'normal'}: {code}", file=sys.stderr)
    return wrong and f"{kind.name} {mode}: {wrong}"


def many_at_once(place: Place, number: int) -> str:
    """Start 20 services at once on 8 cards, each second time on one port.

    Where services share no cards, six with an engine each.
    """
    port = unused_port() if number % 2 else 0
    count = 20 if place.shares_cards or port else 6
    started = [
        place.begin(*place.serve(f"many{number}-{at}", "-n", "2", port=port)) for at in range(count)
    ]
    shown = [each.communicate(timeout=place.seconds * 3)[0] for each in started]
    codes = Counter(each.returncode for each in started)
    services = json.loads(place.run("ps", "--json")[1])["services"]
    cards = [module for each in services for module in each["modules"]]
    wrong = place.good("stop", "--all", "--drain", "0", codes={0})
    ready = 1 if port else min(count, 4 if place.shares_cards else count)
    if codes != Counter([0] * ready + [3] * (count - ready)) or len(cards) != len(set(cards)):
        bad = [
            text[-300:] for text, each in zip(shown, started, strict=True)
            if each.returncode not in (0, 3)
        ]  # fmt: skip
        return f"{dict(codes)}, cards {cards}: {bad}"[:900]
    return wrong or "; ".join(place.left())


_FULL = ("No space left on device", "A disk is full")


def full_disk(place: Place, number: int) -> str:
    """Start with a state folder of 1 MB, full before or while the engine starts."""
    if os.geteuid():
        raise CannotRun("root")
    small = place.folder / f"small-{number}"
    small.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)]
    if subprocess.run(mounted, capture_output=True, check=False).returncode:
        raise CannotRun("mount")
    more = {"XDG_STATE_HOME": str(small), "XDG_CACHE_HOME": str(small / "cache")}
    filler = small / "filler"

    def fill() -> None:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)

    try:
        if number % 2:
            fill()
        command = place.begin(*place.serve("full"), more=more)
        time.sleep(place.chance.uniform(0.0, place.seconds / 12))
        fill()
        shown = command.communicate(timeout=place.seconds)[0]
        wrong = ""
        # a traceback below this sentence is the engine's
        ours = shown.partition("The last lines of its log:")[0]
        if command.returncode not in _CODES or "Traceback" in ours or "is a bug" in shown:
            wrong = shown[-500:]
        if command.returncode and not any(words in shown for words in _FULL):
            wrong = wrong or f"{command.returncode}, a full disk is not named: {shown[-500:]}"
        for words in (
            ("ps",),
            ("status", "full"),
            ("why", "full"),
            ("devices",),
            ("plan", *place.served, "-n", "2"),
        ):
            wrong = wrong or place.good(*words, more=more)
        filler.unlink()
        wrong = wrong or place.good("stop", "--all", more=more)
        return wrong or "; ".join(place.left())
    finally:
        place.run("stop", "--all", more=more)
        subprocess.run(["umount", "-l", str(small)], check=False)


def umasks(place: Place, number: int) -> str:
    """Serve with a key under two umasks; its files are only this user's."""
    key, name = f"sk-secret-{number}", f"umask{number}"
    before = os.umask(0o000 if number % 2 else 0o077)
    try:
        more = {"VLLM_API_KEY": key, "HF_TOKEN": f"hf_{key}"}
        wrong = place.good(*place.serve(name), codes={0}, more=more)
    finally:
        os.umask(before)
    shown = (
        place.run("ps", "--json")[1]
        + subprocess.run(
            ["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True
        ).stdout
    )
    folder = place.user.folder(name)
    if folder.stat().st_mode & 0o077:
        wrong = wrong or f"{folder} has mode {folder.stat().st_mode:o}"
    for path in folder.rglob("*"):
        if path.is_file() and key in path.read_text(encoding="utf-8", errors="replace"):
            wrong = wrong or f"{path} contains the key"
    if key in shown:
        wrong = wrong or "the key is shown"
    return wrong or place.good("stop", name, codes={0})


_RAY = ("-w", "demo", "--engine", "ray-serve:transformers")
_ENDS = ("stop", "kill launcher", "kill engine", "kill child", "orphans", "TERM launcher")


class RayHome:
    """A user with an own home and state, and the data folder of others."""

    def __init__(self, place: Place, number: int, uid: int) -> None:
        self.home = place.folder / f"ray-home-{number}"
        self.home.mkdir()
        os.chown(self.home, uid, uid)
        self.place, self.name, self.port = place, f"ray{number}", unused_port()
        self.before: tuple[str, ...] = ()
        if uid:
            self.before = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
            place.folder.chmod(0o755)
            python = str(paths.engines_dir() / "ray.current" / "bin" / "python")
            if subprocess.run([*self.before, "test", "-x", python], check=False).returncode:
                raise CannotRun("an interpreter and engines that other users can read")
        data = paths.engines_dir().parents[1]
        # the environment for trials is that of a machine without cards
        bare = place.folder / "bare"
        bare.mkdir(exist_ok=True)
        self.more = {
            **{"GAUDI_LAUNCH_ROOT": str(bare), "PATH": os.environ["PATH"]},
            **{"HOME": str(self.home), "USER": f"user{uid}", "XDG_DATA_HOME": str(data)},
            **{f"XDG_{kind}_HOME": str(self.home / kind) for kind in ("STATE", "CACHE", "CONFIG")},
        }

    def run(self, *words: str) -> tuple[int, str]:
        return self.place.run(*words, before=self.before, more=self.more, seconds=_REAL_SECONDS)

    def serve(self, port: int = 0) -> tuple[int, str]:
        words = (*_RAY, "-p", str(port or self.port), "--name", self.name, "--no-doctor")
        return self.run("serve", *words, "--detach")

    def folder(self) -> Path:
        return self.home / "STATE" / "gaudi-launch" / "services" / self.name

    def wrong(self) -> str:
        """Return what is wrong with a service that is to run."""
        listed = json.loads(self.run("ps", "--json")[1])["services"]
        running = [each["name"] for each in listed if each.get("state") != "stopped"]
        if running != [self.name]:
            return f"ps of {self.name}: {listed}"[:600]
        code, shown = self.run("status", self.name)
        if code or "RUNNING" not in shown or "1/1" not in shown:
            return f"status of {self.name}: {code}: {shown[-500:]}"
        try:
            content = ask(self.port, model="demo", max_tokens=4)
        except OSError as error:
            return f"{self.name} does not answer: {error}"
        return "" if b"choices" in content else str(content)[:300]


def ray_homes(place: Place, number: int) -> str:
    """Run Ray of two users with one data folder; what ends one leaves the other."""
    uids = (60_001, 60_002) if number % 2 else (0, 0)
    homes = [RayHome(place, 2 * number + at, uid) for at, uid in enumerate(uids)]
    try:
        with ThreadPoolExecutor(2) as pool:
            same = number % 5 == 4
            if same:
                homes[1].port = homes[0].port
            done = list(pool.map(RayHome.serve, homes))
        codes = [code for code, _ in done]
        if same:
            if sorted(codes) != [0, 3]:
                return f"one port: {done}"[-900:]
            return homes[codes.index(0)].wrong()
        if codes != [0, 0]:
            return f"{done}"[-900:]
        wrong = homes[0].wrong() or homes[1].wrong()
        ended, other = homes if place.chance.random() < 0.5 else homes[::-1]
        how = _ENDS[number % len(_ENDS)]
        if how == "stop":
            ended.run("stop", ended.name)
        elif how == "orphans":
            ended.run("stop", "--orphans")
            wrong = wrong or ended.wrong()
        else:
            state = json.loads((ended.folder() / "state.json").read_text(encoding="utf-8"))
            family = {"launcher": psutil.Process(state["launcher"]["pid"])}
            family["engine"] = psutil.Process(state["engine_process"]["pid"])
            family["child"] = place.chance.choice(family["engine"].children(recursive=True))
            what, _, whom = how.partition(" ")
            family[whom].send_signal(getattr(signal, f"SIG{what.upper()}"))
            time.sleep(3)
        code, shown = ended.run("stop", "--all")
        if code not in _CODES or "Traceback" in shown:
            wrong = wrong or f"{how}: stop: {code}: {shown[-500:]}"
        wrong = wrong or other.wrong()
        return wrong and f"{how}, {uids}: {wrong}"
    finally:
        for each in homes:
            each.run("stop", "--all")
        if place.left():
            time.sleep(5)
        for line in place.left():
            print(f"ray_homes {number}: left: {line}", file=sys.stderr)


CASES: tuple[Case, ...] = (
    *(sparse_packs, reused_pids, clock_jumps, read_only_home, fix_races),
    *(temporary_links, killed_learn, killed_tune, killed_calibrate, two_homes),
    *(storms, killed_launcher, many_at_once, full_disk, umasks, ray_homes),
)


def _tried(case: Case, place: Place, times: int) -> dict[str, object] | str:
    """Return the counts of a case, or what it needs where it cannot run."""
    wrong = []
    try:
        for number in range(times):
            try:
                found = case(place, number)
            except CannotRun as error:
                return f"needs {error}"
            except Exception as error:
                # a fault of this script, or a command that did not end
                found = f"{type(error).__name__}: {error}"[:900]
            if found:
                wrong.append(found)
                print(f"{case.__name__} {number}: {found}", file=sys.stderr, flush=True)
    finally:
        place.run("stop", "--all", "--drain", "0")
    return {"tried": times, "failed": len(wrong), "wrong": wrong[:5]}


def run_cases(cases: Sequence[Case], words: list[str]) -> int:
    """Run the cases that the command line names, each in a separate place."""
    engine = ""
    if words[:1] == ["--engine"]:
        engine, words = words[1], words[2:]
    times = int(words[0]) if words else 30
    chance = random.Random(int(words[1]) if len(words) > 1 else None)
    report: dict[str, object] = {}
    for case in cases:
        if words[2:] and case.__name__ not in words[2:]:
            continue
        with tempfile.TemporaryDirectory(
            prefix="gaudi-launch-rare-", ignore_cleanup_errors=True
        ) as folder:
            report[case.__name__] = _tried(case, Place(Path(folder), chance, engine), times)
    print(json.dumps(report, indent=1))
    return int(any(isinstance(each, dict) and each["failed"] for each in report.values()))


if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1:]))
