"""``gaudi-launch migrate``: a start script's command line as ours, and what would differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from gaudi_launch.planning.plan import Plan
    from gaudi_launch.planning.request import Request

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@app.command(context_settings={"ignore_unknown_options": True})
def migrate(
    words: list[str] | None = typer.Argument(
        None, metavar="'COMMAND' | -- WORDS", help="The old command, quoted whole, or as words behind --."
    ),
    release: str | None = typer.Option(None, "--release", metavar="1.21|1.22|deepseek_r1", help="Whose letters."),
    machine: str | None = typer.Option(None, "--machine", help="Plan for a snapshot file or simulated:NAME."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Turn a start-script command line into ours, in reference tuning, and say what --tuning auto would change."""
    import os
    import time

    from gaudi_launch.cli.output import emit_json
    from gaudi_launch.engines.registry import find
    from gaudi_launch.engines.start_scripts import read_call, request_of
    from gaudi_launch.errors import LaunchError
    from gaudi_launch.host.machine import load
    from gaudi_launch.planning.planner import make_plan
    from gaudi_launch.profiles import known_model

    call = read_call(split(words or []), release)
    request = request_of(call, dict(os.environ), time.strftime("%Y-%m-%d-%H-%M-%S"))
    host, model = load(machine), known_model(request.model, must_exist=False)
    engine = find(request.engine)
    reference = make_plan(request, host, model, engine)
    ours: Plan | LaunchError
    try:
        ours = make_plan(replace(request, tuning="auto"), host, model, engine)
    except LaunchError as error:
        # what auto refuses is itself the difference
        ours = error
    command = our_words(request, call.variables)
    rows = differences(reference, ours)
    if as_json:
        emit_json(
            {
                "schema": 1,
                "release": call.release,
                "command": command,
                "plan": reference.to_json(),
                "differences": rows,
            }
        )
    else:
        _show(call.release, command, rows, reference)


def split(words: list[str]) -> list[str]:
    """Words of a command: one quoted string is split as a shell splits it (nothing is run or expanded)."""
    import shlex

    from gaudi_launch.errors import ExitCode, LaunchError

    if len(words) != 1:
        return words
    try:
        # a backslash at a line's end joins lines in scripts and manuals
        return shlex.split(words[0].replace("\\\n", " "))
    except ValueError as error:
        raise LaunchError("migrate.quoting", ExitCode.USAGE, found=words[0][:200], why=str(error)) from None


_FLAGS = (
    ("cards", "-n"),
    ("modules", "-m"),
    ("host", "-u"),
    ("port", "-p"),
    ("dtype", "-d"),
    ("input_range", "-i"),
    ("output_range", "-o"),
    ("max_num_batched_tokens", "-t"),
    ("max_model_len", "-l"),
    ("max_num_seqs", "-b"),
    ("scheduler_steps", "-e"),
    ("max_prefill_seqs", "--max-prefill-seqs"),
    ("padding_limit", "--padding-limit"),
    ("memory_utilization", "--memory-utilization"),
    ("max_capture_len", "--max-capture-len"),
    ("quant_config", "--quant-config"),
    ("cache_dir", "-c"),
    ("reduce", "-r"),
    ("skip_warmup", "-s"),
    ("profile", "-f"),
    ("no_zero_padding", "-z"),
    ("no_fused_sdpa", "-a"),
    ("inc_fp8", "-q"),
)


def our_words(request: Request, variables: Mapping[str, str]) -> list[str]:
    """The same deployment in our words, with the variables that stood in front of the old ones."""
    assigned = [f"{name}={value}" for name, value in variables.items()]
    words = [*(["env", *assigned] if assigned else []), "gaudi-launch", "serve", "--engine", request.engine]
    words += ["-w", request.model]
    for name, flag in _FLAGS:
        value = getattr(request, name)
        if value is None or value is False or (name == "cards" and value == 1 and request.modules is None):
            continue
        words.append(flag)
        if name.removesuffix("_range") in request.open_ranges:
            words.append(str(value[0]))
        elif isinstance(value, tuple):
            words.append(",".join(str(item) for item in value))
        elif value is not True:
            words.append(str(value))
    return [*words, *(["--", *request.extra] if request.extra else [])]


def differences(reference: Plan, ours: Plan | Exception) -> list[dict[str, Any]]:
    """What --tuning auto does otherwise: name, both values, and why ours is better."""
    from gaudi_launch.errors import LaunchError
    from gaudi_launch.messages import text

    if isinstance(ours, LaunchError):
        return [{"name": "plan", "reference": "", "ours": "", "reason": str(ours)}]
    assert not isinstance(ours, Exception)
    theirs = {(s.kind, s.name): s for s in reference.settings if s.sent}
    mine = {(s.kind, s.name): s for s in ours.settings if s.sent}
    rows: list[dict[str, Any]] = []
    for key in [*theirs, *(key for key in mine if key not in theirs)]:
        old, new = theirs.get(key), mine.get(key)
        if old is not None and new is not None and old.value == new.value:
            continue
        reason = new.reason.render() if new is not None else text("migrate.left_out")
        rows.append(
            {
                "name": key[1],
                "reference": None if old is None else old.value or "",
                "ours": None if new is None else new.value or "",
                "reason": reason,
            }
        )
    if reference.placement.cpus != ours.placement.cpus:
        from gaudi_launch.host.cpus import format_cpus

        pair = [format_cpus(p.placement.cpus) for p in (reference, ours)]
        rows.append({"name": "cpus", "reference": pair[0], "ours": pair[1], "reason": text("migrate.cpus")})
    return rows


def _show(release: str, command: list[str], rows: list[dict[str, Any]], reference: Plan) -> None:
    import shlex

    from gaudi_launch.cli.output import console, table
    from gaudi_launch.messages import text

    out = console()
    out.print(text("migrate.is", release=release), markup=False)
    at = command.index("serve") + 1
    out.print("  " + shlex.join([*command[:at], "--tuning", "reference", *command[at:]]), markup=False)
    out.print(text("migrate.better"), markup=False)
    out.print("  " + shlex.join(command), markup=False)
    if rows:
        names = ("name", "reference", "ours", "reason")
        columns = [text(f"migrate.column_{name}") for name in names]
        cells = [tuple("-" if row[name] is None else str(row[name]) for name in names) for row in rows]
        out.print(table(text("migrate.title"), columns, cells))
    for warning in reference.warnings:
        out.print(f"{text('plan.word_warning')}: {warning.render()}", markup=False)
