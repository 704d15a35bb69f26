"""Two hosts on one machine: network namespaces with a wire between them, disks of their own, and
an ssh that leads into them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.real_engines import keep_vllm_cache
from tests.support.waiting import until

ENGINE = Path(__file__).parent / "cluster_engine"
TOP = Path(__file__).parents[2]
# made for these tests: what it finds behind -- is run as a login shell of that host would run it
SSH = """#!/bin/sh
while [ "$1" != "--" ]; do shift; done
host="${2##*@}"; words="$3"
printf '%s\\n' "$words" >> "$FAKE_HOSTS/ssh.log"
[ -d "$FAKE_HOSTS/$host" ] || {
    echo "ssh: connect to host $host port 22: No route to host" >&2
    exit 255
}
# each host has disks of its own: its folder lies over the models' folder, in a mount namespace
# that ip makes
exec ip netns exec "$(cat "$FAKE_HOSTS/$host/namespace")" sh -c '
    mount --bind "$1/disk" "$2/models" || exit 1
    exec env -i $(cat "$1/env") sh -c "$3"' - "$FAKE_HOSTS/$host" "$FAKE_HOSTS" "$words"
"""
# rsync is not on every machine that runs these tests; this one knows which folder is whose disk
RSYNC = """#!/bin/sh
options="-o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15 -o ServerAliveCountMax=3"
[ "$*" = "-a --copy-links --partial --mkpath -e ssh $options -- $8 $9" ] || exit 2
from="$8"; to="$9"; address="${to%%:*}"; address="${address##*@}"
for host in a b; do
    if grep -q "$address\\." "$FAKE_HOSTS/$host/address"; then
        target="$FAKE_HOSTS/$host/disk/${to##*/models/}"
        mkdir -p "$target" && exec cp -aL "$from." "$target"
    fi
done
exit 10
"""


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
        stand_ins = (
            ("vllm", "0.9.0.1"),
            ("vllm_hpu_extension", "1.0"),
            ("habana_torch_plugin", "1.21.0"),
        )
        for package, version in stand_ins:
            metadata = self.folder / "site" / f"{package}-{version}.dist-info" / "METADATA"
            metadata.parent.mkdir()
            metadata.write_text(
                f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: {version}\n"
            )
        for name in self.names.values():
            self._ip("netns", "add", name)
        self._ip("link", "add", one, "netns", self.names["a"], "type", "veth", "peer", "name",
                 other,
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
            keep_vllm_cache(home / ".cache")
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
        path.write_text(
            json.dumps({"schema": 1, "hosts": [*hosts, *({"ssh": name} for name in more)]})
        )
        return path

    def launch(
        self, *words: str, seconds: float = 300, **environment: str
    ) -> subprocess.CompletedProcess[str]:
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
        words = ["ip", "netns", "exec", self.names["a"], sys.executable, "-c", script]
        until(
            lambda: subprocess.run(words, capture_output=True, check=False).returncode == 0,
            "Ray's start",
        )

    def answers(self, path: str) -> bool:
        """Whether the service has this page by now, or still."""
        try:
            self.get(path)
        except subprocess.CalledProcessError:
            return False
        return True

    def get(self, path: str, question: dict[str, Any] | None = None) -> Any:
        """A page of the service, or its answer to a question, asked from within host a."""
        body = None if question is None else json.dumps(question)
        script = (
            "import sys, urllib.request as u; body = sys.argv[2].encode() or None; "
            "r = u.Request(sys.argv[1], body, {'Content-Type': 'application/json'}); "
            "print(u.urlopen(r, timeout=120).read().decode())"
        )
        done = subprocess.run(
            ["ip", "netns", "exec", self.names["a"], sys.executable, "-c", script,
             f"http://{self.net}.1:30001{path}", body or ""],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return json.loads(done.stdout)
