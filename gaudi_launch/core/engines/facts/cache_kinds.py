"""Read what the plugin allocates in its KV cache for each kind of layer.

Allocations: ``full`` (keys and values of every token), ``latent`` (one row per token), ``state``
(the layer's own, of fixed size), ``none`` and ``refused`` (an error is raised). ``model`` (nothing
here: the model class keeps it) is that of the forks' shipped facts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from gaudi_launch.core.engines.facts.model_classes import KINDS
from gaudi_launch.core.engines.facts.source import FactsError, nodes, tree_of

RUNNER = "vllm_gaudi/v1/worker/hpu_model_runner.py"
_SPECS = {
    "FullAttentionSpec": "full",
    "MLAAttentionSpec": "latent",
    "attn_module.get_kv_cache_spec": "state",
}
_TESTED = {
    "kv_sharing_target_layer_name is not None": "shared",
    "isinstance(attn_module, MLAAttention)": "latent",
    "isinstance(attn_module, MambaBase)": "state",
}
# in the order in which a test is compared: ENCODER is a part of ENCODER_DECODER
_TYPES = {"ENCODER_DECODER": "cross", "ENCODER": "encoder", "DECODER": "full"}


def allocation_of(checkout: Path) -> dict[str, dict[str, str]]:
    """Return allocation and place by kind of layer; empty for other code.

    They are those of the branches of ``HPUModelRunner.get_kv_cache_spec`` over layers.
    """
    if not (checkout / RUNNER).is_file():
        return {}
    function = next(nodes(tree_of(checkout / RUNNER), ast.FunctionDef, "get_kv_cache_spec"), None)
    if function is None:
        raise FactsError(f"{RUNNER}: no get_kv_cache_spec")
    # these rules do not know windows
    documented = ast.get_docstring(function) is not None
    code = "\n".join(ast.unparse(each) for each in function.body[documented:])
    for word in ("sliding", "chunk", "Window"):
        if word in code:
            raise FactsError(
                f"{RUNNER}: the cache depends on '{word}': add a rule to {Path(__file__).name}"
            )
    loop = next(node for node in function.body if isinstance(node, ast.For))
    found: dict[str, dict[str, str]] = {}
    for branch in _branches(loop.body):
        written = ast.unparse(branch.test)
        if written == "isinstance(attn_module, Attention)":
            found |= _attention(branch.body)
        elif written in _TESTED:
            found[_TESTED[written]] = _result(branch)
    asserted = [each for each in loop.body if isinstance(each, ast.Assert)]
    if asserted:
        found |= _attention(loop.body)
        found.setdefault("state", _entry("refused", asserted[0]))
    found.setdefault("state", _entry("none", loop))
    for kind in ("sliding", "chunked"):
        found[kind] = found["full"]
    return {kind: found[kind] for kind in KINDS if kind in found}


def _branches(body: Sequence[ast.stmt]) -> Iterator[ast.If]:
    """Yield each ``if`` of a body, and each ``elif`` of it."""
    for node in body:
        if isinstance(node, ast.If):
            yield node
            if len(node.orelse) == 1:
                yield from _branches(node.orelse)


def _attention(body: Sequence[ast.stmt]) -> dict[str, dict[str, str]]:
    """Return the allocation by the type of an Attention layer."""
    found: dict[str, dict[str, str]] = {}
    for branch in _branches(body):
        written = ast.unparse(branch.test)
        kind = next(
            (kind for name, kind in _TYPES.items() if f"AttentionType.{name}" in written), None
        )
        if kind is None:
            continue
        found[kind] = _result(branch)
        if kind == "full" and "use_mla=" in ast.unparse(branch):
            found["latent"] = {**found["full"], "allocates": "latent"}
    return found


def _result(branch: ast.If) -> dict[str, str]:
    """Return what a branch ends in: a spec, an error or nothing."""
    for statement in branch.body:
        if isinstance(statement, ast.Raise):
            return _entry("refused", statement)
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            called = ast.unparse(statement.value.func)
            if called not in _SPECS:
                raise FactsError(f"{RUNNER}:{statement.lineno}: an unknown kind of cache: {called}")
            return _entry(_SPECS[called], statement)
    return _entry("none", branch)


def _entry(allocation: str, node: ast.stmt) -> dict[str, str]:
    return {"allocates": allocation, "source": f"{RUNNER}:{node.lineno}"}
