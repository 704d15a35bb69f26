"""The names that went, each with what is used instead."""

from __future__ import annotations

from collections.abc import Sequence

from gaudi_launch.core.base.errors import ExitCode, LaunchError

# a command, a subcommand or a command with its option -> arguments of gaudi-launch today
GONE: dict[str, str] = {
    "capacity": "recommend MODEL -n 4 --rate 5/s",
    "estimate --software": "estimate --engine",
    "estimate --moe": "estimate",
    "devices --sources": "devices --json",
    "recommend --stack": "recommend",
    "fit": "inspect MODEL",
    "support": "inspect MODEL",
    "support --list": "engines",
    "calibrate": "fp8 calibrate",
    "convert": "fp8 convert",
    **{f"{name} --patience": f"{name} --timeout" for name in ("bench", "chat", "check", "webui")},
    "docs": "help TOPIC",
    "learn": "bench --learn",
    "ray": "render ray-serve",
    "ray check": "render ray-serve --check",
    "ray config": "render ray-serve",
    "ray status": "status",
    "render env": "render script",
    "render kubernetes --kustomize": "render kubernetes --helm",
    "render kubernetes --prometheus": "render kubernetes --autoscale hpa",
    "power": "devices",
    "power --cap": "devices power --limit",
    "power --undo": "devices power --undo",
    "profiles list": "inspect",
    "snapshot": "devices snapshot",
    "warmup --blocks": "warmup --machine",
    "warmup --budget": "warmup --graphs",
    "warmup --log": "why",
    "warmup --price": "warmup --overhead",
    "warmup --run": "serve",
    "warmup --trace-share": "warmup --trace",
    "warmup --watch": "warmup --trace",
    "warmup --ask-engine": "warmup --list",
    "recommend --top": "recommend --json",
    "tune --resume": "tune --minutes",
    "cache verify --repair": "cache verify",
    "cache prune --stale": "cache prune --older",
    "cache prune --machine": "cache list --machine",
    "cluster plan --ask": "cluster plan",
    "cluster up --no-copy": "cluster up",
    "logs --engine": "logs",
    **{f"offline pack {old}": "offline pack --to" for old in ("-o", "--output")},
}


def refuse_gone(arguments: Sequence[str]) -> None:
    """Raise LaunchError if the arguments begin with a command that went."""
    for length in (2, 1):
        found = " ".join(arguments[:length])
        if found in GONE:
            raise gone(found)


def gone(found: str) -> LaunchError:
    """Return the error for a name of the table."""
    return LaunchError("usage.gone", ExitCode.USAGE, found=found, now=f"gaudi-launch {GONE[found]}")
