"""Give damaged files of every kind to the commands that read them.

Use: `python scripts/acceptance/fuzz_readers.py [INPUTS [SEED [READER...]]]`.

Each input is a valid file with one to three drawn changes: another value (NaN, 10**400, a lone
surrogate, deep lists), a key that is gone, renamed or doubled, bytes that are cut or flipped, YAML
aliases that stand for millions of values. A command must end within 25 s of CPU with a documented
exit code, and not as a bug. Runs the commands in this process, in a new home folder. 5,000 inputs
take about 25 minutes on two cores. Prints one JSON object; the exit status is 0 when all was so.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gaudi_launch.cli.main import run
from gaudi_launch.errors import ExitCode

_MACHINE = ("--machine", "simulated:hls2")
_SECONDS = 25.0
_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**31, 2**62, 2**63, 2**64, 10**400, 1e308, 5e-324, -0.0),
    *(float("nan"), float("inf"), "", "x", "\ud800", "\x00\x1b[31m", "a" * 70_000, "../../etc"),
    *([], {}, [[]], {"": {}}, [None] * 3000, {"a": float("nan")}),
)
_BOMB = "\nbomb0: &b0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"bomb{at + 1}: &b{at + 1} [{', '.join([f'*b{at}'] * 9)}]\n" for at in range(9)
)
_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16", "rope_scaling": {"factor": 8.0, "type": "llama3"},
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "text_config": {"layer_types": ["full_attention", "linear_attention"], "num_experts": 8},
}  # fmt: skip
_INDEX = {"metadata": {"total_size": 16}, "weight_map": {"a": "model-00001.safetensors"}}
_STACK = {
    "schema": 1, "name": "site",
    "gateway": {"port": 8443, "limits": {"concurrent": 4}, "users": {"al": {"concurrent": 2}}},
    "models": [
        {"name": "a", "model": "Qwen/Qwen3-8B", "aliases": ["b"], "options": {"cards": 1}},
        {"name": "c", "model": "BAAI/bge-m3", "after": ["a"], "replicas": 2},
    ],
}  # fmt: skip
_INVENTORY = {
    "schema": 1,
    "hosts": [{"name": "a", "ssh": "local", "address": "127.0.0.1", "snapshot": "simulated:hls2"}],
}
_WARMUPS = {"schema": 1, "warmups": [
    {"engine": "vllm-gaudi", "model": "Qwen3-8B", "cards": 1, "dtype": "bfloat16", "graphs": 10,
     "seconds": 60.0, "at": 1.7e9},
]}  # fmt: skip
_STATE = {
    "schema": 1, "name": "s", "phase": "ready", "pid": 1, "url": "http://127.0.0.1:1",
    "modules": [0, 1], "began": 1.7e9, "restarts": 0, "engine": "vllm-gaudi", "model": "m",
    "facts": {"warmup_seconds": 3.0}, "phases": [["load", 1.7e9]],
}  # fmt: skip
_LEARNED = {
    "schema": 1, "version": 1, "learned_at": 1.7e9, "values": {"a": 1.0}, "typical": 0.1,
    "before": 0.2, "left_out": 0, "measurements": [],
}  # fmt: skip


_JOURNAL = {
    "schema": 1, "number": "1", "root": "/", "path": "/x", "content": None, "mode": None,
    "wrote": "", "kernel": False, "folders": [], "at": 1.7e9,
}  # fmt: skip


@dataclass(frozen=True)
class Reader:
    """A kind of file: a valid document, its path below HOME, and its reader."""

    document: Any
    path: str
    words: tuple[str, ...]


def readers(home: Path) -> dict[str, Reader]:
    """Return every reader; saved files are made by the commands that write them."""
    plan, snapshot = home / "made-plan.yaml", home / "made-snapshot.json"
    model = ("Qwen/Qwen3-8B",)
    with silent():
        assert run(["devices", "snapshot", str(snapshot), *_MACHINE]) == 0
        assert run(["plan", *model, *_MACHINE, "--save", str(plan)]) == 0
    state = "state/gaudi-launch"
    found = {
        "config": Reader(_CONFIG, "m/config.json", ("plan", "{home}/m", *_MACHINE, "--json")),
        "inspect": Reader(_CONFIG, "m/config.json", ("inspect", "{home}/m")),
        "index": Reader(_INDEX, "m/model.safetensors.index.json", ("inspect", "{home}/m")),
        "snapshot": Reader(
            json.loads(snapshot.read_text(encoding="utf-8")),
            "s.json",
            ("plan", "-n", "2", *model, "--machine", "{file}"),
        ),
        "stack": Reader(_STACK, "stack.yaml", ("stack", "plan", "{file}", *_MACHINE)),
        "inventory": Reader(_INVENTORY, "hosts.yaml", ("top", "--inventory", "{file}", "--once")),
        "warm-ups": Reader(_WARMUPS, f"{state}/warmup-times.json", ("plan", *model, *_MACHINE)),
        "learned": Reader(_LEARNED, f"{state}/learned.json", ("plan", *model, *_MACHINE)),
        "state": Reader(_STATE, f"{state}/services/s/state.json", ("ps", "-a")),
        "status": Reader(_STATE, f"{state}/services/s/state.json", ("status", "s")),
        "mirrors": Reader(
            {"index_url": "http://a/simple"},
            "config/gaudi-launch/mirrors.yaml",
            ("setup", "cpu", "--dry-run"),
        ),
        "profile": Reader(
            {"name": "x", "title": "X", "models": ["a/b"], "match": {"names": ["x*"]}},
            "config/gaudi-launch/profiles/x.yaml",
            ("profiles",),
        ),
        "run": Reader(
            {"schema": 1, "kind": "bench"}, "r.json", ("bench", "compare", *["{file}"] * 2)
        ),
        "journal": Reader(
            _JOURNAL,
            f"{state}/doctor/journal.jsonl",
            ("doctor", "--undo", "--dry-run"),
        ),
    }
    saved = yaml.safe_load(plan.read_text(encoding="utf-8"))
    found["plan"] = Reader(saved, "p.yaml", ("serve", "--plan", "{file}", "--dry-run", *_MACHINE))
    return found


@contextlib.contextmanager
def silent() -> Iterator[io.StringIO]:
    """Collect what the block prints."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        yield shown


def damaged(document: Any, chance: random.Random, has_aliases: bool) -> bytes:
    """Return the text of a document after one to three changes."""
    copy = deepcopy(document)
    changes = chance.randint(1, 3)
    for _ in range(changes):
        change(copy, chance)
    text = json.dumps(copy, indent=chance.choice((None, 1)))
    kind = chance.randrange(10)
    if kind == 0:
        text = text[: chance.randrange(len(text))]
    elif kind == 1:
        at = chance.randrange(len(text))
        text = text[:at] + chance.choice("[{") * chance.choice((3, 90, 100_000)) + text[at:]
    elif kind == 2:
        # a repeated key
        text = text.replace('"', '"name": 1, "name": 2, "', 1)
    elif kind == 3 and has_aliases:
        text = _BOMB
    content = text.encode("utf-8", errors="surrogatepass")
    if kind == 4:
        flipped = bytearray(content)
        for _ in range(5):
            flipped[chance.randrange(len(flipped))] = chance.randrange(256)
        content = bytes(flipped)
    return content


def change(document: Any, chance: random.Random) -> None:
    """Change one drawn part of a document."""
    node = document
    while True:
        if isinstance(node, dict) and node:
            key: Any = chance.choice(list(node))
        elif isinstance(node, list) and node:
            key = chance.randrange(len(node))
        else:
            return
        if isinstance(node[key], dict | list) and node[key] and chance.random() < 0.8:
            node = node[key]
            continue
        if isinstance(node, dict) and chance.random() < 0.15:
            node[chance.choice(("\ud800", "", "x" * 300, key.upper()))] = node.pop(key)
        elif chance.random() < 0.1:
            del node[key]
        else:
            node[key] = deepcopy(chance.choice(_VALUES))
        return


def judged(words: list[str]) -> str:
    """Run a command; return what was wrong, "" for nothing."""
    began = time.process_time()
    with silent() as shown:
        try:
            code = run(words)
        except BaseException as error:
            return f"{type(error).__name__}: {error}"[:300]
    said = shown.getvalue()
    try:
        said.encode()
    except UnicodeEncodeError:
        return "a lone surrogate in the output"
    if "This is a bug in gaudi-launch" in said or "Traceback (" in said:
        return said[-300:]
    if code not in [int(each) for each in ExitCode]:
        return f"exit code {code}"
    if time.process_time() - began > _SECONDS:
        return f"{time.process_time() - began:.0f} s of CPU"
    return ""


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError("no end")


def main() -> int:
    inputs = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    chance = random.Random(seed)
    began = time.monotonic()
    bad: list[dict[str, str]] = []
    tried: Counter[str] = Counter()
    signal.signal(signal.SIGVTALRM, _too_long)
    with tempfile.TemporaryDirectory(prefix="gaudi-launch-fuzz-") as folder:
        home = Path(folder)
        for name, below in (
            ("HOME", ""),
            ("XDG_STATE_HOME", "state"),
            ("XDG_CONFIG_HOME", "config"),
        ):
            os.environ[name] = str(home / below)
        known = readers(home)
        names = sys.argv[3:] or list(known)
        for number in range(inputs):
            name = names[number % len(names)]
            reader = known[name]
            file = home / reader.path
            file.parent.mkdir(parents=True, exist_ok=True)
            content = damaged(reader.document, chance, file.suffix == ".yaml")
            file.write_bytes(content)
            words = [each.format(home=home, file=file) for each in reader.words]
            signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
            wrong = judged(words)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            tried[name] += 1
            if wrong:
                shown = ascii(content[:300])
                bad.append({"reader": name, "number": str(number), "wrong": wrong, "input": shown})
            file.unlink(missing_ok=True)
    seconds = round(time.monotonic() - began)
    report: dict[str, Any] = {"inputs": inputs, "seed": seed, "seconds": seconds}
    print(json.dumps({**report, "tried": tried, "bad": bad}, indent=1))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
