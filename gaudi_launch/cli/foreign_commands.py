"""Commands of other tools and their names here, for hints in usage errors."""

from __future__ import annotations

# docker, kubectl, vllm, ollama, pip and systemctl
_OURS = {
    "start": "serve",
    "up": "serve",
    "launch": "serve",
    "create": "serve",
    "list": "ps",
    "ls": "ps",
    "services": "ps",
    "kill": "stop",
    "rm": "stop",
    "down": "stop",
    "delete": "stop",
    "log": "logs",
    "tail": "logs -f",
    "attach": "logs -f",
    "download": "pull",
    "get": "pull",
    "benchmark": "bench",
    "perf": "bench",
    "explain": "why",
    "diagnose": "why",
    "debug": "why",
    "test": "check",
    "health": "check",
    "ask": "chat",
    "ui": "webui",
    "install": "setup",
    "show": "status",
    "describe": "status",
    "info": "inspect",
    "metrics": "exporter",
    "monitor": "top",
    "hl-smi": "devices",
    "smi": "devices",
    "cards": "devices",
    "gpus": "devices",
    "models": "profiles list",
    "dry-run": "plan",
    "script": "render script",
    "docker": "render docker",
    "compose": "render compose",
    "systemd": "render systemd",
    "kubernetes": "render kubernetes",
    "k8s": "render kubernetes",
    "kubectl": "kube",
    "version": "--version",
    "completion": "--install-completion",
}


def foreign_command(name: str) -> str | None:
    """Return this program's arguments for another tool's command.

    Return None where no command does the same.
    """
    ours = _OURS.get(name.lower())
    return None if ours is None else f"gaudi-launch {ours}"
