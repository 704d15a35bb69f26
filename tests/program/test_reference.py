"""The generated pages of docs/ are current; every variable, file and exit code has a meaning."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from types import ModuleType

import pytest

from gaudi_launch.cli.table import COMMANDS
from gaudi_launch.core.base.errors import ExitCode
from tests.support.places import PACKAGE, TOP
from tests.support.scripts import script

# read by pip, and by the C library or Python for us
READ_BY_OTHERS = {"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "HOME", "COLUMNS"}
# parts of names, and variables that are only set for a child
NOT_READ = {
    # of a request to the exporter (WSGI)
    "PATH_INFO",
    # Gradio's, set before it is imported
    "GRADIO_ANALYTICS_ENABLED",
    # of the shell's completion
    "_GAUDI_LAUNCH_KEPT",
    "COMP_CWORD",
    "COMP_WORDS",
    # set for child processes
    "OPENAI_API_KEY",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
    "HF_HUB_DISABLE_TELEMETRY",
    "HF_HUB_DISABLE_XET",
    # of the start scripts and of containers, as facts
    "BUCKET_PADDING_RATIO",
    "HABANA_RUNTIME_ERROR",
    "PWD",
    # of git, set for child processes
    "GIT_CONFIG_COUNT",
    # of a request that a WSGI server passes, not of the process
    "REQUEST_METHOD",
}
READS = re.compile(r'environ(?:ment)?(?:\.get\(|\[|\.setdefault\()\s*"(\w+)"')
OWN = re.compile(r'"(_?GAUDI_LAUNCH_\w+)"')
BELOW = re.compile(r'\b(state|cache|data|config)_dir\(\)(?:,\n\s*|\s*/\s*)"([\w.-]+)"')
NAMED = re.compile(r"\b(state|cache|data|config)_dir\(\) / FILE_NAME")


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    return script("reference")


@pytest.fixture(scope="module")
def generated(reference: ModuleType) -> dict[str, str]:
    pages: dict[str, str] = reference.generated()
    return pages


def sources() -> Iterator[tuple[str, str]]:
    """Yield the launcher's modules by name, without code for other interpreters."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if "runtime" not in path.parts and "pods" not in path.parts:
            yield path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")


def test_the_schemas_have_every_launch_option(reference: ModuleType) -> None:
    made = reference.schemas()
    assert [path.name for path, text in made.items() if path.read_text("utf-8") != text] == []


def test_every_generated_page_is_current(generated: dict[str, str]) -> None:
    stale = [
        name
        for name, text in generated.items()
        if (TOP / "docs" / name).read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run python scripts/reference.py"


def test_every_variable_that_is_read_has_a_meaning(reference: ModuleType) -> None:
    known = {each["name"] for each in reference.read("variables")["variables"]}
    read = {name for _, text in sources() for name in (*READS.findall(text), *OWN.findall(text))}
    # variables of engines are settings of a plan
    engines = {name for name in read if name.startswith(("VLLM_", "PT_", "RAY_", "HCCL_", "MAX_"))}
    assert sorted(read - known - engines - NOT_READ) == []


def test_every_variable_with_a_meaning_is_read(reference: ModuleType) -> None:
    text = "\n".join(text for _, text in sources())
    names = {each["name"] for each in reference.read("variables")["variables"]}
    assert sorted(name for name in names - READ_BY_OTHERS if f'"{name}"' not in text) == []


def test_every_file_that_is_written_has_a_meaning(reference: ModuleType) -> None:
    known = [each["path"] for each in reference.read("files")["files"]]
    named = {(place.upper(), name) for _, text in sources() for place, name in BELOW.findall(text)}
    for path, text in sources():
        (value, *_) = [*re.findall(r'(?m)^FILE_NAME = "(.+)"', text), ""]
        if NAMED.search(text) and value:
            named.add((NAMED.findall(text)[0].upper(), value))
        assert ast.parse(text), path
    missing = [
        f"{place}/{name}"
        for place, name in sorted(named)
        if not any(path.removesuffix("/").startswith(f"{place}/{name}") for path in known)
    ]
    assert missing == []


def test_every_exit_code_has_a_meaning(reference: ModuleType) -> None:
    assert sorted(reference.read("texts")["exit_codes"]) == sorted(code.name for code in ExitCode)


def test_every_command_has_a_part(generated: dict[str, str]) -> None:
    for name in ("commands.md", "commands_zh.md"):
        headings = re.findall(r"(?m)^### `([\w-]+)`$", generated[name])
        assert sorted(headings) == sorted(COMMANDS)


def test_a_row_escapes_what_divides_cells(reference: ModuleType) -> None:
    assert reference._row(["a|b", "c\nd"]) == "| a\\|b | c d |"


def test_an_introduction_has_both_languages(reference: ModuleType) -> None:
    introductions = reference.read("texts")["introductions"]
    assert {tuple(each) for each in introductions.values()} == {("en", "zh")}
