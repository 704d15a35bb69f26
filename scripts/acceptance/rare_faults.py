"""Try rare faults: sparse packs, reused PIDs, jumping clocks, others' folders.

Use: `python scripts/acceptance/rare_faults.py [TIMES [SEED [CASE...]]]` (30 times by default).

The engine is a stand-in with real processes on a simulated machine. `reused_pids` needs root,
`read_only_home` setpriv, `clock_jumps` a C compiler; a case that cannot run here is reported as
such. Every command must end with a documented exit code, without a
traceback and within 60 s. Prints one JSON object; the exit status is 0 when nothing failed.
"""

from __future__ import annotations

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
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from gaudi_launch.errors import ExitCode
from gaudi_launch.host.simulated import write_tree
from gaudi_launch.offline import pack_manifest
from tests.support import trivial_calibration
from tests.support.calibration_scripts import write_scripts
from tests.support.keeper import Keeper
from tests.support.packs import made
from tests.support.places import TOP
from tests.support.processes import TRIVIAL, write_engine_python
from tests.support.serve import write_model
from tests.support.waiting import unused_port

_SECONDS = 60.0
_CODES = {*(int(code) for code in ExitCode), 130, 143}
_LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
_NOBODY = 65534
Env = Mapping[str, str]
_NONE: Env = MappingProxyType({})


class CannotRun(Exception):
    """A case that needs what this machine does not have."""


class Place:
    """A user with a simulated machine, a model and a stand-in engine."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance = folder, chance
        write_tree("hls2", folder / "machine")
        self.model = write_model(folder / "models" / "Small")
        python = write_engine_python(folder / "engine-python", f"{sys.executable} {TRIVIAL}")
        self.user = Keeper(folder, folder / "machine", python, folder / "pids")

    def run(
        self,
        *words: str,
        before: tuple[str, ...] = (),
        seconds: float = _SECONDS,
        more: Env = _NONE,
    ) -> tuple[int, str]:
        """Return exit code and output of a command; -1 for one that does not end."""
        argv = [*before, sys.executable, "-m", "gaudi_launch", *words]
        environment = {**self.user.environment, "TRIVIAL_DO": "", **more}
        try:
            done = subprocess.run(
                argv, env=environment, capture_output=True, text=True, timeout=seconds,
                stdin=subprocess.DEVNULL, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return -1, f"{words}: no end after {seconds:.0f} s"
        return done.returncode, done.stdout + done.stderr

    def good(self, *words: str, codes: set[int] | None = None, more: Env = _NONE) -> str:
        """Return "" where a command ended as documented, else what was wrong."""
        code, shown = self.run(*words, more=more)
        if code not in (codes or _CODES) or "Traceback" in shown or "is a bug" in shown:
            return f"{' '.join(words)}: {code}: {shown[-500:]}"
        return ""

    def detach(self, name: str, more: Env = _NONE) -> str:
        """Start a service that becomes ready; return "" or what was wrong."""
        return self.good(
            *("serve", "-w", str(self.model), "-n", "2", "-p", str(unused_port()), "--name", name),
            *("--no-doctor", "--python", str(self.user.python), "--detach"),
            codes={0},
            more=more,
        )

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
    ("why", "{model}/config.json"), ("logs", "none"), ("cache", "list"), ("learn", "{model}"),
    ("setup", "gateway"), ("stack", "ps"), ("recommend", "-w", "{model}"), ("inspect", "{model}"),
    ("doctor", "--bundle", "{home}/case.tar.gz"), ("tune", "-w", "{model}", "-n", "2"),
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
    words = ("serve", "-w", str(place.model), "-n", "2", "-p", str(unused_port()), "--no-doctor")
    more = {**more, "TRIVIAL_DO": "exit"}
    python = ("--python", str(place.user.python), "--detach", "--name", f"links{number}")
    wrong = wrong or place.good(*words, *python, more=more)
    place.run("stop", "--all", more=more)
    found = {each.name: each.read_bytes() for each in victim.iterdir()}
    return wrong or ("" if found == {"file": b"mine"} else f"followed: {found}"[:500])


def killed_learn(place: Place, number: int) -> str:
    """`learn` killed at a drawn moment, then again, two at once."""
    run = place.folder / "run.json"
    shutil.copyfile(next(Path("tests/data/bench").glob("*.json")), run)
    words = [sys.executable, "-m", "gaudi_launch", "learn", str(run)]
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
    return place.good("learn") or place.good("plan", "-w", str(place.model), "-n", "2")


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
    words = ["tune", str(place.model), "--python", str(python), "-p", str(unused_port())]
    words += ["-n", "2", "--no-doctor", "--candidates", "2", "--concurrency", "2"]
    words += ["-i", "16", "-o", "8", "--requests", "4", "--minutes", "20", "--json"]
    ends = ["--", "--max-num-seqs", str(number + 1)]
    killed(place, [*words, *ends], place.chance.uniform(0.2, 20.0))
    # the server of the killed search runs as a service, as `ps` shows it
    wrong = place.good("stop", "--all")
    code, shown = place.run(*words, *ends, seconds=_SECONDS * 5)
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
        words = ["serve", "-w", str(place.model), "-n", "4", "-p", str(unused_port())]
        words += ["--no-doctor", "--python", str(place.user.python), "--detach"]
        argv = [sys.executable, "-m", "gaudi_launch", *words, "--name", f"home{number}-{at}"]
        started.append(
            subprocess.Popen(
                argv,
                env={**homes[at % 2], "TRIVIAL_DO": ""},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    shown = [each.communicate()[0] for each in started]
    codes = [each.returncode for each in started]
    taken: list[int] = []
    for home in homes:
        listed = place.run("ps", "--json", more={"XDG_STATE_HOME": home["XDG_STATE_HOME"]})[1]
        for service in json.loads(listed)["services"]:
            taken += service["modules"]
    for home in homes:
        place.run("stop", "--all", more={"XDG_STATE_HOME": home["XDG_STATE_HOME"]})
    if sorted(codes) != [0, 0, 3, 3] or len(taken) != len(set(taken)) or "Traceback" in str(shown):
        return f"{codes}, modules {taken}: {shown}"[-900:]
    return ""


CASES: dict[str, Callable[[Place, int], str]] = {
    case.__name__: case
    for case in (
        *(sparse_packs, reused_pids, clock_jumps, read_only_home, fix_races),
        *(temporary_links, killed_learn, killed_tune, killed_calibrate, two_homes),
    )
}


def main() -> int:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    chance = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else None)
    report: dict[str, object] = {}
    failed = False
    for name in sys.argv[3:] or CASES:
        with tempfile.TemporaryDirectory(prefix="gaudi-launch-rare-") as folder:
            place = Place(Path(folder), chance)
            wrong = []
            try:
                for number in range(times):
                    found = CASES[name](place, number)
                    if found:
                        wrong.append(found)
                        print(f"{name} {number}: {found}", file=sys.stderr, flush=True)
                report[name] = {"tried": times, "failed": len(wrong), "wrong": wrong[:5]}
            except CannotRun as error:
                report[name] = f"needs {error}"
            place.run("stop", "--all")
        failed = failed or bool(wrong)
    print(json.dumps(report, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
