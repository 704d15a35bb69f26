"""Report the options of a server's parser, inside the engine's interpreter.

Started with ``-c`` and this file's text; the first argument is a folder with ``vllm/``, imported
before all others ("": the installed one). Only the standard library here, and vLLM. Writes one
line, a JSON object with ``options`` (spellings and values by the first long name, with hyphens) and
``parsers`` (the names that reasoning and tool-call parsers are registered under).
"""

import argparse
import importlib
import json
import os
import sys
from typing import Any

# where vLLM keeps its parsers, the newest place first
MANAGERS = {
    "reasoning": (("vllm.reasoning", "ReasoningParserManager"),),
    "tool": (
        ("vllm.tool_parsers", "ToolParserManager"),
        ("vllm.entrypoints.openai.tool_parsers", "ToolParserManager"),
    ),
}


def first_found(places: Any) -> Any:
    """Return the attribute of the first importable module; None without one."""
    for module, name in places:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    return None


def without_cards() -> None:
    """Let vLLM plan for a CPU where it finds no card: the parser is the same."""
    platforms: Any = importlib.import_module("vllm.platforms")
    if not platforms.current_platform.device_type:
        cpu = importlib.import_module("vllm.platforms.cpu")
        platforms._current_platform = cpu.CpuPlatform()


def names_of(manager: Any) -> list[str]:
    """Return the names that a manager of parsers has, loaded ones and others."""
    found: set[str] = set()
    for table in ("reasoning_parsers", "tool_parsers", "lazy_parsers"):
        found.update(map(str, getattr(manager, table, None) or {}))
    return sorted(found)


def plain(name: str) -> str:
    """Return an option with hyphens."""
    return "--" + name[2:].replace("_", "-")


def row_of(action: Any) -> dict[str, Any]:
    """Return the other spellings and the values of one option, where it has any."""
    names = [plain(each) if each.startswith("--") else each for each in action.option_strings]
    first = next(each for each in names if each.startswith("--"))
    row: dict[str, Any] = {"also": sorted({*names} - {first})}
    if action.choices is not None:
        row["values"] = sorted(map(str, action.choices))
    return {name: value for name, value in row.items() if value}


def report() -> dict[str, Any]:
    """Return the options and the parsers' names."""
    without_cards()
    flexible = first_found(
        (
            ("vllm.utils.argparse_utils", "FlexibleArgumentParser"),
            ("vllm.utils", "FlexibleArgumentParser"),
        )
    )
    make = first_found(
        (
            ("vllm.entrypoints.openai.cli_args", "make_arg_parser"),
            ("vllm.entrypoints.launchers.cli_args", "make_arg_parser"),
        )
    )
    made = make(flexible())
    options = {}
    for action in made._actions:
        names = [plain(each) for each in action.option_strings if each.startswith("--")]
        if names and not isinstance(action, argparse._HelpAction):
            options[names[0]] = row_of(action)
    parsers = {kind: names_of(first_found(places)) for kind, places in MANAGERS.items()}
    return {"options": options, "parsers": parsers}


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1]:
        sys.path.insert(0, sys.argv[1])
    answers, sys.stdout = sys.stdout, sys.stderr
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    print("\n" + json.dumps(report()), file=answers)
