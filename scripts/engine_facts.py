#!/usr/bin/env python3
"""Write the facts of an engine release, executed from a checkout of its source.

    engine_facts.py read vllm-gaudi 0.26.0 --checkout DIR --commit HASH --date YYYY-MM-DD \
        --upstream DIR --upstream-version 0.26.0 --python PYTHON
    engine_facts.py index
    engine_facts.py cpu --upstream DIR

``read`` writes ``profiles/engines/support/ENGINE-VERSION.json``, ``index`` joins all of them into
``index.json``. ``cpu`` writes the lists of the CPU engine's vLLM. The reading is that of
`gaudi_launch.core.engines.facts`, as for an installed engine.
``--upstream`` is a checkout of vLLM or an unpacked wheel, ``--python`` an interpreter with torch
and the packages that vLLM imports, so that its parser is executed.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
from pathlib import Path
from typing import Any

from gaudi_launch.core.engines.base import VLLM
from gaudi_launch.core.engines.engine_version import REGISTRY
from gaudi_launch.core.engines.facts.reading import ReleaseSource, read, render, row_of
from gaudi_launch.core.engines.facts.registry import installed_lists
from gaudi_launch.core.engines.facts.source import FactsError
from gaudi_launch.extensions.vllm_cpu.engine import PLATFORM

SUPPORT = Path(__file__).resolve().parent.parent / "profiles" / "engines" / "support"
CPU = SUPPORT.parent / "cpu.json"


def index(folder: Path = SUPPORT) -> dict[str, Any]:
    """Return what a question about a model needs of every version.

    Each list of classes is stored once. ``models`` maps an architecture to the numbers of the
    versions that have it; ``kinds`` has its tasks and interfaces at the newest of them, ``layers``
    the kinds of cached layers that it makes, with the versions of each answer.
    """
    documents = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))
    ]
    documents = [document for document in documents if "engine" in document]
    documents.sort(
        key=lambda document: (document["engine"], document["date"], _numbers(document["version"]))
    )
    versions: list[dict[str, Any]] = []
    models: dict[str, list[int]] = {}
    kinds: dict[str, list[str]] = {}
    layers: dict[str, dict[str, list[int]]] = {}
    for number, document in enumerate(documents):
        versions.append(row_of(document))
        for architecture, entry in document["models"].items():
            models.setdefault(architecture, []).append(number)
            kinds[architecture] = [*entry["tasks"], *entry["interfaces"]]
            if entry.get("layers"):
                made = layers.setdefault(architecture, {})
                made.setdefault(" ".join(entry["layers"]), []).append(number)
    return {"schema": 1, "versions": versions, "models": models, "kinds": kinds, "layers": layers}


def cpu_lists(upstream: str) -> dict[str, Any]:
    """Return what `InstalledLists` has of the CPU engine, of its pinned version."""
    found = installed_lists({"source": upstream}, PLATFORM)
    if found is None:
        raise SystemExit(f"{upstream}: no lists to be read")
    return {
        "classes": sorted(found.classes),
        "methods": list(found.methods),
        "configs": sorted(found.configs),
        "evidence": f"vllm-project/vllm@v{VLLM}: {REGISTRY}",
    }


def mla_types_of(folder: Path = SUPPORT) -> dict[str, Any]:
    """Return the model types with a compressed cache.

    Each has the oldest version that lists it, and the place.
    """
    documents = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))
    ]
    documents = [document for document in documents if document.get("mla", {}).get("model_types")]
    documents.sort(key=lambda document: (document["date"], _numbers(document["version"])))
    found: dict[str, str] = {}
    for document in documents:
        place = f"{document['engine']}@{document['version']}: {document['mla']['source']}"
        for kind in document["mla"]["model_types"]:
            found.setdefault(kind, place)
    return {"schema": 1, "model_types": found}


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def _absolute(text: str) -> Path | str:
    return Path(text).absolute() if text else ""


def main() -> None:
    """Read the command line and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("read")
    one.add_argument("engine")
    one.add_argument("version")
    # the engine's code runs in another folder
    one.add_argument("--checkout", type=_absolute, required=True)
    one.add_argument("--repository", required=True)
    one.add_argument("--commit", required=True)
    one.add_argument("--date", required=True)
    one.add_argument("--upstream", type=_absolute)
    one.add_argument("--upstream-version", default="")
    one.add_argument("--python", type=_absolute, default="")
    one.add_argument("--out", type=Path, default=SUPPORT)
    commands.add_parser("index")
    commands.add_parser("cpu").add_argument("--upstream", required=True)
    logging.basicConfig(format="%(message)s")
    options = vars(parser.parse_args())
    command = options.pop("command")
    if command == "cpu":
        CPU.write_text(render({"schema": 1, "lists": cpu_lists(options["upstream"])}), "utf-8")
        return
    if command == "index":
        (SUPPORT / "index.json").write_text(render(index()), encoding="utf-8")
        (SUPPORT / "mla.json").write_text(render(mla_types_of()), encoding="utf-8")
        return
    out = options.pop("out")
    options["python"] = str(options["python"])
    out.mkdir(parents=True, exist_ok=True)
    try:
        document = read(ReleaseSource(**options))
    except FactsError as error:
        raise SystemExit(str(error)) from None
    path = out / f"{options['engine']}-{options['version']}.json"
    path.write_text(render(document), encoding="utf-8")


if __name__ == "__main__":
    main()
