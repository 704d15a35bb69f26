"""Read what one release of the plugin runs: from its source, and by executing it.

`read` returns the document of a release from a checkout or from the packages of an installation;
``scripts/engine_facts.py`` writes ``profiles/engines/support/ENGINE-VERSION.json`` with it, and
`core.engines.facts.installed` keeps that of an installed engine without shipped facts. It is read
from the syntax tree, so that the same files give the same document on any machine; the rules of the
bucket code and the options that the parser takes are those of the executed code. The forks have
ended (`core.engines.support.ended`): their documents are shipped and not made again.
"""

from __future__ import annotations

import ast
import hashlib
import json
import logging
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.engines.engine_version import REGISTRY, version_numbers
from gaudi_launch.core.engines.facts.bucket_rules import find_rules
from gaudi_launch.core.engines.facts.cache_kinds import allocation_of
from gaudi_launch.core.engines.facts.model_classes import ModelClasses
from gaudi_launch.core.engines.facts.registry import (
    config_types,
    registered,
    registry_of,
    supported_methods,
    texts_in,
)
from gaudi_launch.core.engines.facts.source import (
    UNTIL,
    FactsError,
    assigned,
    nodes,
    text_of,
    texts_of,
    tree_of,
)
from gaudi_launch.core.engines.introspect import ask_buckets
from gaudi_launch.core.engines.version_facts import plain_option

_log = logging.getLogger(__name__)

_SECONDS = 300.0

_NAME = re.compile(r"^[A-Z][A-Z0-9_]{2,79}$")
_LINK = re.compile(r"\[([^\]]+)\]\(https?://(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)\)")
_CONFIG_FIELD = re.compile(r"^(?:get_field\()?(\w+)[.,] ?'?(\w+)'?\)?$")


# Models


def _models(upstream: Path | None, checkout: Path) -> dict[str, dict[str, Any]]:
    """Return the classes of vLLM, and the plugin's over them.

    The interfaces remain those of upstream's class.
    """
    models: dict[str, dict[str, Any]] = {}
    if upstream is not None:
        models = registry_of(upstream / REGISTRY)
    classes = ModelClasses(upstream or checkout, checkout)
    for entry in models.values():
        entry["interfaces"] = classes.interfaces(entry["module"], entry["class"])
    for architecture, target in registered(checkout / "vllm_gaudi").items():
        entry = models.setdefault(architecture, {"tasks": ["generate"], "interfaces": []})
        entry["module"], _, entry["class"] = target.partition(":")
    if upstream is not None:
        for entry in models.values():
            entry["layers"] = classes.layers(entry["module"], entry["class"])
    return models


# Quantisation


def expanded_at_load(folder: Path) -> list[dict[str, str]]:
    """Return the methods that are dequantised when weights are loaded.

    The form is a patched ``_normalize_quantization_config`` that returns None for one method of one
    model type, and the variable that prevents that.
    """
    found = []
    for path in sorted(folder.rglob("*.py")):
        tree = tree_of(path)
        for node in nodes(tree, ast.FunctionDef, "_patched_normalize_quantization_config"):
            compared = _compared(node)
            if len(compared) != 2:
                raise FactsError(f"{path}:{node.lineno}: compares {compared}")
            found.append(
                {
                    "method": compared[1],
                    "model_type": compared[0],
                    "to": "bfloat16",
                    "unless": _kept_by(tree, node),
                    "source": f"{path.relative_to(folder.parent).as_posix()}:{node.lineno}",
                }
            )
    return found


def _compared(tree: ast.AST) -> list[str]:
    """Return the texts that something is compared with."""
    parts = [part for each in nodes(tree, ast.Compare) for part in each.comparators]
    return [text for part in parts if (text := text_of(part))]


def _kept_by(tree: ast.Module, function: ast.FunctionDef) -> str:
    """Return ``NAME=VALUE`` of the module's switch that the function reads first.

    Return "" without one.
    """
    used = {each.id for each in nodes(function, ast.Name)}
    for name, expression in assigned(tree).items():
        if name in used and isinstance(expression, ast.Compare):
            for variable, _, _ in environment_reads(expression):
                return f"{variable}={text_of(expression.comparators[0])}"
    return ""


def renamed_methods(vllm: Path) -> dict[str, dict[str, str]]:
    """Return the methods that vLLM loads as another one, with the place.

    The form is an ``override_quantization_method`` that compares ``quant_method`` with one text and
    returns the class's name.
    """
    found: dict[str, dict[str, str]] = {}
    for path in sorted((vllm / "model_executor/layers/quantization").rglob("*.py")):
        for node in nodes(tree_of(path), ast.ClassDef):
            functions = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
            override = functions.get("override_quantization_method")
            if override is None or "get_name" not in functions:
                continue
            code, compared = ast.unparse(override), _compared(override)
            # the overrides of another platform do not count
            is_whole = "quant_method" in code and "current_platform" not in code
            returned = [text_of(each.value) for each in nodes(functions["get_name"], ast.Return)]
            only_one = len(compared) == len([*nodes(override, ast.Compare)]) == 1
            if only_one and is_whole and "return cls.get_name()" in code and returned[0]:
                place = f"vllm/{path.relative_to(vllm).as_posix()}:{override.lineno}"
                found[compared[0]] = {"to": returned[0], "source": place}
    return found


# Environment variables


def environment_reads(tree: ast.AST) -> Iterator[tuple[str, str | None, int]]:
    """Yield name, default and line of every read of an environment variable.

    The name must be a constant.
    """
    for node in ast.walk(tree):
        name, default = None, None
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            if ast.unparse(node.value) in ("os.environ", "environ"):
                name = text_of(node.slice)
        elif isinstance(node, ast.Call) and node.args:
            name, default = _call_read(node)
        if name is not None and _NAME.match(name):
            yield name, default, getattr(node, "lineno", 0)


_READS = (
    "os.getenv",
    "getenv",
    "os.environ.get",
    "environ.get",
    "env_with_choices",
    "env_list_with_choices",
)


def _call_read(node: ast.Call) -> tuple[str | None, str | None]:
    """Return name and default of a call that reads a variable.

    It is ``os.getenv``, ``os.environ.get``, ``env_with_choices``, or the extension's ``Env`` and
    ``Value``.
    """
    called = ast.unparse(node.func)
    first = text_of(node.args[0])
    default = ast.unparse(node.args[1]) if len(node.args) > 1 else None
    if called in _READS:
        return first, default
    if called == "Env":
        return first, None
    if called == "Value" and first is not None:
        named = next((text_of(k.value) for k in node.keywords if k.arg == "env_var"), None)
        return named or f"VLLM_{first.upper()}", default
    return None, None


def environment_of(upstream: Path | None, checkout: Path) -> dict[str, dict[str, Any]]:
    """Return defaults and readers by variable, of the plugin and of vLLM's envs.py."""
    read = [(checkout, path) for path in sorted((checkout / "vllm_gaudi").rglob("*.py"))]
    if upstream is not None:
        read.append((upstream, upstream / "vllm/envs.py"))
    found: dict[str, dict[str, Any]] = {}
    computed: set[str] = set()
    for root, path in read:
        tree, place = tree_of(path), path.relative_to(root).as_posix()
        for name, default, line in environment_reads(tree):
            entry = found.setdefault(name, {"default": None, "read_by": []})
            if entry["default"] is None:
                entry["default"] = default
            entry["read_by"].append(f"{place}:{line}")
        variables = assigned(tree).get("environment_variables")
        if path.name == "envs.py" and isinstance(variables, ast.Dict):
            computed |= {text for key in variables.keys if (text := text_of(key))}
    for entry in found.values():
        entry["read_by"] = sorted(set(entry["read_by"]))[:5]
    if upstream is not None:
        _mark_unused(found, upstream, checkout)
        for name in computed - found.keys():
            found[name] = {"default": None, "read_by": ["vllm/envs.py"]}
    return found


def _mark_unused(variables: dict[str, dict[str, Any]], upstream: Path, checkout: Path) -> None:
    """Mark what vllm/envs.py defines and no other file names.

    Setting it changes nothing (vLLM 0.26.0: VLLM_ENGINE_ITERATION_TIMEOUT_S).
    """
    kept = {
        name
        for name, row in variables.items()
        if all(place.startswith("vllm/envs.py") for place in row["read_by"])
    }
    for folder in sorted({upstream / "vllm", checkout}):
        for path in folder.rglob("*.py"):
            if path.name != "envs.py" and "tests" not in path.parts:
                text = path.read_text(encoding="utf-8", errors="replace")
                kept = {name for name in kept if name not in text}
    for name in kept:
        variables[name]["unused"] = True


# Options

# the server's own arguments; the second since vLLM 0.32.0 at the latest
_SERVER = ("entrypoints/openai/cli_args.py", "entrypoints/launchers/cli_args.py")


def options_of(vllm: Path) -> dict[str, dict[str, Any]]:
    """Return the default of every option of the API server."""
    defaults = _defaults(vllm)
    found: dict[str, dict[str, Any]] = {}
    for place in ("engine/arg_utils.py", *_SERVER):
        if not (vllm / place).is_file():
            continue
        for node in ast.walk(tree_of(vllm / place)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("add_argument"):
                names = [text for each in node.args if (text := text_of(each) or "")[:2] == "--"]
                if names:
                    found[names[0]] = {"default": _stated(node, names[0], defaults)}
            # the server's own arguments: each field becomes an option
            if isinstance(node, ast.ClassDef) and "FrontendArgs" in node.name:
                for each in node.body:
                    if isinstance(each, ast.AnnAssign):
                        default = mapped(ast.unparse, each.value)
                        name = plain_option(ast.unparse(each.target))
                        found.setdefault(name, {"default": default})
    return found


def _stated(node: ast.Call, name: str, defaults: Mapping[str, str]) -> str | None:
    """Return the default of a call of ``add_argument``, or of its field."""
    stated = next((each.value for each in node.keywords if each.arg == "default"), None)
    if stated is None:
        return defaults.get(name.removeprefix("--").replace("-", "_"))
    written = ast.unparse(stated)
    return defaults.get(written.removeprefix("EngineArgs."), written)


def _defaults(vllm: Path) -> dict[str, str]:
    """Return the default of every field of EngineArgs.

    It is looked up in the configuration classes that it names.
    """
    configs: dict[str, dict[str, str]] = {}
    for path in (vllm / "config.py", *sorted((vllm / "config").glob("*.py"))):
        for node in tree_of(path).body if path.is_file() else ():
            if isinstance(node, ast.ClassDef):
                configs[node.name] = _fields(node)
    found: dict[str, str] = {}
    for node in nodes(tree_of(vllm / "engine/arg_utils.py"), ast.ClassDef, "EngineArgs"):
        for name, written in _fields(node).items():
            match = _CONFIG_FIELD.match(written)
            fields = configs.get(match[1], {}) if match else {}
            found[name] = fields.get(match[2], written) if match else written
    return found


def _fields(node: ast.ClassDef) -> dict[str, str]:
    annotated = {ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)}
    return {name: _default(each) for name, each in assigned(node).items() if name in annotated}


def _default(written: ast.expr) -> str:
    """Return a field's default as text.

    That of ``Field(default=...)`` without its limits.
    """
    if isinstance(written, ast.Call) and ast.unparse(written.func) in ("Field", "field"):
        for keyword in written.keywords:
            if keyword.arg in ("default", "default_factory"):
                return ast.unparse(keyword.value)
    return ast.unparse(written)


# Defaults, transformers, MLA, validated models


def hybrid_prefix_caching(vllm: Path) -> dict[str, Any]:
    """Return whether prefix caching is on for models with states, and the place.

    vllm/engine/arg_utils.py assigns ``default_prefix_caching``: it leaves out hybrids itself, or
    takes ``is_prefix_caching_supported`` of vllm/config/model.py, whose branch for them returns a
    constant. False, without a place, for code of another form.
    """
    arguments, config = "engine/arg_utils.py", "config/model.py"
    for node in nodes(tree_of(vllm / arguments), ast.Assign):
        is_default = ast.unparse(node.targets[0]) == "default_prefix_caching"
        if is_default and "not model_config.is_hybrid" in ast.unparse(node.value):
            return {"value": False, "source": f"vllm/{arguments}:{node.lineno}"}
    tree = tree_of(vllm / config) if (vllm / config).is_file() else ast.Module([], [])
    for function in nodes(tree, ast.FunctionDef, "is_prefix_caching_supported"):
        for branch in nodes(function, ast.If):
            last = branch.body[-1]
            if ast.unparse(branch.test) != "attn_type == 'hybrid'":
                continue
            if isinstance(last, ast.Return) and isinstance(last.value, ast.Constant):
                source = f"vllm/{config}:{branch.lineno}"
                return {"value": bool(last.value.value), "source": source}
    return {"value": False, "source": ""}


_GRANITE = "granitemoehybrid"


def state_blocks(plugin: Path) -> dict[str, Any]:
    """Return the rules by which states decide the size of a block.

    ``fine``: the models whose blocks are multiples of 16 tokens instead of 128. ``buckets``: those
    whose buckets count such blocks: ``all``, one type, or ``decode`` where prompts do not.
    ``apart``: keys and states of a block have separate memory. ``chunked``: with prefix caching
    vLLM aligns the blocks of every Mamba hybrid to chunks before the plugin does to 128 tokens.

    They are read, not executed: ``update_block_size_for_backend`` of vllm_gaudi/platform.py, which
    imports torch and habana_frameworks at its top, takes the complete VllmConfig, and that imports
    the model's class with vLLM's layers in another process (30 s on two cores, 0.26.0).
    """
    platform = (plugin / "platform.py").read_text(encoding="utf-8")
    runner, worker = (
        "".join(path.read_text(encoding="utf-8") for path in plugin.glob(f"v1/worker/{name}.py"))
        for name in ("hpu_model_runner", "hpu_worker")
    )
    found: dict[str, Any] = {"fine": "all", "buckets": "all", "apart": "standard_mamba" in worker}
    if _GRANITE in platform:
        found["fine"] = found["buckets"] = _GRANITE
    if "bucketing_manager.block_size = self.attn_block_size" in runner:
        found["buckets"] = "decode"
    if "bucketing_manager.block_size = self.block_size" in runner:
        found["buckets"] = _GRANITE if _GRANITE in runner else "all"
    found["chunked"] = "HybridAttentionMambaModelConfig.verify_and_update_config(" in platform
    return {**found, "source": "vllm_gaudi/platform.py"}


def transformers_ranges(paths: Iterable[Path]) -> dict[str, str]:
    """Return the range of transformers that each file of requirements states.

    A wheel's METADATA states those of ``requirements/common.txt``.
    """
    found: dict[str, str] = {}
    for path in filter(Path.is_file, paths):
        name = "common.txt" if path.name == "METADATA" else path.name
        for line in path.read_text(encoding="utf-8").splitlines():
            written = line.strip().removeprefix("Requires-Dist: ")
            match = re.match(r"^transformers\s*([<>=!~][^#;]*)", written)
            if match:
                parts = re.sub(r"\s+", "", match[1]).split(",")
                parts.sort(key=lambda bound: (version_numbers(bound), bound))
                found.setdefault(name, ",".join(parts))
    return found


def mla_types(vllm: Path) -> dict[str, Any]:
    """Return the model types with a compressed cache, and the place.

    They are those of ``is_deepseek_mla``.
    """
    places = [vllm / "transformers_utils/model_arch_config_convertor.py", vllm / "config.py"]
    places += sorted((vllm / "config").glob("*.py"))
    for path in filter(Path.is_file, places):
        for node in nodes(tree_of(path), ast.FunctionDef, "is_deepseek_mla"):
            types: set[str] = set()
            for each in nodes(node, ast.Compare):
                if "model_type" in ast.unparse(each.left):
                    types.update(*map(texts_of, each.comparators))
            types -= {"eagle", "medusa", "mlp_speculator"}
            if types:
                place = f"vllm/{path.relative_to(vllm).as_posix()}:{node.lineno}"
                return {"model_types": sorted(types), "source": place}
    return {"model_types": [], "source": ""}


def sparse_as_dense(platform: Path) -> str:
    """Return where the platform runs sparse attention as dense MLA.

    Return "" where it refuses it or does not know it.
    """
    for node in nodes(tree_of(platform), ast.Constant):
        if "as dense MLA" in (text_of(node) or ""):
            return f"{platform.name}:{node.lineno}"
    return ""


def validated(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the validated models of tables.

    Each has hub ID, cards, data types and accelerators.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            link = _LINK.search(line)
            cells = line.strip().strip("|").split("|")
            if not link or not line.startswith("|") or len(cells) < 4:
                continue
            cards = re.findall(r"\b(\d+)\b", re.sub(r"\(.*?\)", "", cells[1]))
            types = re.findall(r"\b(bf16|fp16|fp8|int4)\b", cells[2], re.IGNORECASE)
            found[link[2]] = {
                "cards": sorted(set(map(int, cards))),
                "dtypes": sorted(set(map(str.upper, types))),
                "accelerators": sorted(
                    {f"gaudi{each}" for each in re.findall(r"Gaudi\s*(\d)", cells[3])}
                ),
                "source": f"{path.name}:{number}",
            }
    return [{"model": model, **found[model]} for model in sorted(found, key=str.lower)]


# One version

# files of vLLM that decide facts; of the plugin all of its packages do
_DECIDING = (
    *("vllm/envs.py", "vllm/config.py", "vllm/config/*.py", "vllm/engine/arg_utils.py"),
    *(f"vllm/{place}" for place in _SERVER),
    *("vllm/transformers_utils/config.py", REGISTRY),
)


def digest_of(checkout: Path, upstream: Path | None) -> str:
    """Return the digest of the files that decide the facts of a release.

    It is the same of a checkout and an installation.
    """
    digest = hashlib.sha256()
    packages = sorted(path.parent for path in (checkout / "vllm_gaudi").rglob("__init__.py"))
    found = [path for each in packages for path in sorted(each.glob("*.py"))]
    if upstream is not None:
        found += [path for pattern in _DECIDING for path in sorted(upstream.glob(pattern))]
    for path in found:
        # written by the installation
        if path.name != "_version.py":
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class ReleaseSource:
    """The code of one release, and how it is identified.

    ``checkout`` has the plugin, ``upstream`` its vLLM. ``python`` is an interpreter that can import
    vLLM, "" where none can; then the parser is read and not executed.
    """

    engine: str
    version: str
    checkout: Path
    repository: str
    commit: str
    date: str
    upstream: Path | None = None
    upstream_version: str = ""
    python: str = ""


def read(source: ReleaseSource) -> dict[str, Any]:
    """Return the document of one release. Raises FactsError.

    ``buckets`` is empty where no rules give the answers of its code; only executed options have
    ``parsers``.
    """
    checkout, upstream = source.checkout, source.upstream
    taken = ("engine", "version", "repository", "commit", "date")
    found: dict[str, Any] = {"schema": 1, **{name: getattr(source, name) for name in taken}}
    if source.upstream_version:
        found["upstream"] = {"package": "vllm", "version": source.upstream_version}
    found["files"] = digest_of(checkout, upstream)
    found["models"] = _models(upstream, checkout)
    requirements = [checkout / "requirements.txt"]
    if upstream is not None:
        found["removed"] = texts_in(upstream / REGISTRY, "_PREVIOUSLY_SUPPORTED_MODELS")
        found["options"] = options_of(upstream / "vllm")
        found["mla"] = mla_types(upstream / "vllm")
        found["configs"] = config_types(upstream / "vllm")
        found["defaults"] = {"hybrid_prefix_caching": hybrid_prefix_caching(upstream / "vllm")}
        requirements.append(upstream / "requirements/common.txt")
        requirements += sorted(upstream.glob("vllm-*.dist-info/METADATA"))
    cache = allocation_of(checkout)
    if cache.get("state", {}).get("allocates") == "state":
        found.setdefault("defaults", {})["state_blocks"] = state_blocks(checkout / "vllm_gaudi")
    # the platform's methods, with dequantised and renamed ones
    platform = "vllm_gaudi/platform.py"
    supported, line = supported_methods(checkout / platform)
    if not line:
        raise FactsError(f"{platform}: no supported_quantization")
    found["quantization"] = {
        "supported": supported,
        "expanded_at_load": expanded_at_load(checkout / "vllm_gaudi/models"),
        "renamed": renamed_methods(upstream / "vllm") if upstream is not None else {},
        "source": f"{platform}:{line}",
    }
    found["sparse_as_dense"] = sparse_as_dense(checkout / "vllm_gaudi/platform.py")
    found["transformers"] = transformers_ranges(requirements)
    found["environment"] = environment_of(upstream, checkout)
    found["validated"] = validated(sorted((checkout / "docs").rglob("validated_models.md")))
    found["cache"] = cache
    if source.python or (checkout / "vllm_gaudi/extension/bucketing").is_dir():
        _execute(found, source)
    return found


def _execute(document: dict[str, Any], source: ReleaseSource) -> None:
    """Add the rules of the bucket module and the options of the parser.

    One process answers for both, and rules are empty where none give the answers.
    """

    def answers(cases: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
        found = ask_buckets(
            source.python or sys.executable,
            "vllm_gaudi",
            cases,
            search=[str(source.checkout)],
            vllm=source.upstream if source.python else None,
            seconds=min(_SECONDS, UNTIL.get() - time.monotonic()),
        )
        if found.parser is not None:
            add_options(document, found.parser)
            for kind, names in plugin_parsers(source.checkout / "vllm_gaudi").items():
                document["parsers"][kind] = sorted({*document["parsers"][kind], *names})
        elif source.python:
            _log.warning("the parser is not executed: %s", found.last_line)
        return found.replies

    document["buckets"] = {}
    try:
        document["buckets"] = asdict(find_rules(answers))
    except (FactsError, subprocess.TimeoutExpired) as error:
        _log.warning("no known rules give the buckets of %s: %s", source.version, error)


_MANAGERS = {"ReasoningParserManager": "reasoning", "ToolParserManager": "tool"}


def plugin_parsers(plugin: Path) -> dict[str, set[str]]:
    """Return the names of parsers that the plugin registers, by kind.

    vLLM's parser does not have them where it is executed without the plugin.
    """
    found: dict[str, set[str]] = {kind: set() for kind in _MANAGERS.values()}
    for path in plugin.rglob("*.py"):
        if "ParserManager" not in path.read_text(encoding="utf-8"):
            continue
        for call in nodes(tree_of(path), ast.Call):
            manager, _, method = ast.unparse(call.func).partition(".")
            if manager in _MANAGERS and method.startswith("register_"):
                named = [
                    *call.args[:1],
                    *(each.value for each in call.keywords if each.arg == "name"),
                ]
                found[_MANAGERS[manager]].update(*map(texts_of, named))
    return found


def add_options(document: dict[str, Any], found: Mapping[str, Any]) -> None:
    """Replace the options by those of the executed parser, with spellings and values."""
    written = {plain_option(name): (name, row) for name, row in document["options"].items()}
    document["options"] = {}
    for plain, taken in found["options"].items():
        name, row = written.get(plain, (plain, {"default": None}))
        document["options"][name] = {**row, **taken}
    document["parsers"] = found["parsers"]


def render(document: Mapping[str, Any]) -> str:
    """Return the document as JSON: one line for each entry of a section."""
    lines = []
    for name, value in document.items():
        rows: list[str] = []
        if isinstance(value, dict) and name != "upstream":
            rows = [f"{json.dumps(key)}: {_line(value[key])}" for key in sorted(value)]
        elif isinstance(value, list):
            rows = [_line(each) for each in value]
        text = _line(value)
        if rows:
            text = text[0] + "\n    " + ",\n    ".join(rows) + "\n  " + text[-1]
        lines.append(f"  {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def row_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a question about a model needs of one release, without its classes."""
    taken = ("engine", "version", "repository", "commit", "date", "upstream", "files")
    compact = document["environment"].get("VLLM_COMPACT_GDN", {"read_by": [""]})
    return {
        **{name: document[name] for name in taken if name in document},
        "complete": "removed" in document,
        "quantization": document["quantization"],
        "transformers": document["transformers"],
        "mla": document.get("mla", {}).get("model_types", []),
        "configs": document.get("configs", []),
        "sparse_as_dense": document["sparse_as_dense"],
        "cache": document["cache"],
        "compact_gdn": compact["read_by"][0],
        "removed": document.get("removed", {}),
        "validated": document["validated"],
        "buckets": document.get("buckets", {}),
        "defaults": document.get("defaults", {}),
        "executed": bool(document.get("buckets")) and "parsers" in document,
    }
