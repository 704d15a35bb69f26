"""Time `gaudi-launch --help` against a bare typer program, in pairs.

That program has the same commands and help, and nothing else.

python scripts/bench_help.py [RUNS]    (default 15). Prints CPU milliseconds and the median ratio of
the pairs.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from gaudi_launch.cli.table import COMMANDS

BARE = """import typer
app = typer.Typer()
{commands}
app()
"""
ONE = "@app.command('{name}')\ndef command_{number}() -> None:\n    '{help}'\n"


def bare_program(folder: Path) -> Path:
    """Return a typer program with the same commands and help, and nothing else."""
    commands = "".join(
        ONE.format(name=name, number=number, help=help_text.replace("'", ""))
        for number, (name, (_, help_text)) in enumerate(COMMANDS.items())
    )
    path = folder / "bare.py"
    path.write_text(BARE.format(commands=commands), encoding="utf-8")
    return path


def seconds(words: list[str]) -> float:
    """Return the CPU time of one complete process; its output is discarded."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ratios(runs: int) -> tuple[list[float], list[float]]:
    """Return CPU seconds of this program and of the bare one, pair by pair.

    One run of each before is not counted.
    """
    with tempfile.TemporaryDirectory() as folder:
        bare = str(bare_program(Path(folder)))
        ours = ["-m", "gaudi_launch", "--help"]
        pairs = [(seconds(ours), seconds([bare, "--help"])) for _ in range(runs + 1)][1:]
    return [a for a, _ in pairs], [b for _, b in pairs]


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    ours, bare = ratios(runs)
    print(
        f"gaudi-launch --help   {1000 * statistics.median(ours):6.0f} ms (least "
        f"{1000 * min(ours):.0f})"
    )
    print(
        f"a bare typer program  {1000 * statistics.median(bare):6.0f} ms (least "
        f"{1000 * min(bare):.0f})"
    )
    print(
        "ratio                 "
        f"{statistics.median(a / b for a, b in zip(ours, bare, strict=True)):6.2f}"
    )


if __name__ == "__main__":
    main()
