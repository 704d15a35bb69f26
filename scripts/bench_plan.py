"""Time `gaudi-launch plan` against the calls of a start script before its engine.

Both sides run in this one run, on stub programs that answer immediately: the cost of starting
programs is measured, ours and theirs. On a real server hl-smi alone takes longer, and the script
calls it up to ten times. Theirs, as HabanaAI/vllm-fork@aice/v1.21.0:scripts/utils.sh calls them for
-n 4 -m 0,1,2,3 on 8 cards: hl-smi name; hl-smi index,module_id; per card two xargs and one lsof;
per address hostname, ip, awk; per chosen list hl-smi topo three times; bc for each sum.

    python scripts/bench_plan.py [RUNS]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from gaudi_launch.core.host.simulated import make

BARE = "import typer\napp = typer.Typer()\n@app.command()\ndef go() -> None: print('{}')\napp()\n"

# one line a call, in the script's order; $(...) where the script captures
SEQUENCE = r"""
: "$(hl-smi -Q name -f csv | tail -n 1)"
while IFS=, read -r index module; do
  : "$(echo $index | xargs)" "$(echo $module | xargs)"
done < <(hl-smi -Q index,module_id -f csv)
for index in 0 1 2 3 4 5 6 7; do : "$(lsof /dev/accel/accel_controlD$index)"; done
: "$(hl-smi topo -c -N | grep '^[0|1|2|3]' | awk '{print $4}' | uniq)"
: "$(hl-smi topo -c -N | grep '^[0|1|2|3]' | awk '{print $2}' | uniq | sed 's/,//g')"
: "$(hl-smi topo -c -N | grep -c 0-39)"
: "$(echo 0-39 | cut -d - -f 1)" "$(echo 0-39 | cut -d - -f 2)" "$(echo '(39-0+1)/4' | bc)"
for module in 0 1 2 3; do
  : "$(echo "$module % 4" | bc)" "$(echo "0 + 10 * $module" | bc)" "$(echo "$module + 9" | bc)"
done
: "$(hostname -I | awk '{print $1}')"
: "$(ip -br addr show to 10.20.30.40 | awk '{print $1}')"
"""


def stubs(folder: Path, only: str = "") -> None:
    """Write hl-smi, lsof, hostname, ip and bc in bash, which answer immediately.

    ``only`` writes one of them.
    """
    cards = make("hls2").cards
    rows = "".join(f"{card.index}, {card.module}\\n" for card in cards)
    topo = "".join(f"{module} 0-39, 80-119 0\\n" for module in range(8))
    names = "printf 'name\\nHL-225\\n'"
    answers = {
        "hl-smi": (
            f"case \"$*\" in *name*) {names};; *index*) printf '{rows}';; *) printf '{topo}';; esac"
        ),
        "lsof": ":",
        "hostname": "echo 10.20.30.40",
        "ip": "echo ens8f0 UP 10.20.30.40/24",
        "bc": "read -r sum; echo 1",
    }
    folder.mkdir()
    for name, text in answers.items():
        if only not in ("", name):
            continue
        program = folder / name
        program.write_text(f"#!/bin/bash\n{text}\n")
        program.chmod(0o755)


def seconds(command: Sequence[str], runs: int, environment: dict[str, str]) -> float:
    """Return the median wall time of a command, in seconds."""
    times = []
    for _ in range(runs + 1):
        begun = time.perf_counter()
        subprocess.run(
            command,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        times.append(time.perf_counter() - begun)
    return statistics.median(times[1:])


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    program = str(Path(sys.executable).with_name("gaudi-launch"))
    with tempfile.TemporaryDirectory() as folder:
        stubs(Path(folder) / "all")
        stubs(Path(folder) / "hl-smi", only="hl-smi")
        environment = {
            **os.environ,
            "PATH": f"{folder}/all:{os.environ['PATH']}",
            "XDG_STATE_HOME": folder,
        }
        real = {**environment, "PATH": f"{folder}/hl-smi:{os.environ['PATH']}"}
        plan = [
            program,
            "plan",
            "--machine",
            "simulated:hls2",
            "--engine",
            "vllm-fork@1.21",
            "-w",
            "m",
            "-n",
            "4",
        ]
        rows = {
            "start script's calls (stubs)": seconds(["bash", "-c", SEQUENCE], runs, environment),
            "the same, own lsof, ip, bc": seconds(["bash", "-c", SEQUENCE], runs, real),
            "gaudi-launch plan": seconds(plan, runs, environment),
            "gaudi-launch plan --json": seconds([*plan, "--json"], runs, environment),
            "a bare typer app": seconds([sys.executable, "-c", BARE], runs, environment),
        }
    theirs = rows["start script's calls (stubs)"]
    print(f"median of {runs} runs, complete processes")
    for name, value in rows.items():
        print(f"{name:32} {value * 1000:8.1f} ms   {value / theirs:5.2f} x the script's calls")


if __name__ == "__main__":
    main()
