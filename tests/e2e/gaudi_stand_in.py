"""Stands in the place of a Gaudi container's interpreter: answers as vllm-gaudi, and serves with
vLLM's CPU build.

core/engines/runtime/ask_packages.py (``python -c``) runs in an interpreter whose site has the
plugin's packages by name. ``python -m vllm.entrypoints.cli.main serve ...`` starts the real vLLM
with the same words: only the data type is another, for the CPU build answers nonsense in bfloat16.
What the plugin reads and upstream does not - its bucket file - is read here, with an error of the
plugin's kind when it is not there. Put together by `write`.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Sequence
from pathlib import Path

ENTRY = ["-m", "vllm.entrypoints.cli.main", "serve"]


def write(folder: Path, python: Path, engine: Path) -> Path:
    """A program ``folder/python``: asks go to ``python`` with a made-up site, serving to
    ``engine``."""
    for name, version in (
        ("vllm", "0.26.0"),
        ("vllm_gaudi", "0.26.0"),
        ("habana_torch_plugin", "1.24.1.7"),
    ):
        info = folder / "site" / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexec {python} {__file__} {folder / "site"} {engine} "$@"\n')
    program.chmod(0o755)
    return program


def buckets(path: str) -> tuple[int, int]:
    """How many prompt and decode buckets the file has, line by line as the plugin reads it."""
    lines = [
        line
        for line in Path(path).read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]
    found = [ast.literal_eval(line) for line in lines]
    decode = sum(1 for _, query, _ in found if query == 1)
    return len(found) - decode, decode


def served(words: Sequence[str]) -> list[str]:
    """The same words for the CPU build."""
    changed = list(words)
    at = changed.index("--dtype")
    assert changed[at + 1] == "bfloat16", changed
    changed[at + 1] = "float32"
    return [*changed, "--enforce-eager"]


def main(site: str, engine: str, words: list[str]) -> None:
    if words[:1] == ["-c"]:
        environment = {**os.environ, "PYTHONPATH": site}
        os.execve(sys.executable, [sys.executable, "-S", *words], environment)
    if words[:3] != ENTRY:
        sys.exit(f"no such module here: {words[:3]}")
    # a pooling model is not warmed up, and has no file
    file = os.environ.get("VLLM_BUCKETING_FROM_FILE")
    for kind, count in zip(("prompt", "decode"), buckets(file) if file else (), strict=False):
        print(
            f"INFO 11-21 03:00:00 [common.py:300] Generated {count} {kind} buckets [bs, query, "
            "num_blocks]: []"
        )
    print("words:", *words, flush=True)
    environment = {
        **os.environ,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    os.execve(engine, [engine, *served(words)], environment)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
