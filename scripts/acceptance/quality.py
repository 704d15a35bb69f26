"""Prove that right weights pass and wrong ones are found, on the CPU engine.

Use: `python scripts/acceptance/quality.py [-d bfloat16]`. Needs `setup cpu` and the demo model;
takes ten minutes on two cores. The demo model and four tiny ones with random weights are served as
they are. Then the demo model is served with the scales of one layer changed by 10 %, with two
layers swapped, and with another base of the rotary embedding; and a cached prefix block is stale,
which is to a later token as if the first 128 tokens of its prompt were those of another one. The
reference has the right weights. Prints one JSON object; the exit status is 0 when only the faults
were found.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import codec, paths
from gaudi_launch.core.services.addresses import system_port
from gaudi_launch.core.services.endpoint import target
from gaudi_launch.extensions.bench.check import reference
from gaudi_launch.extensions.bench.client import Client
from gaudi_launch.extensions.vllm_cpu.install import EMBEDDED

_BLOCK = 128
_FAULTS, _TINY = ("scales", "swapped", "rope"), ("llama", "qwen2", "qwen3", "mistral")
# run by the engine's interpreter: the folder of the demo model, the folder to make, the kind
_MAKE = """
import json, sys
import torch, transformers
from safetensors.torch import load_file, save_file

source, folder, kind = sys.argv[1:]
if kind in ("llama", "qwen2", "qwen3", "mistral"):
    torch.manual_seed(len(kind))
    sizes = dict(hidden_size=128, intermediate_size=256, num_hidden_layers=4, vocab_size=49152,
                 num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048)
    if kind == "qwen3":
        sizes["head_dim"] = 32
    config = transformers.AutoConfig.for_model(kind, initializer_range=0.2, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config).float()
    model.save_pretrained(folder)
else:
    weights = load_file(f"{source}/model.safetensors")
    if kind == "scales":
        for name in [n for n in weights if n.startswith("model.layers.15.") and "proj" in n]:
            weights[name] = weights[name] * 1.1
    if kind == "swapped":
        for name in [n for n in weights if n.startswith("model.layers.10.")]:
            other = name.replace("layers.10.", "layers.11.")
            weights[name], weights[other] = weights[other], weights[name]
    save_file(weights, f"{folder}/model.safetensors", metadata={"format": "pt"})
    config = json.load(open(f"{source}/config.json"))
    if kind == "rope":
        config["rope_parameters"]["rope_theta"] = 10000.0
    json.dump(config, open(f"{folder}/config.json", "w"))
"""


class StaleClient(Client):
    """Send the second request of a long prompt with the first block of another one."""

    async def ask(self, path: str, question: object = None) -> Any:
        if isinstance(question, dict) and len(question["prompt"]) > _BLOCK:
            long = [each for each in reference.prompts() if len(each) > _BLOCK]
            prompt = question["prompt"]
            self.seen = [*getattr(self, "seen", []), prompt]
            if self.seen.count(prompt) > 1:
                other = next(each for each in long if each != prompt)
                question = {**question, "prompt": other[:_BLOCK] + prompt[_BLOCK:]}
        return await super().ask(path, question)


def made(demo: Path, folder: Path, kind: str) -> Path:
    """Return a folder with a model of this kind, and the demo model's tokenizer."""
    folder.mkdir()
    for file in demo.iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            shutil.copy(file, folder)
    command = [str(EMBEDDED.python()), "-c", _MAKE, str(demo), str(folder), kind]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


def matched(folder: Path, right: Path, dtype: str, *kinds: type[Client]) -> list[dict[str, Any]]:
    """Serve a model; return its match with the right weights for each client."""
    name = f"quality-{folder.name}"
    ours = [sys.executable, "-m", "gaudi_launch"]
    words = ["serve", str(folder), "--engine", "cpu", "--name", name, "--detach", "--no-doctor"]
    words += ["-p", str(system_port()), "-l", "1024", "-d", dtype]
    subprocess.run([*ours, *words], check=True, stdout=subprocess.DEVNULL)
    try:
        subprocess.run([*ours, "wait", name], check=True, stdout=subprocess.DEVNULL)
        served = target(name)
        found = []
        for kind in kinds:
            rows = asyncio.run(reference.answers(kind(served.url), str(served.model)))
            match = reference.match(rows, served, str(right))
            assert match is not None, "the reference did not run"
            found.append({**codec.write(match), "bad": match.bad})
    finally:
        subprocess.run([*ours, "stop", name], check=True, stdout=subprocess.DEVNULL)
    return found


def main() -> int:
    """Run all of it, print what was found, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-d", "--dtype", default="float32", help="data type that is served")
    dtype = parser.parse_args().dtype
    demo = paths.data_dir() / "models/demo"
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as text:
        report["demo"], report["stale"] = matched(demo, demo, dtype, Client, StaleClient)
        print(json.dumps(report), file=sys.stderr, flush=True)
        for kind in (*_FAULTS, *_TINY):
            folder = made(demo, Path(text) / kind, kind)
            right = folder if kind in _TINY else demo
            (report[kind],) = matched(folder, right, dtype, Client)
            print(kind, json.dumps(report[kind]), file=sys.stderr, flush=True)
    print(json.dumps(report, indent=1))
    bad = {kind for kind, found in report.items() if found["bad"]}
    return int(bad != {"stale", *_FAULTS})


if __name__ == "__main__":
    sys.exit(main())
