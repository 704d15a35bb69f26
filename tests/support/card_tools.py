"""Stand-ins of the tools that measure cards, with planted faults.

hccl_demo and hl_qual print what the real ones do (HabanaAI/hccl_demo@f623d69:hccl_demo.cpp; the
summary as Intel's validation scripts read it), at rates of sound cards times the planted shares.
The interpreter answers for torch, and is this one for all else.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gaudi_launch.core.host import simulated
from gaudi_launch.core.host.accelerators import accelerators

# shares of the peak that were measured on sound cards, or are assumed
SOUND = {
    "gaudi2": {"matrix": 0.95, "memory": 0.92, "links": 0.98},
    "gaudi3": {"matrix": 0.74, "memory": 0.80, "links": 0.977},
}
_SHARED = """#!{python} -IS
import json, os, sys, time
facts = json.load(open({facts!r}))
with open({facts!r} + ".calls", "a") as calls:
    calls.write(os.path.basename(sys.argv[0]) + " " + " ".join(sys.argv[1:])[:60] + "\\n")
"""
_DEMO = """
time.sleep(facts["seconds"])
env = os.environ
rank, nodes = int(env["HCCL_RANK"]), int(env["HCCL_NRANKS"])
assert env["ID"] == env["HCCL_RANK"] and env["HCCL_DEMO_MPI_REQUESTED"] == "0"
assert "HCCL_TEST_OF_USER" not in env and env["GC_KERNEL_PATH"] == "/usr/lib/tpc.so"
group = [int(n) for n in env.get("HCCL_DEMO_CUSTOM_COMM", "").split(",") if n] or range(nodes)
if rank == min(group):
    share = min((facts["pairs"].get(f"{a}-{b}", 1) for a in group for b in group if a < b))
    rate = (len(group) - 1) * facts["pair"] * facts["links"] * share
    print("Running HCCL Demo :: A simple program demonstrating HCCL usage from C++")
    print(f"rank={rank} size=33554432 <float> Input Buffer [0 1 2 3 ...] Output Buffer [0 8 16 24"
          f" ...] which is {facts['sum']}.")
    print("#" * 72)
    print(f"[BENCHMARK] hcclAllReduce(dataSize=33554432, count=8388608, dtype=float, iterations="
          f"{env['HCCL_DEMO_TEST_LOOP']})")
    print(f"[BENCHMARK]     NW Bandwidth   : {rate:.6f} GB/s")
    print(f"[BENCHMARK]     Algo Bandwidth : {rate / 1.75:.6f} GB/s")
"""
_QUAL = """
time.sleep(facts["seconds"])
print("Start running plugin")
print("================ hl qual report ================")
print("FAILED" if facts["qual_failed"] else "PASSED")
print("Test result summary")
for bus in facts["buses"]:
    print(f"device : {bus} : {'FAILED' if bus in facts['qual_failed'] else 'PASSED'}")
"""
_PYTHON = """
if len(sys.argv) < 3 or not sys.argv[1].endswith("gaudi_card_rates.py"):
    os.execv(facts["python"], [facts["python"], *sys.argv[1:]])
time.sleep(facts["seconds"])
job = json.loads(sys.argv[2])
module, test = os.environ["HABANA_VISIBLE_MODULES"], job["test"]
kind = {"memory_rate": "memory", "host_to_card": "link"}.get(test, "matrix")
value = facts["rates"].get(test, facts["rates"][kind]) * facts["cards"].get(module, {}).get(kind, 1)
answer = {"value": value, "digest": "a" * 16, "torch": "2.9.0", "compiled_late": 0,
          "wrong_values": 0}
answer.update(facts["answers"].get(module, {}).get(test, {}))
for path, text in facts["writes"].get(test, {}).items():
    open(os.path.join(os.environ["GAUDI_LAUNCH_ROOT"], path), "w").write(text)
print("gaudi-launch-answer:" + json.dumps(answer), flush=True)
"""


def write_server(
    folder: Path, name: str, faults: Mapping[str, Any] | None = None, seconds: float = 0.0
) -> dict[str, str]:
    """Write a simulated machine with all tools; return the environment of a command.

    ``faults`` change the facts of the tools: ``cards`` {module: {kind: share}}, ``pairs`` {"0-1":
    share}, ``answers``, ``writes`` {test: {path: text}}, ``qual_failed`` (buses), ``sum``.
    ``files`` are those of the machine, ``hl_smi`` is {module: {field: value}}.
    """
    faults = dict(faults or {})
    machine = simulated.build(name)
    programs = simulated.write_tree(name, folder, faults.pop("files", None))
    _change_hl_smi(programs / "hl-smi.json", faults.pop("hl_smi", {}))
    product = accelerators()[simulated.make(name).product or ""]
    sound = SOUND[product.id]
    assert product.bandwidth_gb_s and product.peak_tflops_bf16 and product.peak_tflops_fp8
    matrix = sound["matrix"]
    rates = {
        "memory": product.bandwidth_gb_s * sound["memory"],
        "matrix": product.peak_tflops_bf16 * matrix,
        "matrix_fp8": product.peak_tflops_fp8 * matrix,
        "link": 26.0,
    }
    assert machine.hl_smi is not None
    buses = [card["bus_id"] for card in machine.hl_smi["cards"]]
    facts = {
        **{"python": sys.executable, "seconds": seconds, "pair": product.pair_gb_s},
        **{"links": sound["links"], "rates": rates, "buses": buses, "sum": "fine"},
        **{"pairs": {}, "cards": {}, "answers": {}, "writes": {}, "qual_failed": []},
        **faults,
    }
    known = folder / "tools.json"
    known.write_text(json.dumps(facts))
    family = "gaudi3" if "gaudi3" in product.id else "gaudi2"
    for path, text in {
        "opt/hccl_demo/hccl_demo": _DEMO,
        f"opt/habanalabs/qual/{family}/bin/hl_qual": _QUAL,
        "engine/python": _PYTHON,
    }.items():
        program = folder / path
        program.parent.mkdir(parents=True)
        program.write_text(_SHARED.format(python=sys.executable, facts=str(known)) + text)
        program.chmod(0o755)
    profile = folder / "etc/profile.d/habanalabs.sh"
    profile.parent.mkdir(parents=True, exist_ok=True)
    profile.write_text("export GC_KERNEL_PATH=/usr/lib/tpc.so\nexport PATH=$PATH:/opt\n")
    return {
        **os.environ,
        "GAUDI_LAUNCH_ROOT": str(folder),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HCCL_TEST_OF_USER": "1",
        "GAUDI_LAUNCH_ACCEPTANCE_SCALE": "60",
    }


def _change_hl_smi(path: Path, changes: Mapping[str, Mapping[str, Any]]) -> None:
    machine = json.loads(path.read_text())
    for card in machine["cards"]:
        for field, value in changes.get(str(card["module_id"]), {}).items():
            card[field] = {**card[field], **value} if isinstance(value, dict) else value
    path.write_text(json.dumps(machine))
