"""A stand-in for an engine's interpreter in calibrations: real processes.

No model is loaded.

They leave the files which the real steps leave. With ``-c`` it answers as one with the fork or the
plugin (TRIVIAL_KIND). With a step's script it writes what that step writes, and one JSON line
(script, arguments, QUANT_CONFIG, cards) to TRIVIAL_CALLS. TRIVIAL_DO: ``die:STEP``, ``hang:STEP``
(after its files) or ``empty:STEP``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

RELEASE = os.environ.get("TRIVIAL_KIND", "1.22")


def answer() -> None:
    if RELEASE == "vllm-gaudi":
        packages, facts = (
            {"vllm": "0.26.0", "vllm-gaudi": "0.26.0"},
            {"plugin_source": os.environ["TRIVIAL_SOURCE"]},
        )
        print("gaudi-launch-answer:" + json.dumps({"packages": packages, "facts": facts}))
        return
    facts = {
        "extension_kind": RELEASE,
        "bucket_limit": "false",
        "extension_source": os.environ["TRIVIAL_SOURCE"],
    }
    facts["source"] = os.environ["TRIVIAL_SOURCE"]
    packages = {"vllm": "0.9.0", "vllm-hpu-extension": RELEASE}
    print("gaudi-launch-answer:" + json.dumps({"packages": packages, "facts": facts}))


def option(*names: str) -> str:
    return next(sys.argv[sys.argv.index(name) + 1] for name in names if name in sys.argv)


def ranks(folder: Path, stem: str, count: int, content: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(count):
        for end in (".json", ".npz"):
            (folder / f"{stem}_{rank}_{count}{end}").write_text(content)


def step(number: str) -> None:
    print(
        "Processed prompts:  50%|#####     | 1/2 [00:01]\rProcessed prompts: 100%|##| 2/2 [00:02]",
        flush=True,
    )
    config = json.loads(Path(os.environ["QUANT_CONFIG"]).read_text())
    stem = Path(config["dump_stats_path"])
    if number == "1":
        Path(option("-o") + "-calibration-dataset.pkl").write_bytes(b"prompts")
    elif number == "2":
        assert config["mode"] == "MEASURE"
        count = int(option("--tensor-parallel-size", "--tp_size"))
        ranks(stem.parent, f"{stem.name}_hooks_maxabs", count, "measured")
    elif number == "3":
        out = Path(option("-o"))
        out.mkdir(parents=True, exist_ok=True)
        for path in Path(option("-m")).iterdir():
            (out / path.name).write_text(path.read_text() + " fixed")
    elif number == "5":
        assert option("-r") == "1"
        text = next(Path(option("-m")).glob("*_0_*.json")).read_text()
        ranks(Path(option("-o")), "inc_output_hooks_maxabs", 1, f"{text} unified")
    elif number == "6":
        text = next(Path(option("-m")).glob("*_0_1.json")).read_text()
        ranks(Path(option("-o")), "inc_output_hooks_maxabs", int(option("-w")), f"{text} expanded")
    elif number == "4":
        assert config["mode"] == "QUANTIZE"
        count = int(option("--tensor-parallel-size"))
        ranks(stem.parent, f"{stem.name}_hooks_maxabs_MAXABS_HW", count, "scales")


def main() -> None:
    if sys.argv[1] == "-c":
        return answer()
    name = Path(sys.argv[1]).name
    # deepseek_r1 measures with a fixed example, and has no other step
    number = "2" if name == "run_example_tp.py" else name.split("-")[1]
    with Path(os.environ["TRIVIAL_CALLS"]).open("a") as file:
        names = (
            "QUANT_CONFIG",
            "HABANA_VISIBLE_MODULES",
            "PT_HPU_ENABLE_LAZY_COLLECTIVES",
            "VLLM_FP32_SOFTMAX",
        )
        env = {name: os.environ[name] for name in names if name in os.environ}
        file.write(json.dumps({"words": sys.argv[1:], "env": env, "pid": os.getpid()}) + "\n")
    does, _, where = os.environ.get("TRIVIAL_DO", "").partition(":")
    if (does, where) == ("die", number):
        sys.exit("RuntimeError: synStatus=26 [Generic failure] Device acquire failed.")
    if (does, where) != ("empty", number):
        step(number)
    while (does, where) == ("hang", number):
        time.sleep(0.2)
    return None


if __name__ == "__main__":
    main()
