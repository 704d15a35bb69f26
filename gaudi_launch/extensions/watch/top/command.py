"""``gaudi-launch top``: cards, services and hosts as they change."""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.console import emit_json, emit_json_line, give_up
from gaudi_launch.cli.endless import until_ctrl_c
from gaudi_launch.cli.machine_option import MACHINE
from gaudi_launch.cli.times import time_option

app = CommandApp()


@app.command()
def top(
    hosts: str = typer.Option(
        "", "--hosts", metavar="H1,H2", help="Hosts to watch over ssh; 'local' is this one."
    ),
    inventory: str = typer.Option(
        "", "--inventory", metavar="FILE", help="The hosts of a cluster inventory."
    ),
    machine: str | None = MACHINE,
    interval: float = time_option(
        "--interval", 1.0, help="Time between two samples: 0.5, 2m.", least=0.5, most=3600
    ),
    timeout: float = time_option(
        "--timeout", 5.0, help="Time for a host to answer: 5, 1m.", least=0.5, most=600
    ),
    once: bool = typer.Option(False, "--once", help="Print one sample and exit."),
    as_json: bool = typer.Option(
        False, "--json", help="JSON: with --once one object, else one per line."
    ),
) -> None:
    """Watch cards, services and hosts: use, power, links, TTFT, tokens/s, KV cache, and what is
    wrong.

    Keys: s sort, / filter, l log, x stop, w why, h help, q quit. In a pipe it prints samples. What
    nothing reports is shown as -. hl-smi is called once per second at most, by all programs of a
    user together.
    """
    import shutil
    import sys
    import time

    from gaudi_launch.extensions.watch.top import case
    from gaudi_launch.extensions.watch.top.view import printed_lines, to_json

    width = shutil.get_terminal_size().columns
    request = case.WatchRequest(hosts, inventory, machine, interval, timeout)
    if once:
        found = case.once(request)
        if as_json:
            return emit_json(to_json(found))
        return print("\n".join(printed_lines(found, width)))
    if as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        try:
            with until_ctrl_c():
                for found in case.repeated(request, time.sleep):
                    if as_json:
                        emit_json_line(to_json(found))
                    else:
                        print("\n".join(printed_lines(found, width)), flush=True)
        except BrokenPipeError:
            # typer would end with 1; the reader has all that it needs
            give_up(sys.stdout)
        return None
    from gaudi_launch.extensions.watch.top.screen import run

    with until_ctrl_c():
        return run(request)
