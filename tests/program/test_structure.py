"""Where things are: tests beside what they test, shared code in tests/support, one meaning for
each name."""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import gaudi_launch
from tests.support import durations
from tests.support.places import TESTS

PACKAGE = Path(gaudi_launch.__file__).parent

# tests of more than one module, each with its reason
ABOUT_SEVERAL = {
    "core/planning/test_option_folders.py": "folders of options and tokenizers, to the checked plan",
    "core/planning/test_parallel.py": "copies, stages and experts of each release and spelling",
    "core/engines/vllm_gaudi/test_unified.py": "a variable of some releases, from facts to the speed",
    "core/engines/test_installed_facts.py": "facts of an installed engine, from its files to the plan",
    "core/engines/vllm_gaudi/test_release_plans.py": "plans of each release against its own code",
    "program/test_main_path.py": "drawn combinations through several commands",
    "core/planning/test_drawn_lengths.py": "drawn lengths on every engine",
    "core/services/diagnosis/test_threads.py": "logs and commands of public threads",
    "program/test_same_verdict.py": "plan and serve about the same states",
    "program/test_same_answers.py": "fit, capacity, estimate and plan about the same cases",
    "commands/serve/test_serve_cache.py": "serve with the recipe cache",
    "program/test_trusted.py": "every use case that runs a model's own code",
    "extensions/bench/test_bench.py": "the command with client, workload and records",
    "extensions/bench/test_chat_server.py": "the command with a streaming server",
    "extensions/bench/test_figures.py": "the numbers of records, goals and comparisons",
    "core/buckets/optimiser/test_goals.py": "what all searches of the optimiser reach",
    "extensions/fp8/test_fp8_calibrate.py": "fp8 calibrate with an engine's scripts",
    "extensions/fp8/test_fp8_convert.py": "fp8 convert with real shards",
    "program/test_given_options.py": "options of every command on their way to its use case",
    "program/test_hub_models.py": "every command about a model of a hub",
    "program/test_outcomes.py": "what every command prints of its use case's result",
    "program/test_positional.py": "positional arguments of every command",
    "extensions/ray/test_ray_serve_command.py": "render ray-serve, setup ray and --replicas together",
    "program/test_record_options.py": "options of every command that reads a record",
    "program/test_refusals.py": "what every command refuses before its use case",
    "commands/serve/test_serve_in_docker.py": "serve with a container engine",
    "commands/serve/test_serve_in_podman.py": "serve with a real container engine",
    "commands/serve/test_serve_model.py": "serve with models that need steps first",
    "commands/serve/test_serve_tgi.py": "serve with TGI",
    "commands/serve/test_serve_tgi_client.py": "serve with TGI through docker's own client",
    "commands/services/test_services.py": "ps, status, logs, restart and stop together",
    "program/test_times.py": "durations in every command",
    "program/test_printed_secrets.py": "secrets after -- in every command that prints options",
    "program/test_release_sentences.py": "the script of that name",
    "program/test_proof.py": "the script of that name",
    "program/test_pipe.py": "every command whose reader goes away",
    "program/test_predicted.py": "the predictions in the output of serve and bench",
    "program/test_whole_outputs.py": "the complete output of reading commands",
    "core/hosts/test_real_processes.py": "agent, ssh, lifecycle and readiness on real processes",
    "core/doctor/test_checks.py": "all groups of checks",
    "program/test_engine_names.py": "the program outside engines/ names no engine",
    "core/engines/test_options_table.py": "every engine's argv against its recorded option table",
    "program/test_toy_engine.py": "an engine of one module through every command",
    "extensions/kubernetes/test_refusals.py": "what all kinds of objects refuse",
    "extensions/kubernetes/test_shapes.py": "the quick tests of documents and charts, from records",
    "extensions/kubernetes/test_truths.py": "facts that hold for all rendered objects",
    "core/models/hub/test_real_clients.py": "pulls with the real client libraries",
    "core/recipes/test_limits_and_place.py": "limits and the place of the cache",
    "core/render/test_bash.py": "every rendered file that a shell reads",
    "core/render/test_tgi.py": "every target with TGI",
    "core/services/diagnosis/test_diagnose_carried.py": "diagnosis over several runs in one log",
    "core/services/state/test_damaged_state.py": "every reader of a damaged state folder",
    "core/services/test_full_disk.py": "services on a full disk",
    "core/services/state/test_lost_processes.py": "the quick part of the tests of orphans",
    "extensions/watch/test_host_samples.py": "the quick part of the tests of watched_hosts",
    "program/test_engine_facts.py": "facts of engine versions in profiles and rules",
    "program/test_size.py": "how large the project is",
    "program/test_engine_variables.py": "variables that engines read",
    "program/test_examples.py": "the examples of every help text",
    "program/test_interface.py": "the recorded public interface",
    "program/test_layers.py": "the layers of packages",
    "program/test_logging.py": "the log lines of every module",
    "program/test_man.py": "the manual pages of every command",
    "program/test_mutation.py": "the mutants of every module",
    "program/test_readme.py": "the commands of the README and of docs/",
    "program/test_recorded_state.py": "state that earlier versions wrote",
    "program/test_option_reference.py": "the generated rows of options",
    "program/test_oldest_python.py": "the oldest Python that the package declares",
    "program/test_reference.py": "the generated pages of docs/",
    "program/test_release.py": "what a release consists of",
    "program/test_structure.py": "the structure of the project",
    "program/test_words.py": "the words of every message",
    "program/test_words_zh.py": "the Chinese of every message",
}

# packages whose modules have the names of their subjects: use cases, commands, views, checks; so
# has each engine's
BY_SUBJECT = ("app", "cli", "doctor")

# other module names that stand twice, each with its reason
EXPLAINED_BY_PACKAGE = {
    "registry": "of engines in engines/, of this user's services in services/state/",
}


def modules(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Yield every module below a folder with its syntax tree; recorded data is none."""
    for path in sorted(folder.rglob("*.py")):
        relative = path.relative_to(folder)
        if "data" not in relative.parts:
            yield relative, ast.parse(path.read_text(encoding="utf-8"))


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
    for path, _ in modules(TESTS):
        if not path.name.startswith("test_") or path.parts[0] == "e2e":
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
    for path, _ in modules(TESTS):
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


def test_no_module_has_the_name_of_another() -> None:
    places = defaultdict(list)
    for path, _ in modules(PACKAGE):
        if path.stem == "__init__" or "runtime" in path.parts or "pods" in path.parts:
            continue
        of_an_engine = path.parent.match("engines/*") and path.parent.name != "install"
        if path.parts[0] in BY_SUBJECT or of_an_engine:
            continue
        places[path.stem].append(path.as_posix())
    assert {name for name, paths in places.items() if len(paths) > 1} == set(EXPLAINED_BY_PACKAGE)


def test_the_architecture_page_names_what_is_there() -> None:
    page = (TESTS.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert packages == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    modules = {
        name for name in re.findall(r"`([\w/]+\.py)\b", page) if not name.startswith("tests/")
    }
    assert [name for name in sorted(modules) if not (PACKAGE / name).is_file()] == []
