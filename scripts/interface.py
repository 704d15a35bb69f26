"""Write the public interface of this tree: commands, options, JSON keys, IDs.

Exit codes and message IDs are part of it.

    python scripts/interface.py            to tests/data/interface
    python scripts/interface.py FOLDER     to FOLDER

tests/program/test_interface.py compares the product with the record. The same tree gives the same
files. The commands whose JSON is recorded run in this process, in a temporary folder, on simulated
machines.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

TOP = Path(__file__).parents[1]
RECORD = TOP / "tests" / "data" / "interface"
STATE = TOP / "tests" / "data" / "state"

Document = dict[str, Any]

MODEL = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_experts": 128,
    "max_position_embeddings": 40960,
    "vocab_size": 151936,
    "torch_dtype": "bfloat16",
}
DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "max_position_embeddings": 163840,
    "vocab_size": 129280,
    "torch_dtype": "bfloat16",
}
INVENTORY = (
    "schema: 1\nhosts:\n  - {name: one, address: 10.0.0.1}\n  - {name: two, address: 10.0.0.2}\n"
)
START_SCRIPT = "'bash start_gaudi_vllm_server.sh -w Qwen3-30B-A3B -n 4'"
PLANNED = "-w Qwen3-30B-A3B -n 4 --machine simulated:hls2 --engine"

# each name is a key of json.json; the rest is the command line, without --json
RUNS: dict[str, str] = {
    "plan": f"plan {PLANNED} vllm-fork@1.21",
    "plan 1.22": f"plan {PLANNED} vllm-fork@1.22",
    "plan vllm-gaudi": f"plan {PLANNED} vllm-gaudi",
    "plan tgi": f"plan {PLANNED} tgi",
    "plan deepseek_r1": "plan -w DeepSeek-R1 -n 8 --machine simulated:hls2 --trust-remote-code",
    "plan cpu": "plan -w Qwen3-30B-A3B --machine simulated:hls2 --engine cpu",
    "render script": f"render script {PLANNED} vllm-fork@1.21",
    "render docker": f"render docker {PLANNED} vllm-fork@1.21",
    "render compose": f"render compose {PLANNED} vllm-fork@1.21",
    "render quadlet": f"render quadlet {PLANNED} vllm-fork@1.21",
    "render systemd": f"render systemd {PLANNED} vllm-fork@1.21",
    "render kubernetes": (
        "render kubernetes -w /models/Qwen3-30B-A3B -n 4 --machine simulated:hls2 --image a/b:1"
    ),
    "doctor": "doctor --machine simulated:hls2",
    "doctor sick": "doctor --machine simulated:hls2+busy=0,1",
    "devices": "devices --machine simulated:hls2+busy=0,1",
    "engines diff": (
        "engines diff vllm-fork@1.22 vllm-gaudi@0.26 Qwen/Qwen3-8B -n 1 --machine simulated:hls2"
    ),
    "devices pick": "devices pick -n 4 --machine simulated:hls2",
    "warmup": f"warmup {PLANNED} vllm-fork@1.21",
    "warmup reduce": f"warmup {PLANNED} vllm-fork@1.21 --reduce 8,8192",
    "migrate": f"migrate --machine simulated:hls2 {START_SCRIPT}",
    "inspect": "inspect Qwen3-30B-A3B --accelerator gaudi2 --engine vllm-fork@1.21",
    "cluster plan": "cluster plan -w Qwen3-30B-A3B --inventory hosts.yaml",
    "inspect list": "inspect --machine simulated:hls2 -n 1",
    "profiles show": "profiles show qwen3-30b-a3b",
    "profiles check": "profiles check",
    "engines": "engines",
    "ps": "ps",
    "setup cpu": "setup cpu --dry-run",
    "setup fork": "setup vllm-fork@1.21 --dry-run",
    "exporter": "exporter --once --machine simulated:hls2",
    "cache list": "cache list",
    "cache verify": "cache verify",
    "cache prune": "cache prune --older 30d",
    "why": "why engine.log",
    "ps recorded": "ps -a",
    "status": "status old",
    "why service": "why old",
    "logs recorded": "logs old",
    "help": "help",
    "stop": "stop old",
    "cache list recorded": "cache list -c recipes",
    "cache show": "cache show ffd155d6674c2174 -c recipes",
    "cache verify recorded": "cache verify -c recipes",
    "cache prune recorded": "cache prune --max-size 1 -c recipes",
    "cache export": "cache export ffd155d6674c2174 key.tar.zst -c recipes",
    "cache import": "cache import key.tar.zst -c other --machine simulated:hls2",
    "cache sync": "cache sync ffd155d6674c2174 me@host -c recipes",
    "cluster down": "cluster down --name old --dry-run",
    "kube status": "kube status",
    "estimate": "estimate Qwen3-30B-A3B -n 4 --machine gaudi2 -i 1024 -o 256",
    "recommend": (
        "recommend Qwen3-30B-A3B -n 4 -b 16 -t 2048 --max-prefill-seqs 1 --machine gaudi2 "
        "--rate 1/s -i 64,128 -o 8,16 --ttft 1s --tpot 50ms"
    ),
    "top": "top --once --machine simulated:hls2",
    "devices power": ("devices power --limit 600 -m 0 --dry-run --machine simulated:gaudi3-oam"),
    "help page": "help traces",
    "help list": "help --list",
    "help term": "help alerts",
    "no model": "plan --machine simulated:hls2",
    "no option": "plan --no-such-option",
    "no card": "plan -w Qwen3-30B-A3B -n 8 --machine simulated:hls2+busy=0,1",
    "no service": "status none",
    "no weights": "inspect none",
}
# objects whose keys are data: names of variables, options, files, labels, placeholders
OPEN = re.compile(
    r"(^|\.)(env|environment|packages|labels|values|files|options|extra_env|facts|config|data|checkpoints)$|^settings$"
)
# what an example shows for a time, in seconds since 1970
SOME_TIME = 1767225600
# an example has as many plain elements of an array or of data, and characters of a text
MOST_SHOWN, MOST_TEXT = 3, 60
COMPLETION = {"--install-completion", "--show-completion"}
# values that are ids and so part of the interface
IDS = re.compile(r"(findings|checks)\[\]\.id$")


def main() -> None:
    """Write the documents; the record has no examples, whose values are not kept."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else RECORD
    folder.mkdir(parents=True, exist_ok=True)
    documents = collect()
    if folder == RECORD:
        documents.pop("examples")
    for name, document in documents.items():
        # an example keeps the order of its keys
        text = json.dumps(document) if name == "examples" else layout(document)
        (folder / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


def collect() -> dict[str, Document]:
    """Return the interface of this tree by the name of its file."""
    from gaudi_launch.core.base.errors import ExitCode
    from gaudi_launch.core.base.messages import catalogue

    runs, examples = outputs(RUNS)
    return {
        "commands": commands(),
        "exit_codes": {code.name: int(code) for code in ExitCode},
        "messages": {"ids": sorted(catalogue("en"))},
        "json": runs,
        "examples": examples,
    }


# --- commands and options -------------------------------------------------------------------------


def program() -> Callable[[list[str]], None]:
    """Return the function that the installed command runs."""
    # not the installed metadata: an editable install may be older than this tree
    described = (TOP / "pyproject.toml").read_text(encoding="utf-8")
    (value,) = re.findall(r'(?m)^gaudi-launch = "(\S+:\S+)"$', described)
    entry = importlib.metadata.EntryPoint("gaudi-launch", value, "console_scripts")
    loaded: Callable[[list[str]], None] = entry.load()
    return loaded


def root_command() -> Any:
    """Return the program as the Click command that parses it."""
    import typer.main

    module = sys.modules[program().__module__]
    return typer.main.get_command(module.app)


def commands() -> Document:
    """Return every command by its path, with its options by their longest spelling."""
    root = root_command()
    found: Document = {}
    for path, command, hidden in walk(root, (), None):
        entry: Document = {"options": {}, "arguments": {}}
        if hidden:
            entry["hidden"] = True
        if getattr(command, "takes_launch_options", False):
            # those of gaudi-launch plan, which its help does not repeat
            entry["launch_options"] = True
        for parameter in command.params:
            if parameter.hidden:
                continue
            spellings = [
                s for s in (*parameter.opts, *parameter.secondary_opts) if s.startswith("-")
            ]
            if path and set(spellings) & COMPLETION:
                # Typer gives these to each command's own module; only the program's are documented
                continue
            if spellings:
                entry["options"][max(spellings, key=len)] = option(parameter)
            else:
                place = str(len(entry["arguments"]) + 1)
                entry["arguments"][place] = argument(parameter)
        found[" ".join(("gaudi-launch", *path))] = entry
    return found


def walk(
    command: Any, path: tuple[str, ...], parent: Any
) -> Iterator[tuple[tuple[str, ...], Any, bool]]:
    """Yield every command below one, with its path and whether help leaves it out."""
    yield path, command, bool(getattr(command, "hidden", False))
    if not hasattr(command, "list_commands"):
        return
    name = path[-1] if path else "gaudi-launch"
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    for below in command.list_commands(context):
        _, loaded, _ = command.resolve_command(context, [below])
        yield from walk(loaded, (*path, below), context)


def option(parameter: Any) -> Document:
    """Return what a command line may say by one option."""
    entry: Document = {
        "spellings": sorted(parameter.opts),
        "takes_value": not parameter.is_flag and not parameter.count,
        "default": plain(parameter.default),
    }
    if parameter.secondary_opts:
        entry["opposite"] = sorted(parameter.secondary_opts)
    if parameter.multiple:
        entry["multiple"] = True
    if parameter.required:
        entry["required"] = True
    if parameter.metavar:
        entry["metavar"] = parameter.metavar
    choices = getattr(parameter.type, "choices", None) or choices_of(parameter.metavar)
    if choices:
        entry["choices"] = sorted(str(choice) for choice in choices)
    return entry


def choices_of(metavar: str | None) -> list[str]:
    """Return the literal values that a metavar such as ``venv|docker`` names."""
    parts = (metavar or "").split("|")
    return [part for part in parts if len(parts) > 1 and re.fullmatch(r"[a-z0-9_-]+", part)]


def argument(parameter: Any) -> Document:
    """Return what one positional argument takes."""
    entry: Document = {
        "name": parameter.metavar or parameter.name,
        "nargs": parameter.nargs,
        "required": bool(parameter.required),
    }
    if parameter.default is not None:
        entry["default"] = plain(parameter.default)
    return entry


def plain(value: Any) -> Any:
    """Return a default as JSON; what JSON cannot say by the name of its type."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if type(value).__name__ == "Sentinel":
        return None
    return type(value).__name__


# --- JSON -----------------------------------------------------------------------------------------


def outputs(runs: Mapping[str, str]) -> tuple[Document, Document]:
    """Return exit code, key paths and ids of each run's JSON; and its short form."""
    entries: Document = {}
    examples: Document = {}
    with prepared_folder() as folder:
        for name, words in runs.items():
            document, entries[name] = output(shlex.split(words))
            examples[name] = example_of(document, {str(folder): "/home/user", str(TOP): "/opt"})
    return entries, examples


def example_of(value: Any, places: Mapping[str, str], path: str = "") -> Any:
    """Shorten an output to an example: few elements, short texts, other places."""
    if isinstance(value, float):
        value = 28.6 if path.endswith(".cpu_percent") else float(f"{value:.3g}")
        return SOME_TIME if value > 1e9 else value
    if isinstance(value, Mapping):
        # a plan is shown by the command of this name
        is_long = OPEN.search(path) or path == ".plan"
        return {
            example_of(name, places): example_of(each, places, f"{path}.{name}")
            for name, each in list(value.items())[: MOST_SHOWN if is_long else None]
        }
    if isinstance(value, list):
        is_flat = not any(isinstance(each, Mapping | list) for each in value)
        shown = value[: MOST_SHOWN if is_flat else 1]
        return [example_of(each, places, f"{path}[]") for each in shown]
    if isinstance(value, str):
        for place, other in places.items():
            value = value.replace(place, other)
        return value if len(value) <= MOST_TEXT else f"{value[: MOST_TEXT - 3]}..."
    return value


def output(words: list[str]) -> tuple[Document, Document]:
    """Return what one command with --json printed, and its key paths with types."""
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            program()([*words[:1], *with_json(words[1:])])
        except SystemExit as end:
            code = end.code
    entry: Document = {"argv": shlex.join(words), "exit_code": code}
    try:
        document = json.loads(out.getvalue())
    except ValueError:
        raise SystemExit(
            f"interface: {words} printed no JSON: {out.getvalue()!r} {err.getvalue()!r}"
        ) from None
    keys: dict[str, set[str]] = {}
    ids: dict[str, set[str]] = {}
    note(document, "", keys, ids)
    if isinstance(document.get("error"), dict):
        entry["error"] = document["error"]["id"]
    entry["keys"] = {path: sorted(kinds) for path, kinds in sorted(keys.items())}
    if ids:
        entry["ids"] = {path: sorted(values) for path, values in sorted(ids.items())}
    return document, entry


def with_json(words: list[str]) -> list[str]:
    """Return arguments with --json where the command still reads options."""
    if words and not words[0].startswith("-") and words[0] in GROUPED:
        return [words[0], "--json", *words[1:]]
    return ["--json", *words]


GROUPED = frozenset(
    words.split()[1] for name, words in RUNS.items() if len(name.split()) > 1 and " " in words
)


def note(value: Any, path: str, keys: dict[str, set[str]], ids: dict[str, set[str]]) -> None:
    """Add the type of a value, and of all below it, to ``keys``."""
    if path:
        keys.setdefault(path, set()).add(kind(value))
    if isinstance(value, Mapping):
        if OPEN.search(path):
            return
        for name, inner in value.items():
            note(inner, f"{path}.{name}" if path else name, keys, ids)
    elif isinstance(value, list):
        for inner in value:
            note(inner, f"{path}[]", keys, ids)
    elif IDS.search(path):
        ids.setdefault(path, set()).add(str(value))


def kind(value: Any) -> str:
    """Return the name that JSON has for a value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


@contextlib.contextmanager
def prepared_folder() -> Iterator[Path]:
    """Make a temporary folder with a model and nothing of the user's.

    Work in it, with few variables.
    """
    before, variables = Path.cwd(), dict(os.environ)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model, facts in (("Qwen3-30B-A3B", MODEL), ("DeepSeek-R1", DEEPSEEK)):
            (folder / model).mkdir()
            (folder / model / "config.json").write_text(json.dumps(facts), encoding="utf-8")
        (folder / "hosts.yaml").write_text(INVENTORY, encoding="utf-8")
        (folder / "engine.log").write_text(
            "RuntimeError: synStatus=26 [Generic failure] Device acquire failed.\n",
            encoding="utf-8",
        )
        lay_state(folder)
        os.environ.clear()
        os.environ.update(surroundings(folder))
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(variables)


def lay_state(folder: Path) -> None:
    """Copy the recorded service, recipe cache and cluster of tests/data/state."""
    state = folder / "state" / "gaudi-launch"
    service = state / "services" / "old"
    service.mkdir(parents=True)
    for source in (STATE / "services" / "stopped").iterdir():
        content = source.read_text(encoding="utf-8").replace("@HOME@", str(folder))
        content = content.replace("@PORT@", "30001").replace(
            "@PYTHON@", str(folder / "bin" / "python3")
        )
        (service / source.name).write_text(content, encoding="utf-8")
    (service / "lock").touch()
    cluster = state / "clusters" / "old"
    cluster.mkdir(parents=True)
    shutil.copy(STATE / "clusters" / "old.json", cluster / "cluster.json")
    shutil.copytree(STATE / "recipes", folder / "recipes")


def surroundings(folder: Path) -> dict[str, str]:
    """Return the variables of the runs.

    The only program on PATH is a Python without an engine.
    """
    programs = folder / "bin"
    programs.mkdir()
    python = programs / "python3"
    python.write_text(
        '#!/bin/sh\necho \'gaudi-launch-answer:{"packages": {}, "facts": {}}\'\n', encoding="utf-8"
    )
    python.chmod(0o755)
    return {
        "HOME": str(folder),
        "PATH": str(programs),
        "GAUDI_LAUNCH_LANG": "en",
        "COLUMNS": "100",
        **{
            f"XDG_{kind}_HOME": str(folder / kind.lower())
            for kind in ("STATE", "CACHE", "CONFIG", "DATA")
        },
    }


# --- files ----------------------------------------------------------------------------------------


def layout(document: Any) -> str:
    """Return sorted JSON with one option, key or id on each line."""
    return "\n".join(lines(document, ""))


def lines(value: Any, indent: str) -> Iterable[str]:
    """Yield the lines of a value.

    An object or list of plain values takes one line, except at the top.
    """
    if isinstance(value, Mapping) and (indent == "" or not is_flat(value)):
        yield "{"
        for at, name in enumerate(sorted(value)):
            inner = list(lines(value[name], indent + "  "))
            end = "," if at < len(value) - 1 else ""
            inner[0] = f"{indent}  {json.dumps(name, ensure_ascii=False)}: {inner[0]}"
            inner[-1] += end
            yield from inner
        yield f"{indent}}}"
    elif isinstance(value, list) and len(value) > 20:
        yield "["
        yield ",\n".join(f"{indent}  {json.dumps(each, ensure_ascii=False)}" for each in value)
        yield f"{indent}]"
    else:
        yield json.dumps(value, ensure_ascii=False, sort_keys=True)


def is_flat(value: Mapping[str, Any]) -> bool:
    """Return whether no object is inside, and the line stays short."""
    return (
        not any(isinstance(each, Mapping) for each in value.values())
        and len(json.dumps(value)) < 200
    )


if __name__ == "__main__":
    main()
