"""The table of commands: name, module and one line of help.

A command's module is imported when it is called.
"""

from __future__ import annotations

from typing import Any

import typer.main

from gaudi_launch.core.base.members import member

# name -> (module, short help). `--help` reads this table only, so it stays fast.
COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("commands.serve", "Select cards, plan, start the engine, warm up and serve a model."),
    "ps": ("commands.services.ps", "List services: phase, uptime, requests; -a adds stopped ones."),
    "top": (
        "extensions.watch.top.command",
        "Watch cards, services and hosts live: use, power, links, TTFT, KV.",
    ),
    "status": (
        "commands.services.status.command",
        "Show one service: plan, phases, memory, last error.",
    ),
    "stack": (
        "extensions.stack.command",
        "Run several models behind one address, as one file describes them.",
    ),
    "logs": ("commands.services.logs.command", "Print a service's log; -f follows it."),
    "stop": (
        "commands.services.stop.command",
        "Stop services after draining; --orphans stops leftovers.",
    ),
    "restart": (
        "commands.services.restart",
        "Stop a service and start it again with the same settings.",
    ),
    "wait": ("commands.services.wait", "Wait until a service is ready."),
    "why": ("commands.services.why.command", "Explain a failed launch from its log."),
    "check": (
        "extensions.bench.check.command",
        "Test a server: models, chat, streaming, long prompt, speed.",
    ),
    "chat": ("extensions.bench.chat", "Chat with a server in the terminal."),
    "run": ("extensions.bench.run", "Chat with a model; serve it first if no service has it."),
    "webui": ("extensions.bench.webui", "Serve a chat page for a server in the browser."),
    "bench": (
        "extensions.bench.command",
        "Measure a server under load; compare runs, learn from them.",
    ),
    "plan": ("commands.plan.command", "Show every setting that serve would use, with its reason."),
    "warmup": (
        "commands.warmup.command",
        "Predict warm-up: graphs, time, coverage; plan better buckets.",
    ),
    "estimate": ("commands.estimate", "Predict TTFT, TPOT and tokens/s, with range and evidence."),
    "recommend": (
        "extensions.recommend.command",
        "Find the best configuration of a model for a goal.",
    ),
    "tune": (
        "extensions.bench.tune.command",
        "Start and measure the best few plans; keep the fastest.",
    ),
    "migrate": ("extensions.migrate.command", "Convert a start script's or an engine's command."),
    "doctor": (
        "commands.doctor.command",
        "Check BIOS, OS, driver and cards; --fix repairs what it can.",
    ),
    "devices": (
        "commands.devices.command",
        "Show cards, power and users; select cards, set power limits.",
    ),
    "exporter": (
        "extensions.watch.exporter.command",
        "Export services and cards as Prometheus metrics.",
    ),
    "pull": ("commands.pull", "Download a model from Hugging Face or ModelScope; resumable."),
    "inspect": (
        "commands.inspect.command",
        "Show a model: the cards that it fits, the engines that run it.",
    ),
    "fp8": ("extensions.fp8.command", "Convert an fp8 checkpoint for Gaudi2; calibrate a model."),
    "render": (
        "commands.render.command",
        "Write the plan as a script, container, unit or K8s objects.",
    ),
    "kube": ("extensions.kubernetes.kube.command", "Show, log and delete Kubernetes deployments."),
    "cluster": (
        "extensions.cluster.command",
        "Run one engine on several hosts: plan, up, status, down.",
    ),
    "setup": (
        "commands.setup.command",
        "Prepare an engine environment; 'setup cpu' needs no card.",
    ),
    "offline": (
        "extensions.offline.command",
        "Pack an engine and a model for a host without a network.",
    ),
    "engines": (
        "commands.setup.engines.command",
        "List engines: installed ones, features, unsupported options.",
    ),
    "cache": ("commands.cache.command", "List, verify, prune and copy caches of compiled graphs."),
    "profiles": (
        "commands.profiles.command",
        "List, show and check the shipped profiles and your own.",
    ),
    "help": ("commands.help.command", "Find a command or a page by a question, a name or a term."),
}
# what a user wants -> commands, most used first
GROUPS: dict[str, tuple[str, ...]] = {
    "Start and watch": (
        *("serve", "ps", "status", "stack", "logs", "top", "stop", "restart", "wait", "why"),
        *("check", "chat", "run", "webui", "bench"),
    ),
    "Plan": ("plan", "warmup", "recommend", "estimate", "tune", "migrate"),
    "Machine": ("doctor", "devices", "exporter"),
    "Models": ("pull", "inspect", "fp8"),
    "More machines": ("render", "kube", "cluster"),
    "Maintain": ("setup", "offline", "engines", "cache", "profiles", "help"),
}

# on the first screen, in the order of their use
FIRST_COMMANDS = (
    *("doctor", "serve", "ps", "logs", "top", "stop", "why", "chat", "bench"),
    *("plan", "stack", "setup"),
)

# set by a shell that requests completions (click)
COMPLETES = "_GAUDI_LAUNCH_COMPLETE"

# commands of a command, which its own module does not import
SUBCOMMANDS: dict[str, str] = {
    "devices power": "commands.devices.power",
    "devices snapshot": "commands.devices.snapshot",
    "engines diff": "extensions.migrate.diff.command",
    "render kubernetes": "extensions.kubernetes.command",
    "render ray-serve": "extensions.ray.ray_serve",
    "render monitoring": "extensions.watch.monitoring",
}

# what a shell completes, the help, the answers to a wrong command line, and what one extension has
# for the commands of others: parts of the program that a command does not need in most runs
LISTS: dict[str, str] = {
    "completion": "cli.completion:attach",
    "bash words": "cli.completion:join_bash_words",
    "engines": "core.engines.entries:names",
    "machines": "core.host.simulated:NAMES",
    "checks": "core.doctor.runner:CHECKS",
    "help": "cli.help:shown",
    "start command": "extensions.migrate.case:serve_words",
    "deep test": "extensions.acceptance.command:deep_test",
    "compared tests": "extensions.acceptance.command:compare",
    "stack plans": "extensions.stack.render_plans:stack_plans",
    "nearest models": "cli.nearest_models:nearest_models",
    "corrected error": "cli.nearest:corrected_error",
    "usage error": "cli.usage_errors:usage_document",
}


def listed(name: str) -> Any:
    """Return an entry of `LISTS`, imported now."""
    return member(f"gaudi_launch.{LISTS[name]}")


def load_command(name: str, module: str) -> Any:
    """Return the command of a module, under its name in the table."""
    command = typer.main.get_command(member(f"gaudi_launch.{module}:app"))
    command.name = name
    return command
