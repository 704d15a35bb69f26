"""Where things are: tests beside what they test, shared code in tests/support, one meaning for
each name."""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from gaudi_launch.cli.table import COMMANDS
from tests.support import durations
from tests.support.places import PACKAGE, TESTS, TOP

# tests of more than one module of a folder, each with its reason
ABOUT_SEVERAL = {
    "core/planning/test_option_folders.py": "folders of options, to the checked plan",
    "core/planning/test_parallel.py": "copies, stages and experts of each release and spelling",
    "core/engines/vllm_gaudi/test_unified.py": "a variable, from facts to the speed",
    "core/engines/test_installed_facts.py": "from an engine's files to the plan",
    "core/engines/vllm_gaudi/test_release_plans.py": "plans against the release's code",
    "core/planning/test_drawn_lengths.py": "drawn lengths on every engine",
    "core/services/diagnosis/test_threads.py": "logs and commands of public threads",
    "commands/services/test_names.py": "the name of a service in every command that takes one",
    "commands/serve/test_serve_cache.py": "serve with the recipe cache",
    "extensions/bench/test_bench.py": "the command with client, workload and records",
    "extensions/bench/test_figures.py": "the numbers of records, goals and comparisons",
    "core/buckets/optimiser/test_goals.py": "what all searches of the optimiser reach",
    "extensions/fp8/test_fp8_calibrate.py": "fp8 calibrate with an engine's scripts",
    "extensions/fp8/test_fp8_convert.py": "fp8 convert with real shards",
    "extensions/stack/gateway/test_gateway.py": "a gateway as a service, on real processes",
    "extensions/ray/test_ray_serve_command.py": "render ray-serve, setup ray, --replicas",
    "commands/serve/test_serve_in_docker.py": "serve with a container engine",
    "commands/serve/test_serve_in_podman.py": "serve with a real container engine",
    "commands/serve/test_serve_model.py": "serve with models that need steps first",
    "extensions/tgi/test_serve_tgi.py": "serve with TGI",
    "extensions/tgi/test_serve_tgi_client.py": "serve with TGI through docker's own client",
    "commands/services/test_services.py": "ps, status, logs, restart and stop together",
    "core/hosts/test_real_processes.py": "agent, ssh, lifecycle and readiness on real processes",
    "core/doctor/test_checks.py": "all groups of checks",
    "core/engines/test_options_table.py": "every engine's argv against its recorded option table",
    "extensions/kubernetes/test_refusals.py": "what all kinds of objects refuse",
    "extensions/kubernetes/test_shapes.py": "the quick tests of documents and charts, from records",
    "extensions/kubernetes/test_truths.py": "facts that hold for all rendered objects",
    "core/models/hub/test_real_clients.py": "pulls with the real client libraries",
    "core/predict/test_prediction.py": "what holds for every predicted speed",
    "core/recipes/test_limits_and_place.py": "limits and the place of the cache",
    "core/render/test_bash.py": "every rendered file that a shell reads",
    "extensions/tgi/test_render.py": "every target with TGI",
    "core/services/diagnosis/test_diagnose_carried.py": "diagnosis over several runs in one log",
    "core/services/state/test_damaged_state.py": "every reader of a damaged state folder",
    "core/services/test_full_disk.py": "services on a full disk",
    "core/services/state/test_lost_processes.py": "the quick part of the tests of orphans",
    "extensions/watch/test_host_samples.py": "the quick part of the tests of watched_hosts",
}

# folders of the core whose modules have the names of their subjects
BY_SUBJECT = ("doctor", "engines", "launch")

# other names of modules of the core that exist twice, each with its reason
EXPLAINED_BY_PACKAGE = {
    "steps": "of a use case in base/, of a plan over hosts in hosts/",
}


def module_paths(folder: Path) -> list[Path]:
    """Return the path of every module below a folder; recorded data is none."""
    found = (path.relative_to(folder) for path in sorted(folder.rglob("*.py")))
    return [path for path in found if "data" not in path.parts]


def modules(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Yield every module below a folder with its syntax tree."""
    for path in module_paths(folder):
        yield path, ast.parse((folder / path).read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the module names that a tree imports, at any level."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def holds_tests(module: str) -> bool:
    """Return whether pytest collects this module."""
    parts = module.split(".")
    return parts[0] == "tests" and any(
        part == "conftest" or part.startswith("test_") for part in parts
    )


def test_nothing_is_imported_from_a_test_or_a_conftest() -> None:
    wrong = []
    for path, tree in modules(TESTS):
        wrong += [f"{path}: {module}" for module in imported(tree) if holds_tests(module)]
    assert wrong == []


def test_every_test_is_at_the_path_of_what_it_tests() -> None:
    astray = set()
    for path in module_paths(TESTS):
        if not path.name.startswith("test_") or path.parts[0] in ("e2e", "program"):
            continue
        beside = PACKAGE / path.parent / path.stem.removeprefix("test_")
        if not beside.with_suffix(".py").is_file() and not beside.is_dir():
            astray.add(path.as_posix())
    assert astray == set(ABOUT_SEVERAL)


def test_every_slow_test_exists() -> None:
    named = [(module, name) for module, tests in durations.SECONDS.items() for name in tests]
    assert [each for each in named if not _defined(*each)] == []


def test_a_run_replaces_the_modules_that_it_ran(tmp_path: Path) -> None:
    file = tmp_path / "durations.json"
    file.write_text(json.dumps({"a.py": {"test_old": 1.0}, "b.py": {"test_it": 2.0}}))
    taken = {"tests/a.py::test_new[1]": 0.2, "tests/a.py::test_new[2]": 0.24, "tests/c.py::x": 0.1}
    durations.write(taken, file)
    assert durations.read(file) == {"a.py": {"test_new": 0.4}, "b.py": {"test_it": 2.0}}


def _defined(module: str, function: str) -> bool:
    path = TESTS / module
    return path.is_file() and f"def {function.rpartition('::')[2]}(" in path.read_text()


def test_helpers_are_in_support() -> None:
    """A module beside tests is a test, a conftest or a package marker."""
    found = []
    for path in module_paths(TESTS):
        if path.parts[0] in ("support", "e2e"):
            continue
        if not path.name.startswith("test_") and path.name not in ("conftest.py", "__init__.py"):
            found.append(path.as_posix())
    assert found == []


def test_every_public_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for path, tree in modules(PACKAGE):
        # code for the engine's interpreter meets none of the launcher's classes
        if "runtime" in path.parts:
            continue
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path.as_posix())
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_no_module_of_the_core_has_the_name_of_another() -> None:
    places = defaultdict(list)
    for path in module_paths(PACKAGE / "core"):
        if path.stem == "__init__" or "runtime" in path.parts or path.parts[0] in BY_SUBJECT:
            continue
        places[path.stem].append(path.as_posix())
    assert {name for name, paths in places.items() if len(paths) > 1} == set(EXPLAINED_BY_PACKAGE)


def test_a_command_is_found_by_its_name() -> None:
    """The path of the command is the path of the code."""
    astray = {}
    for command, (module, _) in COMMANDS.items():
        name = command.split()[-1].replace("-", "_")
        if not f".{module}".removesuffix(".command").endswith(f".{name}"):
            astray[command] = module
    assert astray == {}


def test_a_folder_has_more_than_one_module() -> None:
    alone = []
    for init in PACKAGE.rglob("__init__.py"):
        inside = [path for path in init.parent.iterdir() if path.suffix == ".py" or path.is_dir()]
        if len([path for path in inside if path.name not in ("__init__.py", "__pycache__")]) < 2:
            alone.append(init.parent.relative_to(PACKAGE).as_posix())
    assert alone == []


def test_the_architecture_page_names_what_is_there() -> None:
    page = (TOP / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = page.partition("## The tree")[2].partition("```\n")[2].partition("```")[0]
    named = set(re.findall(r"^ {2,4}(\w+)/ ", tree, re.MULTILINE))
    folders = {path.name for path in PACKAGE.glob("*/") if (path / "__init__.py").is_file()}
    for floor in ("core", "commands", "extensions"):
        folders |= {path.parent.name for path in (PACKAGE / floor).glob("*/__init__.py")}
    assert named == folders
    modules = {
        name for name in re.findall(r"`([\w/]+\.py)\b", page) if not name.startswith("tests/")
    }
    assert [name for name in sorted(modules) if not (PACKAGE / name).is_file()] == []
