"""Write profiles/engines/changes/values.json: values of options by release.

Usage: python scripts/engine_values.py PLUGIN VLLM, where PLUGIN is a git checkout of
vllm-project/vllm-gaudi with tags, and VLLM a folder with the sources of each release of vLLM by its
number. Releases whose vLLM is not in that folder are left as they are in the file.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from gaudi_launch.core.base import paths
from gaudi_launch.core.engines.known_versions import releases

RUNNER = "vllm_gaudi/v1/worker/hpu_model_runner.py"
SPECULATIVE = "vllm/config/speculative.py"
FACTORY = "vllm/distributed/kv_transfer/kv_connector/factory.py"
ARGUMENTS = "vllm/engine/arg_utils.py"
# vLLM raises NotImplementedError for another value than the default of both
PARTIAL = ("--max-num-partial-prefills", "--max-long-partial-prefills")
FILE = paths.profiles_dir() / "engines" / "changes" / "values.json"


def texts(node: ast.AST) -> list[str]:
    """Return all texts in an expression, in order."""
    found = [each for each in ast.walk(node) if isinstance(each, ast.Constant)]
    return [each.value for each in found if isinstance(each.value, str)]


def assigned(tree: ast.Module, name: str) -> ast.expr | None:
    """Return the value of a module's name."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node.value
    return None


def methods(runner: ast.Module, speculative: ast.Module) -> list[str]:
    """Return the methods of speculation whose branch of the runner does not raise.

    vLLM replaces each ``_mtp`` with ``mtp`` where it has it.
    """
    eagle = next(
        node
        for node in ast.walk(speculative)
        if isinstance(node, ast.FunctionDef) and node.name == "use_eagle"
    )
    found = {text for each in eagle.body if isinstance(each, ast.Return) for text in texts(each)}
    names = assigned(speculative, "MTPModelTypes")
    if "mtp" in found and names is not None:
        found |= set(texts(names))
    for node in ast.walk(runner):
        if not isinstance(node, ast.If) or "Proposer" not in ast.unparse(node.body[0]):
            continue
        if "speculative_config.method ==" in ast.unparse(node.test):
            found |= set(texts(node.test))
    return sorted(found)


def cache_types(runner: ast.Module, vllm: Path) -> list[str]:
    """Return the types of the KV cache that the runner has a name for."""
    known = assigned(runner, "HPU_TORCH_DTYPE_TO_STR_DTYPE")
    for name in ("utils/torch_utils.py", "utils/__init__.py"):
        path = vllm / "vllm" / name
        tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.parse("")
        every = assigned(tree, "STR_DTYPE_TO_TORCH_DTYPE")
        if isinstance(known, ast.Dict) and isinstance(every, ast.Dict):
            usable = {ast.unparse(key) for key in known.keys if key} | {"torch.half", "torch.float"}
            pairs = zip(every.keys, every.values, strict=True)
            return ["auto", *(texts(k)[0] for k, v in pairs if k and ast.unparse(v) in usable)]
    return []


def connectors(factory: ast.Module) -> Iterator[str]:
    """Yield the names under which vLLM registers connectors."""
    for node in ast.walk(factory):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".register_connector"):
            # HPUs have no NCCL
            yield from (name for name in texts(node.args[0]) if "Nccl" not in name)


def release(plugin: Path, vllm: Path, version: str) -> dict[str, object]:
    """Return the values of one release, each list with its source."""
    tag = f"v{version}"
    shown = ("git", "-C", str(plugin), "show", f"{tag}:{RUNNER}")
    runner = ast.parse(subprocess.run(shown, check=True, capture_output=True, text=True).stdout)
    speculative = ast.parse((vllm / SPECULATIVE).read_text(encoding="utf-8"))
    factory = ast.parse((vllm / FACTORY).read_text(encoding="utf-8"))
    here = f"vllm-project/vllm-gaudi@{tag}:{RUNNER}"
    upstream = f"vllm-project/vllm@{vllm.name}"
    arguments = (vllm / ARGUMENTS).read_text(encoding="utf-8")
    partial = PARTIAL if '"Concurrent Partial Prefill"' in arguments else ()
    return {
        **{name: {"values": ["1"], "source": f"{upstream}:{ARGUMENTS}"} for name in partial},
        "--speculative-config.method": {
            "values": methods(runner, speculative),
            "source": f"{here}, {upstream}:{SPECULATIVE}",
        },
        "--kv-cache-dtype": {"values": cache_types(runner, vllm), "source": here},
        "--kv-transfer-config.kv_connector": {
            "values": sorted(set(connectors(factory))),
            "source": f"{upstream}:{FACTORY}",
        },
    }


def main(plugin: Path, sources: Path) -> None:
    """Write the file."""
    document = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    document = {"schema": 1, "releases": document.get("releases", {})}
    for each in releases("vllm-gaudi"):
        vllm = sources / each.upstream
        if (vllm / SPECULATIVE).is_file():
            document["releases"][each.label] = release(plugin, vllm, each.version)
    text = json.dumps(document, indent=1, sort_keys=True)
    FILE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
