"""Two hosts with real Ray: two network namespaces with a wire between them, and an ssh that leads into them.

The engine is a stand-in that asks Ray for HPUs as vLLM's executor does: vLLM's CPU build has no Ray executor (its
platform falls back to processes of one machine), so no model is served here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.paths import cache_dir

pytestmark = pytest.mark.e2e

ENGINE = Path(__file__).parent / "cluster_engine"
TOP = Path(__file__).parents[2]
# made for these tests: what it finds behind -- is run as a login shell of that host would run it
SSH = """#!/bin/sh
while [ "$1" != "--" ]; do shift; done
host="${2##*@}"; words="$3"
printf '%s\\n' "$words" >> "$FAKE_HOSTS/ssh.log"
[ -d "$FAKE_HOSTS/$host" ] || { echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255; }
# each host has disks of its own: its folder lies over the models' folder, in a mount namespace that ip makes
exec ip netns exec "$(cat "$FAKE_HOSTS/$host/namespace")" sh -c '
    mount --bind "$1/disk" "$2/models" || exit 1
    exec env -i $(cat "$1/env") sh -c "$3"' - "$FAKE_HOSTS/$host" "$FAKE_HOSTS" "$words"
"""
# rsync is not on every machine that runs these tests; this one knows which folder is whose disk
RSYNC = """#!/bin/sh
[ "$1 $2 $3 $4" = "-a --partial --mkpath --" ] || exit 2
from="$5"; to="$6"; address="${to%%:*}"; address="${address##*@}"
for host in a b; do
    if grep -q "$address\\." "$FAKE_HOSTS/$host/address"; then
        target="$FAKE_HOSTS/$host/disk/${to##*/models/}"
        mkdir -p "$target" && exec cp -a "$from." "$target"
    fi
done
exit 10
"""


@pytest.fixture(scope="session")
def ray_python() -> Path:
    """An interpreter that has Ray: the one that GAUDI_LAUNCH_RAY_PYTHON names, else one made once and kept."""
    given = os.environ.get("GAUDI_LAUNCH_RAY_PYTHON")
    if given:
        return Path(given)
    python = cache_dir() / "tests" / "ray" / "bin" / "python"
    if not (python.with_name("ray")).exists():
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "ray"], check=True)
    return python


class Wire:
    """Two namespaces, ``a`` at .1 and ``b`` at .2, and the folder of the stand-in ssh."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder, self.python = folder, python
        self.net = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        self.names = {host: f"gaudi-launch-{os.getpid()}-{host}" for host in "ab"}

    def make(self) -> None:
        one, other = (f"gl{os.getpid() % 100000}{host}" for host in "ab")
        self.interfaces = {"a": one, "b": other}
        # what pip would have written beside the packages
        shutil.copytree(ENGINE, self.folder / "site")
        for package, version in (("vllm", "0.9.0.1"), ("vllm_hpu_extension", "1.0")):
            metadata = self.folder / "site" / f"{package}-{version}.dist-info" / "METADATA"
            metadata.parent.mkdir()
            metadata.write_text(f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: {version}\n")
        for name in self.names.values():
            self._ip("netns", "add", name)
        self._ip("link", "add", one, "netns", self.names["a"], "type", "veth", "peer", "name", other,
                 "netns", self.names["b"])  # fmt: skip
        for host, interface, last in (("a", one, 1), ("b", other, 2)):
            inside = ("-n", self.names[host])
            self._ip(*inside, "address", "add", f"{self.net}.{last}/24", "dev", interface)
            self._ip(*inside, "link", "set", interface, "up")
            self._ip(*inside, "link", "set", "lo", "up")
            home = self.folder / host
            home.mkdir()
            (home / "namespace").write_text(self.names[host])
            (home / "address").write_text(f"{self.net}.{last}.")
            (home / "disk").mkdir()
            # what a login there has; nothing of this side's environment
            lines = {
                "PATH": f"{self.folder / 'tools'}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                "FAKE_HOSTS": self.folder,
                "HOME": home,
                "XDG_STATE_HOME": home / "state",
                "PYTHONPATH": self.folder / "site",
                # short: sockets have paths of 107 letters at most
                "RAY_TMPDIR": f"/tmp/gl{os.getpid()}{host}",
            }
            (home / "env").write_text(" ".join(f"{name}={value}" for name, value in lines.items()))
        (self.folder / "models").mkdir()
        for path, text in (("bin/ssh", SSH), ("tools/rsync", RSYNC)):
            program = self.folder / path
            program.parent.mkdir()
            program.write_text(text)
            program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def _ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def pids(self, host: str) -> list[int]:
        """Processes of a host; all of them are this test's."""
        done = subprocess.run(
            ["ip", "netns", "pids", self.names[host]], capture_output=True, text=True, check=False
        )
        return [int(word) for word in done.stdout.split()]

    def clear(self) -> None:
        for host, name in self.names.items():
            for pid in self.pids(host):
                os.kill(pid, signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
            shutil.rmtree(f"/tmp/gl{os.getpid()}{host}", ignore_errors=True)

    def inventory(self, *more: str, **changes: str) -> Path:
        path = self.folder / "cluster.json"
        hosts = [
            {
                "name": f"host-{host}",
                "ssh": f"me@{host}",
                "address": f"{self.net}.{last}",
                "interface": self.interfaces[host],
                "snapshot": changes.get(host, "simulated:hls2"),
                "python": str(self.python),
            }
            for host, last in (("a", 1), ("b", 2))
        ]
        path.write_text(json.dumps({"schema": 1, "hosts": [*hosts, *({"ssh": name} for name in more)]}))
        return path

    def launch(self, *words: str, seconds: float = 110, **environment: str) -> subprocess.CompletedProcess[str]:
        env = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "FAKE_HOSTS": str(self.folder),
            "XDG_STATE_HOME": str(self.folder / "own-state"),
            "PYTHONPATH": str(TOP),
            "LC_ALL": "C.UTF-8",
            **environment,
        }
        return subprocess.run(
            [sys.executable, "-m", "gaudi_launch", "cluster", *words],
            env=env, cwd=self.folder, capture_output=True, text=True, timeout=seconds, check=False,
        )  # fmt: skip

    def wait_for_ray(self) -> None:
        script = f"import socket; socket.create_connection(('{self.net}.1', 8850), 1)"
        for _ in range(60):
            if not subprocess.run(
                ["ip", "netns", "exec", self.names["a"], sys.executable, "-c", script],
                capture_output=True, check=False,
            ).returncode:  # fmt: skip
                return
            time.sleep(0.3)

    def get(self, path: str) -> Any:
        """A page of the service, asked from within host a."""
        script = f"import urllib.request as u; print(u.urlopen('http://{self.net}.1:30001{path}').read().decode())"
        done = subprocess.run(
            ["ip", "netns", "exec", self.names["a"], sys.executable, "-c", script],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return json.loads(done.stdout)


assert urllib.request  # the script above imports it by name


@pytest.fixture
def wire(tmp_path: Path, ray_python: Path) -> Iterator[Wire]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and ip")
    made = Wire(tmp_path, ray_python)
    try:
        made.make()
    except subprocess.CalledProcessError as error:
        made.clear()
        pytest.skip(f"no network namespaces here: {error.stderr!r}")
    yield made
    made.clear()


@pytest.fixture
def model(wire: Wire) -> Path:
    """A model that lies on host a's disk only, and its path there."""
    folder = wire.folder / "a" / "disk" / "Tiny"
    folder.mkdir()
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 4,
        "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 4096, "torch_dtype": "bfloat16",
        "max_position_embeddings": 8192, "vocab_size": 1000,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return wire.folder / "models" / "Tiny"


def words_for(wire: Wire, model: Path) -> list[str]:
    return ["-w", str(model), "--engine", "vllm-fork@1.22", "-n", "2", "--inventory", str(wire.inventory())]


def test_two_hosts_up_a_worker_killed_down(wire: Wire, model: Path) -> None:
    done = wire.launch("up", *words_for(wire, model), "--json", VLLM_API_KEY="s3cret-key")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["layout"]["tensor"], shown["layout"]["ray"], shown["blockers"]) == (4, True, [])
    # the second host got the model from the first
    copied = {path.name: path.read_bytes() for path in (wire.folder / "b/disk/Tiny").iterdir()}
    assert copied == {path.name: path.read_bytes() for path in (wire.folder / "a/disk/Tiny").iterdir()}
    assert f"Copy {model} from host-a to host-b" in done.stderr
    # every rank on a card of its own, two on each host, with its host's own variables
    placed = wire.get("/placement")
    assert placed["has_key"] is True
    seen = sorted((w["ip"], w["HABANA_VISIBLE_MODULES"], w["GLOO_SOCKET_IFNAME"]) for w in placed["workers"])
    a, b = wire.interfaces["a"], wire.interfaces["b"]
    assert seen == [
        (f"{wire.net}.1", "0", a), (f"{wire.net}.1", "1", a), (f"{wire.net}.2", "0", b), (f"{wire.net}.2", "1", b),
    ]  # fmt: skip
    assert {(w["ip"], w["VLLM_HOST_IP"]) for w in placed["workers"]} == {
        (f"{wire.net}.{n}", f"{wire.net}.{n}") for n in (1, 2)
    }
    # the key went to the engine alone, by no command line and into no file
    assert {w["VLLM_API_KEY"] for w in placed["workers"]} == {None}
    assert "s3cret-key" not in (wire.folder / "ssh.log").read_text() + done.stdout + done.stderr
    kept = [path for path in wire.folder.rglob("*") if path.is_file() and b"s3cret-key" in path.read_bytes()]
    assert kept == []

    healthy = wire.launch("status", "--json")
    state = json.loads(healthy.stdout)
    assert (healthy.returncode, state["whole"], state["engines"][0]["ready"]) == (0, True, True)
    assert sorted(node["hpu"] for node in state["engines"][0]["ray_nodes"]) == [2, 2]

    # a second start must not touch the first
    second = wire.launch("up", *words_for(wire, model))
    assert (second.returncode, "runs already" in second.stderr) == (3, True)
    assert wire.get("/health") == {}

    # host b dies: its Ray and all its ranks
    for pid in wire.pids("b"):
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    with pytest.raises(subprocess.CalledProcessError):
        while time.monotonic() < deadline:
            wire.get("/health")
            time.sleep(0.5)
    broken = wire.launch("status", "--json")
    state = json.loads(broken.stdout)
    by_name = {host["name"]: host["processes"] for host in state["hosts"]}
    assert (broken.returncode, state["whole"], state["engines"][0]["ready"]) == (1, False, False)
    assert by_name["host-b"] == {"ray": None}

    ended = wire.launch("down", "--json")
    assert ended.returncode == 0, ended.stderr
    assert {"host": "host-a", "what": "ray", "trouble": None} in json.loads(ended.stdout)["ended"]
    assert (wire.pids("a"), wire.pids("b")) == ([], [])
    assert wire.launch("status").returncode == 2


def test_a_host_that_is_not_there_and_versions_that_differ(wire: Wire, model: Path) -> None:
    words = ["-w", str(model), "--engine", "vllm-fork@1.22", "-n", "2"]
    alone = wire.launch("up", *words, "--inventory", str(wire.inventory("c")), "--json")
    assert alone.returncode in (2, 3)
    assert "No route to host" in alone.stdout + alone.stderr or "cluster.unreached" in alone.stdout
    other = {"a": "simulated:hls2", "b": "simulated:gaudi3-oam"}
    differs = wire.launch("up", *words, "--inventory", str(wire.inventory(**other)))
    assert differs.returncode == 3, differs.stdout
    assert "the cards are of different kinds" in differs.stderr
    # nothing was started by either
    assert (wire.pids("a"), wire.pids("b")) == ([], [])


def test_an_engine_that_dies_takes_all_down(wire: Wire, model: Path) -> None:
    # an engine on each host: quicker than one over both, and ended in the same way
    wrong = ("--", "--tensor-parallel-size", "many")
    done = wire.launch("up", *words_for(wire, model), "--data-parallel", "2", *wrong)
    assert done.returncode == 4, done.stderr
    assert "invalid int value: 'many'" in done.stderr
    assert (wire.pids("a"), wire.pids("b")) == ([], [])


def test_ctrl_c_takes_all_down(wire: Wire, model: Path) -> None:
    env = {
        **os.environ,
        "PATH": f"{wire.folder / 'bin'}:{os.environ['PATH']}",
        "FAKE_HOSTS": str(wire.folder),
        "XDG_STATE_HOME": str(wire.folder / "own-state"),
        "PYTHONPATH": str(TOP),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "gaudi_launch", "cluster", "up", *words_for(wire, model)],
        env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as started:  # fmt: skip
        assert started.stderr is not None
        for line in started.stderr:
            if "Waiting for 2 hosts" in line:
                break
        assert wire.pids("a") and wire.pids("b")
        # as a terminal does it: to everything in the foreground
        os.killpg(started.pid, signal.SIGINT)
        rest = started.stderr.read()
        assert started.wait(60) == 130
    assert "Ending what was started" in rest
    assert (wire.pids("a"), wire.pids("b")) == ([], [])


def test_the_printed_commands_do_the_same(wire: Wire, model: Path) -> None:
    inventory = str(wire.inventory())
    printed = wire.launch("plan", *words_for(wire, model), "--dry-run")
    assert printed.returncode == 0, printed.stderr
    lines = [line for line in printed.stdout.splitlines() if not line.startswith("#")]
    starts, stops = lines[:3], lines[3:]
    assert len(stops) == 4 and inventory
    env = {**os.environ, "PATH": f"{wire.folder / 'bin'}:{os.environ['PATH']}", "FAKE_HOSTS": str(wire.folder)}
    for home in "ab":  # the printed lines name the usual state folder
        (wire.folder / home / ".local").mkdir(exist_ok=True)
    for line in starts:
        subprocess.run(["sh", "-c", line], env=env, check=True, timeout=60)
        wire.wait_for_ray()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            assert len(wire.get("/placement")["workers"]) == 4
            break
        except subprocess.CalledProcessError:
            time.sleep(1)
    else:
        pytest.fail((wire.folder / "a/.local/state/gaudi-launch/cluster/cluster/host-a/service.log").read_text())
    for line in stops:
        subprocess.run(["sh", "-c", line], env=env, check=True, timeout=60)
    deadline = time.monotonic() + 30
    while (wire.pids("a") or wire.pids("b")) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert (wire.pids("a"), wire.pids("b")) == ([], [])
