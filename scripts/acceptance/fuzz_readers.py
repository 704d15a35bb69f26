"""Give damaged files of every kind to the commands that read them.

Use: `python scripts/acceptance/fuzz_readers.py [INPUTS [SEED [READER...]]]`.

Each input is a valid file with one to three drawn changes: another value (NaN, 10**400, a lone
surrogate, deep lists), a key that is gone, renamed or doubled, bytes that are cut or flipped, YAML
aliases that stand for millions of values; in files that are not JSON or YAML another number, name
or line. A command must end within 25 s of CPU with a documented
exit code, and not as a bug. Runs the commands in this process, in a new home folder. 5,000 inputs
take about 25 minutes on two cores. Prints one JSON object; the exit status is 0 when all was so.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
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
from gaudi_launch.core.base import paths
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.extensions.offline import pack_manifest
from tests.support.gateways import engines
from tests.support.packs import made
from tests.support.recipes import fill

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
        {"name": "c", "model": "Qwen/Qwen3-8B", "after": ["a"], "replicas": 2},
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


_JOB = {
    "schema": 1, "name": "s", "model": "m", "model_path": "/m", "engine": "vllm-gaudi@0.26.0",
    "url": "http://127.0.0.1:1", "command": {"argv": ["x"], "env": {"A": "b"}, "unset": []},
}  # fmt: skip
_TOKENIZER = {"added_tokens": [{"id": 128000, "content": "<s>"}], "model": {"vocab": {"a": 0}}}
_SCALES = {"Mode": "Scale", "Nodes": {"model.layers.0.mlp": {"inputs": [[1.0]], "params": {}}}}
_ROUTES = {"path": "/x/stack.yaml", "services": {"s": "sha256:a"}, "models": {"s": "m"}}
_COMPOSE = """\
services:
  vllm:
    image: opea/vllm-gaudi:latest
    environment: {VLLM_SKIP_WARMUP: true}
    ports: ["10200:8000"]
    command: [serve, Qwen/Qwen3-8B, --seed, "7"]
"""
_BUCKETS = "(1, 128, 0)\n(range(1, 4), [128, 256], range(0, 64, 2))\n(4, 1, [128, 256])\n"
_TRACE = "arrival,input_tokens,output_tokens\n" + "0.5,900,120\n1.5,8000,64\n" * 20
_PAGE = "".join(
    f'vllm:request_{kind}_tokens_bucket{{le="{le}",model_name="m"}} {count}.0\n'
    for kind in ("prompt", "generation")
    for le, count in (("100.0", 30), ("1000.0", 90), ("+Inf", 120))
)
_LOG = "INFO 11-21 [api_server.py:1042] vLLM API server version 0.8.5\n" * 3 + (
    '{"error": "x"}\nRuntimeError: synStatus=26 [Generic failure]. Device acquire failed.\n'
)


@dataclass(frozen=True)
class Reader:
    """A kind of file: a valid document or text, its path below HOME, and its reader.

    ``code``: how the command ends with the valid file. ``variable`` is exported with its path,
    ``as_header`` puts a length of eight bytes before it.
    """

    document: Any
    path: str
    words: tuple[str, ...]
    code: int = 0
    variable: str = ""
    as_header: bool = False

    def content(self, chance: random.Random | None) -> bytes:
        """Return the valid file, with ``chance`` a damaged one."""
        content = self.document
        if chance is not None:
            content = damaged(content, chance, self.path.endswith(".yaml"))
        elif not isinstance(content, str):
            content = json.dumps(content)
        if isinstance(content, str):
            content = content.encode()
        if not self.as_header:
            return bytes(content)
        length = len(content)
        if chance is not None:
            length = chance.choice((length, length, 0, 2**31, 2**63, 2**64 - 1, 7))
        return length.to_bytes(8, "little") + bytes(content)


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
            {"pip": "http://a/simple", "huggingface": "http://b"},
            "config/gaudi-launch/mirrors.yaml",
            ("setup", "cpu", "--dry-run"),
        ),
        "profile": Reader(
            yaml.safe_load((paths.profiles_dir() / "models" / "qwen3-8b.yaml").read_text("utf-8")),
            "config/gaudi-launch/profiles/qwen3-8b.yaml",
            ("inspect", "Qwen/Qwen3-8B", *_MACHINE),
        ),
        "run": Reader(saved_run(home), "r.json", ("bench", "compare", *["{file}"] * 2)),
        "journal": Reader(
            _JOURNAL,
            f"{state}/doctor/journal.jsonl",
            ("doctor", "--undo"),
        ),
    }
    service = f"{state}/services/s"
    pack = made(home / "pack")
    fill(home / "recipes")
    (ledger,) = (home / "recipes").glob("*.json")
    (home / service).mkdir(parents=True)
    (home / service / "state.json").write_text(json.dumps(_STATE), encoding="utf-8")
    trace = ("warmup", *model, *_MACHINE, "--trace", "{file}")
    found |= {
        "job": Reader(_JOB, f"{service}/job.json", ("status", "s")),
        "service plan": Reader(_STATE, f"{service}/plan.json", ("status", "s")),
        "stack record": Reader(_ROUTES, f"{state}/stacks/s/stack.json", ("stack", "ps")),
        "generation": Reader(_CONFIG, "m/generation_config.json", ("plan", "{home}/m", *_MACHINE)),
        "tokenizer": Reader(_TOKENIZER, "m/tokenizer.json", ("plan", "{home}/m", *_MACHINE)),
        "tokenizer config": Reader(
            {"chat_template": "a", "added_tokens_decoder": {"1": {"content": "b"}}},
            "m/tokenizer_config.json",
            ("inspect", "{home}/m"),
        ),
        "scales": Reader(
            _SCALES, "q.json", ("plan", *model, "-d", "fp8", *_MACHINE), variable="QUANT_CONFIG"
        ),
        "header": Reader(
            {"a": {"dtype": "BF16", "shape": [2, 4], "data_offsets": [0, 16]}},
            "m/model.safetensors",
            ("inspect", "{home}/m"),
            as_header=True,
        ),
        "buckets": Reader(
            _BUCKETS,
            "b.txt",
            ("plan", *model, *_MACHINE),
            variable="VLLM_BUCKETING_FROM_FILE",
        ),
        "trace": Reader(_TRACE, "t.csv", trace),
        "trace lines": Reader([{"input_tokens": 9, "output_tokens": 4}] * 9, "t.jsonl", trace),
        "metrics": Reader(_PAGE, "page.txt", trace),
        "keys": Reader(
            "alice sk-a\n# b\nbob sk-b\n", "keys", ("stack", "plan", "{home}/k.yaml", *_MACHINE)
        ),
        "ledger": Reader(
            json.loads(ledger.read_text(encoding="utf-8")),
            f"recipes/{ledger.name}",
            ("cache", "list", "-c", "{home}/recipes", *_MACHINE),
        ),
        "pack": Reader(
            json.loads((pack / pack_manifest.NAME).read_text(encoding="utf-8")),
            f"pack/{pack_manifest.NAME}",
            ("offline", "show", "{home}/pack"),
        ),
        "compose": Reader(_COMPOSE, "compose.yaml", ("migrate", "{file}", *_MACHINE)),
        "log": Reader(_LOG, "engine.log", ("why", "{file}")),
        "pip": Reader(
            "[global]\nindex-url = http://a/simple\ntimeout = 3\n[install]\nretries = 1\n",
            "pip.conf",
            ("render", "docker", *model, *_MACHINE, "--to", "{home}/rendered"),
            variable="PIP_CONFIG_FILE",
        ),
    }
    gateway = {"schema": 1, "gateway": {"keys-file": "keys"}, "models": _STACK["models"]}
    (home / "k.yaml").write_text(json.dumps(gateway), encoding="utf-8")
    (home / "m").mkdir(exist_ok=True)
    (home / "m" / "config.json").write_text(json.dumps(_CONFIG), encoding="utf-8")
    saved = yaml.safe_load(plan.read_text(encoding="utf-8"))
    found["plan"] = Reader(saved, "p.yaml", ("plan", "--plan", "{file}", *_MACHINE))
    return found


def saved_run(home: Path) -> Any:
    """Return a measured run of an engine's stand-in."""
    with engines("m") as (engine,), silent():
        words = ["bench", engine.url, "-i", "20", "-o", "3", "--requests", "5"]
        assert run([*words, "--save", str(home / "made-run.json")]) == 0
    return json.loads((home / "made-run.json").read_text(encoding="utf-8"))


@contextlib.contextmanager
def silent() -> Iterator[io.StringIO]:
    """Collect what the block prints."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        yield shown


_WORDS = (
    *(
        "",
        "-1",
        "0",
        "9" * 400,
        "1e999",
        "nan",
        "-inf",
        "\ud800",
        "\x00",
        "\x1b[31m",
        '"',
        "'",
        "#",
    ),
    *(
        "(" * 90,
        "[" * 100_000,
        "-" * 5000 + "1",
        "range(0,9000)",
        "{" * 500,
        "a" * 70_000,
        "\r",
        ",",
    ),
    *("%(home)s", "${HOME}", "$(id)", "é", "\u202e", "{}", "NaN", "None"),
)


def damaged_text(text: str, chance: random.Random) -> bytes:
    """Return a text after one to three changes of its parts or bytes."""
    for _ in range(chance.randint(1, 3)):
        kind, at = chance.randrange(6), chance.randrange(len(text) + 1)
        if kind == 0:
            text = text[:at]
        elif kind == 1:
            text = text[:at] + chance.choice(_WORDS) + text[at:]
        elif kind == 2:
            lines = text.splitlines(keepends=True)
            text = "".join(chance.choices(lines, k=chance.choice((1, 9, 3000)))) if lines else ""
        else:
            found = list(re.finditer(r"[\w.+-]+", text))
            if found:
                word = chance.choice(found)
                text = text[: word.start()] + chance.choice(_WORDS) + text[word.end() :]
    content = bytearray(text.encode("utf-8", errors="surrogatepass"))
    if content and chance.random() < 0.1:
        for _ in range(5):
            content[chance.randrange(len(content))] = chance.randrange(256)
    return bytes(content)


def damaged(document: Any, chance: random.Random, has_aliases: bool) -> bytes:
    """Return the text of a document after one to three changes."""
    if isinstance(document, str):
        return damaged_text(document, chance)
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


def judged(words: list[str], expected: int | None) -> str:
    """Run a command; return what was wrong, "" for nothing.

    ``expected`` None: any documented exit code.
    """
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
    known = [int(each) for each in ExitCode] if expected is None else [expected]
    if code not in known or (expected is not None and "There is no" in said):
        return f"exit code {code}: {said[-300:]}"
    if time.process_time() - began > _SECONDS:
        return f"{time.process_time() - began:.0f} s of CPU"
    return ""


def tried_with(reader: Reader, home: Path, chance: random.Random | None) -> tuple[str, bytes]:
    """Give a reader a file, valid without ``chance``.

    Return what was wrong, and the content.
    """
    file = home / reader.path
    file.parent.mkdir(parents=True, exist_ok=True)
    content = reader.content(chance)
    before = file.read_bytes() if file.is_file() else None
    file.write_bytes(content)
    file.chmod(0o600)
    words = [each.format(home=home, file=file) for each in reader.words]
    if reader.variable:
        os.environ[reader.variable] = str(file)
    signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
    wrong = judged(words, None if chance is not None else reader.code)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    os.environ.pop(reader.variable, None)
    if before is None:
        file.unlink(missing_ok=True)
    else:
        # another reader needs it
        file.write_bytes(before)
    return wrong, content


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
        for name in names:
            # one that refuses what is right reads nothing
            wrong, _ = tried_with(known[name], home, None)
            if wrong:
                bad.append({"reader": name, "number": "the valid file", "wrong": wrong})
        for number in range(inputs):
            name = names[number % len(names)]
            wrong, content = tried_with(known[name], home, chance)
            tried[name] += 1
            if wrong:
                shown = ascii(content[:300])
                bad.append({"reader": name, "number": str(number), "wrong": wrong, "input": shown})
    seconds = round(time.monotonic() - began)
    report: dict[str, Any] = {"inputs": inputs, "seed": seed, "seconds": seconds}
    print(json.dumps({**report, "tried": tried, "bad": bad}, indent=1))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
