"""What the log for maintainers gets: every child process, and every failure that is swallowed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.support.places import PACKAGE

# failures of the machine or of another part of the program; parse errors have their own answers
FAILURES = {
    *(
        "OSError",
        "PermissionError",
        "BaseException",
        "Exception",
        "LaunchError",
        "RemoteError",
        "ServerError",
    ),
    *("LedgerError", "psutil.Error", "subprocess.TimeoutExpired"),
}

# functions in which such a failure is an answer by itself, as "module: function", by reason
ANSWERS = {
    "is the log": {"core/base/debug_log.py: FileHandler.emit"},
    "the terminal went away, or the shell completes a word": {
        "commands/services/logs/command.py: _follow",
        "cli/completion.py: _found",
        "cli/completion.py: services",
        "cli/console.py: _is_broken",
        "cli/status_line.py: _write",
        "core/services/process/detach.py: _say",
    },
    "is asked again at once, many times a minute": {
        "extensions/cluster/readiness.py: _answers",
        "core/services/process/supervise.py: _Tail.read",
    },
    "a file or folder that is not there means no": {
        "core/launch/model_needs.py: _size",
        "extensions/ray/install.py: RayEnvironment._is_beside",
        "core/host/card_locks.py: _locked",
        "core/host/files.py: FolderFiles.hidden",
        "core/host/files.py: FolderFiles.link",
        "core/host/files.py: FolderFiles.names",
        "core/host/files.py: FolderFiles.text",
        "core/host/host_config.py: _space.look",
        "extensions/kubernetes/kubectl.py: _configured",
        "core/models/hub/download.py: _size",
        "core/models/hub/record.py: Fetched.has",
        "core/models/hub/record.py: Fetched.intact",
        "core/models/weights.py: has_weights",
        "core/predict/learned.py: read_learned",
        "core/planning/model_name.py: _entries",
        "core/planning/profiles.py: _own_files",
        "core/recipes/cache_root.py: flat_files",
        "core/recipes/key_locks.py: _open",
        "core/recipes/key_locks.py: in_use",
        "core/services/containers.py: _links",
        "core/services/state/identity.py: boot_id",
        "core/services/addresses.py: _lock_on",
        "core/services/state/store.py: read",
    },
    "a process that ended, or is another user's": {
        "core/models/hub/download.py: _child",
        "core/services/process/lineage.py: _is_launcher",
        "core/services/process/process.py: EngineProcess.look",
        "core/services/process/sockets.py: _listens",
        "core/services/state/identity.py: stat_fields",
        "core/services/process/marks.py: _by_environment",
        "core/services/process/marks.py: _by_log",
        "core/services/state/orphans.py: _command",
        "core/services/process/marks.py: _has_state",
        "core/services/state/orphans.py: _is_elsewhere",
        "core/services/process/marks.py: is_of",
    },
    "compares two values": {"core/planning/passthrough.py: _same"},
    "is refused with its complete text": {
        "core/planning/parse_ranges.py: pair",
        "core/planning/parse_ranges.py: replicas",
    },
}

# runs on the hosts of a cluster, which have no log of ours
ELSEWHERE = ("core/hosts/agent.py",)


def nodes() -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Yield the nodes of the launcher's modules: "module: function", the function, the node."""
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        # code for another interpreter has no log of ours
        if "runtime" in path.parts or "pods" in path.parts or relative.as_posix() in ELSEWHERE:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield from within(tree, tree, f"{relative.as_posix()}:", "")


def within(
    node: ast.AST, function: ast.AST, module: str, name: str
) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Yield the nodes below one with the innermost function around each."""
    for child in ast.iter_child_nodes(node):
        inner, inner_name = function, name
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inner, inner_name = child, f"{name}.{child.name}".lstrip(".")
        yield f"{module} {inner_name}", inner, child
        yield from within(child, inner, module, inner_name)


def caught(handler: ast.ExceptHandler) -> set[str]:
    """Return the names of what a handler catches."""
    if handler.type is None:
        return {"BaseException"}
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {ast.unparse(kind) for kind in kinds}


def swallows(handler: ast.ExceptHandler) -> bool:
    """Report whether a handler loses the failure: it neither raises nor logs nor uses it."""
    for node in (inner for statement in handler.body for inner in ast.walk(statement)):
        if isinstance(node, ast.Raise):
            return False
        if isinstance(node, ast.Name) and node.id in ("_log", handler.name):
            return False
    return True


def test_a_swallowed_failure_is_logged() -> None:
    lost = set()
    for where, _, node in nodes():
        if isinstance(node, ast.ExceptHandler) and caught(node) & FAILURES and swallows(node):
            lost.add(where)
    assert lost == set().union(*ANSWERS.values())


def test_every_child_process_is_logged() -> None:
    silent = set()
    for where, function, node in nodes():
        if not isinstance(node, ast.Call) or ast.unparse(node.func) not in (
            "subprocess.run",
            "subprocess.Popen",
        ):
            continue
        if "ChildLog(" not in ast.unparse(function):
            silent.add(where)
    assert silent == set()
