"""Fire every alert under its fault in a real Prometheus.

`alerts.py [--unchanged | --short]`

One service on simulated cards (`serve --engine simulated`) compiles at run time, fills its cache,
preempts and crashes. The exporters of four machines are scraped: simulated cards that are hot, lost
or without a link; a machine without hl-smi; this one, with a full file system for the recipes; and
a machine without faults, of which no alert may fire. The rules are those of `render monitoring`,
with `for: 0s`; ``--unchanged`` leaves them as they are and takes about 12 minutes. Then each query
of the dashboard is run: simulated cards have no measured power, so a second record gives the
service cards of the simulated machine. Needs prometheus, unshare and the CPU engine.

``--short`` has the trivial engine of the tests instead of vLLM: it is restarted for real, fails
when this script requests it, and its page of metrics is made up. It takes about 20 seconds.

The exit status is 0 when each alert fired, no other did, and each query gave data.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

import yaml

from gaudi_launch.core.host.simulated import write_tree
from gaudi_launch.core.services.state import registry, store
from gaudi_launch.extensions.vllm_cpu.install import EMBEDDED
from tests.support.places import SUPPORT
from tests.support.serve import write_model
from tests.support.waiting import unused_port

MODEL = "Qwen/Qwen2.5-7B-Instruct"
SERVICE = "alerts"
MEASURED = "measured"
# its launcher left no message
LOST = "lost"
# few blocks, so that clients fill them; one request always fits
_BLOCKS = 120
_LENGTH = 2048
_CLIENTS = 80
# of different lengths, so that answers do not end all at once
_OUTPUT = (100, 1200)
_DISK = "4m"
_JSON = {"Content-Type": "application/json"}
_LAUNCHER = (sys.executable, "-m", "gaudi_launch")
# a separate file system for the caches, that ends with the process
_FULL_DISK = (
    'mount -t tmpfs -o size=$1 tmpfs "$2" && head -c 3900000 /dev/zero > "$2/full" && '
    'shift 2 && exec "$@"'
)


@dataclass(frozen=True)
class Timing:
    """The times of the faults after the warm-up, and the most of all, in seconds.

    ``scale`` is the speed of the cards: with fast ones the clients cannot keep the cache full.
    """

    compiles: int
    crashes: int
    most: float
    scale: int


FAST = Timing(compiles=1, crashes=15, most=240.0, scale=50)
# the crash comes after the alerts that last five minutes
UNCHANGED = Timing(compiles=30, crashes=480, most=1200.0, scale=3)

# alert, instance, service or module
Fired = tuple[str, str, str]


@dataclass
class Exporters:
    """The ports of the exporters by the name of their machine."""

    ports: dict[str, int] = field(default_factory=dict)

    def instance(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"

    def shown(self, alert: Fired) -> str:
        """Return an alert with the name of its machine."""
        name, instance, what = alert
        machine = next(each for each in self.ports if self.instance(each) == instance)
        return f"{name} {machine} {what}".rstrip()

    def expected(self) -> set[Fired]:
        """Return all alerts that have to fire."""
        cards, silent, disk = (self.instance(name) for name in ("cards", "silent", "disk"))
        return {
            ("GaudiLaunchServiceFailed", cards, LOST),
            ("GaudiLaunchExporterSilent", self.instance("gone"), ""),
            ("GaudiLaunchServiceRestarted", cards, SERVICE),
            ("GaudiLaunchCompiledAtRunTime", cards, SERVICE),
            ("GaudiLaunchKvCacheFull", cards, SERVICE),
            ("GaudiLaunchPreemptions", cards, SERVICE),
            ("GaudiLaunchKvCacheFull", cards, MEASURED),
            ("GaudiLaunchPreemptions", cards, MEASURED),
            ("GaudiLaunchFirstTokensLate", cards, SERVICE),
            ("GaudiLaunchFirstTokensLate", cards, MEASURED),
            ("GaudiLaunchThrottled", cards, "1"),
            ("GaudiLaunchLinkDown", cards, "2"),
            ("GaudiLaunchCardLost", cards, "3"),
            ("GaudiLaunchHlSmiSilent", silent, ""),
            ("GaudiLaunchRecipeDiskNearlyFull", disk, ""),
        }


# four cards are read sooner than eight, and module 2 last, when its link is down already
MACHINES = {
    "cards": "simulated:gaudi2e-4+hot=1+link-down=2+lost=3",
    "silent": "simulated:gaudi2e-4+no-hl-smi",
    "well": "simulated:gaudi2e-4",
}


def environment(folder: Path, name: str) -> dict[str, str]:
    """Return an environment with separate folders for services and caches."""
    return {
        **os.environ,
        "XDG_STATE_HOME": str(folder / name / "state"),
        "XDG_CACHE_HOME": str(folder / name / "cache"),
    }


def served(folder: Path) -> dict[str, str]:
    """Return the environment of the service: this user's caches."""
    return {**os.environ, "XDG_STATE_HOME": str(folder / "cards" / "state")}


@contextmanager
def running(folder: Path, timing: Timing) -> Iterator[int]:
    """Start the service, and stop it at the end; give its port."""
    port = unused_port()
    command = [*_LAUNCHER, "serve", MODEL, "--engine", "simulated", "--name", SERVICE]
    command += ["--machine", "simulated:gaudi2e-4", "-n", "1", "-p", str(port)]
    command += [
        "--time-scale",
        str(timing.scale),
        "--max-model-len",
        str(_LENGTH),
        "--restart",
        "on-failure",
    ]
    command += ["--fault", f"compile@{timing.compiles}s", "--fault", f"crash@{timing.crashes}s"]
    command += ["--detach", "--no-wait", "--", "--num-gpu-blocks-override", str(_BLOCKS)]
    subprocess.run(command, env=served(folder), check=True, stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        stop(served(folder))


@contextmanager
def running_trivial(folder: Path) -> Iterator[int]:
    """Start the trivial engine as the service, and stop it at the end; give its port."""
    port, machine, python = unused_port(), folder / "machine", folder / "python"
    write_tree("gaudi2e-4", machine)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {SUPPORT / "trivial_engine.py"} "$@"\n')
    python.chmod(0o755)
    env = {
        **served(folder),
        "GAUDI_LAUNCH_ROOT": str(machine),
        "PATH": f"{machine / 'bin'}:{os.environ['PATH']}",
        "TRIVIAL_DO": "fault",
    }
    model = str(write_model(folder / "models" / "Small"))
    command = [*_LAUNCHER, "serve", "-w", model, "--python", str(python), "--name", SERVICE]
    command += ["--no-doctor", "-n", "1", "-p", str(port), "--restart", "on-failure", "--detach"]
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    try:
        yield port
    finally:
        stop(env)


def stop(env: dict[str, str]) -> None:
    """Stop the service."""
    subprocess.run(
        [*_LAUNCHER, "stop", SERVICE],
        env=env,
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@contextmanager
def measured(folder: Path, engine: int) -> Iterator[None]:
    """Record the engine as a second service, with cards of the machine."""
    os.environ["XDG_STATE_HOME"] = served(folder)["XDG_STATE_HOME"]
    with registry.hold(MEASURED):
        state = {"name": MEASURED, "url": f"http://127.0.0.1:{engine}", "phase": "ready"}
        store.write(store.service_dir(MEASURED), "state.json", {**state, "modules": [0, 1]})
        with registry.hold(LOST):
            lost = {"name": LOST, "url": "http://127.0.0.1:9", "phase": "ready"}
            store.write(store.service_dir(LOST), "state.json", lost)
        yield


@contextmanager
def exporting(folder: Path) -> Iterator[Exporters]:
    """Start the four exporters, and end them."""
    found = Exporters()
    with ExitStack() as started:
        for name, machine in MACHINES.items():
            found.ports[name] = unused_port()
            command = [*_LAUNCHER, "exporter", "-p", str(found.ports[name]), "--machine", machine]
            start(started, command, environment(folder, name))
        found.ports["disk"] = unused_port()
        cache = folder / "disk" / "cache"
        cache.mkdir(parents=True)
        exporter = [*_LAUNCHER, "exporter", "-p", str(found.ports["disk"])]
        alone = ["unshare", "--map-root-user", "--mount", "sh", "-c", _FULL_DISK, "sh", _DISK]
        start(started, [*alone, str(cache), *exporter], environment(folder, "disk"))
        # nothing listens there
        found.ports["gone"] = unused_port()
        yield found


def start(started: ExitStack, command: list[str], env: dict[str, str] | None = None) -> None:
    """Start a program that ends with the stack."""
    process = subprocess.Popen(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    started.callback(process.wait)
    started.callback(process.kill)


def configure(folder: Path, exporters: Exporters, *, unchanged: bool) -> Path:
    """Write the files of `render monitoring`; return Prometheus' configuration.

    The times of the rules become 0 s unless ``unchanged``, and first tokens are late after 0.2 s;
    the intervals are always one second.
    """
    made = folder / "monitoring"
    targets = ",".join(exporters.instance(name) for name in exporters.ports)
    command = [*_LAUNCHER, "render", "monitoring", "--to", str(made), "--target", targets]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    config = yaml.safe_load((made / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (made / "prometheus.yml").write_text(yaml.safe_dump(config))
    if not unchanged:
        rules = made / "gaudi-launch-rules.yml"
        document = yaml.safe_load(rules.read_text())
        for rule in document["groups"][0]["rules"]:
            # a new exporter does not answer yet, and a service that is restarted has failed
            brief = rule["alert"] in ("GaudiLaunchExporterSilent", "GaudiLaunchServiceFailed")
            rule["for"] = "15s" if brief else "0s"
            # the simulated cards are 50 times as fast
            if rule["alert"] == "GaudiLaunchFirstTokensLate":
                rule["expr"] = rule["expr"].replace("> 10", "> 0.2")
        rules.write_text(yaml.safe_dump(document))
    return made / "prometheus.yml"


@contextmanager
def scraping(folder: Path, config: Path) -> Iterator[int]:
    """Start Prometheus, and end it; give its port."""
    port = unused_port()
    with ExitStack() as started:
        start(
            started,
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
        )
        yield port


def asked(port: int, path: str) -> Any:
    """Return Prometheus' data at a path; None while it does not answer."""
    try:
        with build_opener(ProxyHandler({})).open(
            f"http://127.0.0.1:{port}/api/v1/{path}", timeout=10
        ) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def firing(port: int) -> set[Fired]:
    """Return the alerts that fire now."""
    data = asked(port, "alerts") or {"alerts": []}
    labels = [alert["labels"] for alert in data["alerts"] if alert["state"] == "firing"]
    return {
        (each["alertname"], each["instance"], each.get("service") or each.get("module") or "")
        for each in labels
    }


def load(port: int, ended: threading.Event) -> None:
    """Send requests, one after the other, until the end."""
    while not ended.is_set():
        prompt = " ".join(str(random.randrange(1000)) for _ in range(100))
        tokens = random.randint(*_OUTPUT)
        request = {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            connection.request("POST", "/v1/completions", json.dumps(request), _JSON)
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            # not ready yet, or crashed
            ended.wait(0.5)
        finally:
            connection.close()


@contextmanager
def loading(port: int) -> Iterator[None]:
    """Keep the service busy."""
    ended = threading.Event()
    clients = [
        threading.Thread(target=load, args=(port, ended), daemon=True) for _ in range(_CLIENTS)
    ]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        ended.set()


@dataclass
class Provoked:
    """The faults of the trivial engine, each made once its counter has been scraped."""

    engine: int
    prometheus: int
    left: list[tuple[str, str]] = field(
        default_factory=lambda: [
            ("service_run_time_compiles_total", "compile"),
            ("service_restarts_total", "crash"),
        ]
    )

    def next(self, seen: set[Fired]) -> None:
        """Make the next fault when its counter is known.

        The last one comes when the other alerts of the service have fired.
        """
        if not self.left:
            return
        name, fault = self.left[0]
        if fault == "crash" and len({alert for alert, _, what in seen if what == SERVICE}) < 3:
            return
        query = f'gaudi_launch_{name}{{service="{SERVICE}"}}'
        found = asked(self.prometheus, f"query?{urlencode({'query': query})}")
        if found is None or not found["result"]:
            return
        del self.left[0]
        request = Request(f"http://127.0.0.1:{self.engine}/fault/{fault}", b"{}")
        # the engine that crashes does not answer
        with contextlib.suppress(OSError, http.client.HTTPException):
            build_opener(ProxyHandler({})).open(request, timeout=10).close()


def watch(
    prometheus: int,
    exporters: Exporters,
    most: float,
    provoke: Callable[[set[Fired]], None],
) -> set[Fired]:
    """Print each alert when it fires first; return all that fired.

    ``provoke`` is called with them every half second.
    """
    began, seen, expected = time.monotonic(), set[Fired](), exporters.expected()
    while not seen >= expected and time.monotonic() - began < most:
        provoke(seen)
        for alert in sorted(firing(prometheus) - seen):
            seen.add(alert)
            note = "" if alert in expected else "  NOT EXPECTED"
            print(f"{time.monotonic() - began:6.1f} s  {exporters.shown(alert)}{note}", flush=True)
        time.sleep(0.5)
    return seen


def no_fault(seen: set[Fired]) -> None:
    """Make no fault: the simulated cards have theirs."""


def queries(dashboard: Path) -> list[tuple[str, str]]:
    """Return title and expression of each query, without variables.

    They are filled in as Grafana does for "All" and a scrape interval of one second.
    """
    found = []
    for panel in json.loads(dashboard.read_text())["panels"]:
        for target in panel["targets"]:
            text = target["expr"].replace("$instance", ".+").replace("$service", ".+")
            found.append((panel["title"], text.replace("$__rate_interval", "15s")))
    return found


def without_data(prometheus: int, dashboard: Path, began: float) -> list[str]:
    """Run each query of the dashboard; return those that give no number."""
    empty = []
    for title, text in queries(dashboard):
        words = {"query": text, "start": began, "end": time.time(), "step": 1}
        found = asked(prometheus, f"query_range?{urlencode(words)}") or {"result": []}
        values = [float(value) for series in found["result"] for _, value in series["values"]]
        if not any(math.isfinite(value) for value in values):
            empty.append(f"{title}: {text}")
    return empty


def missing(short: bool) -> str | None:
    """Return what this machine lacks for the run."""
    for program in ("prometheus", "unshare"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    alone = subprocess.run(["unshare", "--map-root-user", "--mount", "true"], check=False)
    if alone.returncode:
        return "file systems cannot be mounted here"
    if not short and not EMBEDDED.is_ready():
        return "the CPU engine is not installed: run `gaudi-launch setup cpu`"
    return None


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__)
    form = reader.add_mutually_exclusive_group()
    form.add_argument("--unchanged", action="store_true", help="the rules as they are rendered")
    form.add_argument("--short", action="store_true", help="the trivial engine, not vLLM")
    given = reader.parse_args()
    lack = missing(given.short)
    if lack is not None:
        print(lack, file=sys.stderr)
        return 3
    timing, began = UNCHANGED if given.unchanged else FAST, time.time()
    with tempfile.TemporaryDirectory() as made, ExitStack() as all_of_it:
        folder = Path(made)
        start_engine = running_trivial(folder) if given.short else running(folder, timing)
        engine = all_of_it.enter_context(start_engine)
        all_of_it.enter_context(measured(folder, engine))
        exporters = all_of_it.enter_context(exporting(folder))
        config = configure(folder, exporters, unchanged=given.unchanged)
        prometheus = all_of_it.enter_context(scraping(folder, config))
        expected = exporters.expected()
        if given.short:
            provoke = Provoked(engine, prometheus).next
        else:
            all_of_it.enter_context(loading(engine))
            provoke = no_fault
        fired = watch(prometheus, exporters, timing.most, provoke)
        dashboard = config.parent / "gaudi-launch-dashboard.json"
        empty = without_data(prometheus, dashboard, began)
        print(f"{len(queries(dashboard))} queries of the dashboard, {len(empty)} without data")
    for alert in sorted(expected - fired):
        print(f"did not fire: {exporters.shown(alert)}")
    for query in empty:
        print(f"no data: {query}")
    return 0 if fired == expected and not empty else 1


if __name__ == "__main__":
    raise SystemExit(main())
