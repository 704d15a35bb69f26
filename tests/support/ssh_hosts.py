"""Two hosts with real sshd in network namespaces, and a third for the launcher.

The launcher reaches both over a bridge whose links can be cut. Each host has separate keys, a
state folder and an engine (a stand-in without Ray). Used by tests and scripts/acceptance/ssh.py.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import until

HOSTS = ("a", "b")
_SSHD = "/usr/sbin/sshd"
_KEYGEN = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "")
# serves no model: ready as soon as it listens, or never with --never-ready
_ENGINE = """
import argparse, json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
parser = argparse.ArgumentParser()
parser.add_argument("--host")
parser.add_argument("--port", type=int)
parser.add_argument("--model")
parser.add_argument("--never-ready", action="store_true")
given, _ = parser.parse_known_args()
print("Loading weights on cpu", flush=True)
if given.never_ready:
    time.sleep(3600)
ROUTES = {
    "/health": {},
    "/v1/models": {"data": [{"id": given.model}]},
    "/v1/completions": {"choices": [{"text": "1"}]},
}
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        answer = ROUTES.get(self.path)
        body = json.dumps(answer).encode()
        self.send_response(404 if answer is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()
    def log_message(self, format, *_):
        return
server = ThreadingHTTPServer((given.host, given.port), Handler)
print("Application startup complete.", flush=True)
server.serve_forever()
"""
_PACKAGES = (("vllm", "0.9.0.1"), ("vllm_hpu_extension", "1.0"), ("habana_torch_plugin", "1.21.0"))


def missing() -> str:
    """Return why these hosts cannot be made here; "" when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [
        program
        for program in ("ip", "iptables", "ssh", "ssh-keygen", _SSHD)
        if shutil.which(program) is None
    ]
    return f"not installed: {', '.join(absent)}" if absent else ""


@dataclass(frozen=True)
class Ended:
    """A command of the launcher: its exit code and what it printed."""

    code: int
    output: str
    errors: str


class SshHosts:
    """Hosts ``a`` (.1) and ``b`` (.2) and the launcher's namespace ``here`` (.9)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.net = f"10.{100 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        self.namespaces = {name: f"gl-ssh-{os.getpid()}-{name}" for name in ("here", *HOSTS)}
        self._sshd: dict[str, subprocess.Popen[bytes]] = {}

    def make(self) -> None:
        """Make namespaces, keys and servers.

        Raises CalledProcessError where that is impossible.
        """
        for name in self.namespaces.values():
            _run("ip", "netns", "add", name)
        here = self.namespaces["here"]
        _run("ip", "-n", here, "link", "add", "lan", "type", "bridge")
        _run("ip", "-n", here, "address", "add", f"{self.net}.9/24", "dev", "lan")
        _run("ip", "-n", here, "link", "set", "lan", "up")
        for host in HOSTS:
            self._join(host)
        Path("/run/sshd").mkdir(exist_ok=True)
        self._write_site()
        for key in ("user", "stranger"):
            _run(*_KEYGEN, "-f", str(self.folder / key))
        for host in HOSTS:
            (self.folder / host).mkdir()
            self.new_host_key(host)
            self.serve(host)
        self._write_ssh()
        self.configure()

    def _join(self, host: str) -> None:
        """Join a host to the bridge."""
        here, there = self.namespaces["here"], self.namespaces[host]
        _run(
            *("ip", "-n", here, "link", "add", f"to-{host}", "type", "veth"),
            *("peer", "name", "eth0", "netns", there),
        )
        _run("ip", "-n", here, "link", "set", f"to-{host}", "master", "lan", "up")
        _run("ip", "-n", there, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
        for interface in ("eth0", "lo"):
            _run("ip", "-n", there, "link", "set", interface, "up")

    def _write_site(self) -> None:
        """Write what pip would have installed: engine and versions."""
        server = self.folder / "site/vllm/entrypoints/openai/api_server.py"
        server.parent.mkdir(parents=True)
        server.write_text(_ENGINE)
        extension = self.folder / "site/vllm_hpu_extension"
        extension.mkdir()
        for folder in (server.parent, server.parents[1], server.parents[2], extension):
            (folder / "__init__.py").touch()
        for package, version in _PACKAGES:
            metadata = self.folder / "site" / f"{package}-{version}.dist-info" / "METADATA"
            metadata.parent.mkdir()
            name = package.replace("_", "-")
            metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    def _write_ssh(self) -> None:
        """Write a program that calls the real ssh with these hosts' configuration."""
        ssh = self.folder / "bin" / "ssh"
        ssh.parent.mkdir()
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.folder}/config "$@"\n')
        ssh.chmod(0o755)

    def address(self, host: str) -> str:
        return f"{self.net}.{HOSTS.index(host) + 1}"

    def new_host_key(self, host: str) -> None:
        """Give a host another key, as after a new installation."""
        key = self.folder / host / "host_key"
        for path in (key, key.with_suffix(".pub")):
            path.unlink(missing_ok=True)
        _run(*_KEYGEN, "-f", str(key))

    def serve(self, host: str, *options: str) -> None:
        """Start sshd on a host, with more lines of sshd_config.

        One that runs there is ended.
        """
        self.end_server(host)
        folder = self.folder / host
        path = f"{self.folder}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        variables = (
            f"PATH={path} HOME={folder} XDG_STATE_HOME={folder}/state "
            f"XDG_CACHE_HOME={folder}/cache PYTHONPATH={self.folder}/site"
        )
        lines = [
            *options,
            f"HostKey {folder}/host_key",
            f"AuthorizedKeysFile {self.folder}/user.pub",
            "PermitRootLogin yes",
            "StrictModes no",
            "UsePAM no",
            "PidFile none",
            f"SetEnv {variables}",
        ]
        (folder / "sshd_config").write_text("\n".join(lines) + "\n")
        log = (folder / "sshd.log").open("ab")
        self._sshd[host] = subprocess.Popen(
            [*self.inside(host), _SSHD, "-D", "-e", "-f", str(folder / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        log.close()
        until(lambda: self._listens(host), f"sshd on {host}", 20)

    def _listens(self, host: str) -> bool:
        assert self._sshd[host].poll() is None, (self.folder / host / "sshd.log").read_text()
        shown = subprocess.run(
            [*self.inside(host), "ss", "-Hlnt", "sport = 22"],
            capture_output=True,
            text=True,
            check=False,
        )
        return ":22" in shown.stdout

    def inside(self, name: str) -> tuple[str, ...]:
        """Return the arguments that run a command in a namespace."""
        return ("ip", "netns", "exec", self.namespaces[name])

    def end_server(self, host: str) -> None:
        """End sshd on a host and its sessions."""
        server = self._sshd.pop(host, None)
        if server is None:
            return
        for pid in self.servers(host):
            _signal(pid, signal.SIGKILL)
        server.wait()

    def configure(self, lines: Mapping[str, Sequence[str]] | None = None) -> None:
        """Write the user's ssh configuration.

        ``lines`` are further lines of each host ("*": of all).
        The first line of a name counts (ssh_config(5)), so these replace the usual ones.
        """
        more = lines or {}
        text = ["Host *", *more.get("*", ())]
        for host in HOSTS:
            text += [
                f"Host {host}",
                *more.get(host, ()),
                f"HostName {self.address(host)}",
                "User root",
                f"IdentityFile {self.folder}/user",
                "IdentitiesOnly yes",
                f"UserKnownHostsFile {self.folder}/known_hosts",
                "GlobalKnownHostsFile none",
            ]
        (self.folder / "config").write_text("\n".join(text) + "\n")
        self.trust(*HOSTS)

    def trust(self, *hosts: str) -> None:
        """Let the user know the present keys of these hosts, and of no other."""
        lines = []
        for host in hosts:
            key = (self.folder / host / "host_key.pub").read_text().split()[:2]
            lines.append(f"{self.address(host)} {' '.join(key)}\n")
        (self.folder / "known_hosts").write_text("".join(lines))

    def cut(self, host: str) -> None:
        """Take a host's link down."""
        _run("ip", "-n", self.namespaces["here"], "link", "set", f"to-{host}", "down")

    def join(self, host: str) -> None:
        """Take a host's link up."""
        _run("ip", "-n", self.namespaces["here"], "link", "set", f"to-{host}", "up")

    def drop(self, host: str, *, drop: bool = True) -> None:
        """Let a host drop all packets without an answer, or accept them again."""
        _run(*self.inside(host), "iptables", "-A" if drop else "-D", "INPUT", "-j", "DROP")

    def servers(self, host: str) -> list[int]:
        """Return the processes of sshd on a host.

        They are the listener and one or two for each session.
        """
        return [pid for pid in self._pids(host) if _name(pid).startswith("sshd")]

    def stop_servers(self, host: str) -> None:
        """Stop sshd and its sessions, as on a host whose disk hangs.

        The kernel still accepts connections.
        """
        for pid in self.servers(host):
            _signal(pid, signal.SIGSTOP)

    def continue_servers(self, host: str) -> None:
        for pid in self.servers(host):
            _signal(pid, signal.SIGCONT)

    def _pids(self, name: str) -> list[int]:
        done = subprocess.run(
            ["ip", "netns", "pids", self.namespaces[name]],
            capture_output=True,
            text=True,
            check=False,
        )
        return [int(word) for word in done.stdout.split()]

    def processes(self, name: str) -> list[str]:
        """Return what runs in a namespace besides sshd, as command lines."""
        shown = []
        for pid in self._pids(name):
            words = _command(pid)
            if words and not _name(pid).startswith("sshd"):
                shown.append(f"{pid}: {words}")
        return shown

    def records(self, host: str) -> list[str]:
        """Return the files of processes that a host has on record."""
        folder = self.folder / host / "state"
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.json"))

    def left(self) -> list[str]:
        """Return everything that remains: processes, records, control sockets."""
        found = [f"{name}: {each}" for name in self.namespaces for each in self.processes(name)]
        found += [f"{host}: {each}" for host in HOSTS for each in self.records(host)]
        found += [str(path) for path in self.folder.rglob("*") if path.is_socket()]
        return found

    def inventory(self) -> Path:
        """Write the inventory of both hosts; each has eight simulated cards."""
        return self._write_inventory("cluster.json", {"snapshot": "simulated:hls2"})

    def inventory_of_cards(self) -> Path:
        """Write an inventory for `top`, which reads the cards of the hosts themselves."""
        return self._write_inventory("hosts.json", {})

    def _write_inventory(self, name: str, more: Mapping[str, str]) -> Path:
        rows = [
            {
                "name": f"host-{host}",
                "ssh": host,
                "address": self.address(host),
                "interface": "eth0",
                "python": sys.executable,
                "launcher": [sys.executable, "-m", "gaudi_launch"],
                **more,
            }
            for host in HOSTS
        ]
        path = self.folder / name
        path.write_text(json.dumps({"schema": 1, "hosts": rows}))
        return path

    def start(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        """Start the launcher in its namespace, without a terminal."""
        environment = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(self.folder / "own-state"),
            "GAUDI_LAUNCH_LANG": "en",
            "LC_ALL": "C.UTF-8",
            **variables,
        }
        return subprocess.Popen(
            [*self.inside("here"), sys.executable, "-m", "gaudi_launch", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=self.folder,
        )

    def launch(self, *words: str, seconds: float = 300.0, **variables: str) -> Ended:
        """Run the launcher to its end."""
        return ended(self.start(*words, **variables), seconds)

    def up_words(self, *more: str) -> list[str]:
        """Return the arguments for one engine on each host, with two cards each."""
        return [
            *("cluster", "up", "-w", "Qwen/Qwen3-8B", "--engine", "vllm-fork@1.22", "-n", "2"),
            *("--data-parallel", "2", "-p", "31007", "--inventory", str(self.inventory()), *more),
        ]

    def clear(self) -> None:
        """End everything and remove the namespaces."""
        for host in HOSTS:
            self.end_server(host)
        for name, namespace in self.namespaces.items():
            for pid in self._pids(name):
                _signal(pid, signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)


def ended(process: subprocess.Popen[str], seconds: float = 300.0) -> Ended:
    """Return a command of the launcher when it has ended.

    Raises AssertionError where that takes longer.
    """
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        raise AssertionError(f"it continued after {seconds:g} s: {output}{errors}") from None
    return Ended(process.returncode, output, errors)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _command(pid: int) -> str:
    try:
        content = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return content.replace(b"\0", b" ").decode(errors="replace").strip()[:200]
