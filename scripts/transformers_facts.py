#!/usr/bin/env python3
"""Write the classes of transformers that vLLM can use without a native class.

Also the model types that have a configuration class there.

    transformers_facts.py VERSION=FOLDER ...

``FOLDER`` has ``transformers/models`` of that release. A class counts where its
``is_backend_compatible`` is true: ``_supports_attention_backend`` is True in it or in a base of the
same file. Writes ``profiles/engines/support/transformers.json``: the numbers of the releases by
class.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent.parent / "profiles" / "engines" / "support"
_FLAG = "_supports_attention_backend"


def compatible(folder: Path) -> set[str]:
    """Return the compatible model classes of one release."""
    found: set[str] = set()
    for path in sorted((folder / "transformers/models").glob("*/modeling_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        found |= {name for name in classes if _supports(name, classes)}
    return found


def types(folder: Path) -> set[str]:
    """Return the model types of one release (CONFIG_MAPPING_NAMES)."""
    files = (folder / "transformers/models/auto").glob("*auto*.py")
    pairs = re.compile(r'"([\w.-]+)"[,:] "(?!Auto)\w+Config"')
    return {each for path in files for each in pairs.findall(path.read_text(encoding="utf-8"))}


def _supports(name: str, classes: dict[str, ast.ClassDef]) -> bool:
    """Return the flag of a class, looked up through the bases in its file."""
    waiting = [name]
    while waiting:
        node = classes.get(waiting.pop(0))
        if node is None:
            continue
        for each in node.body:
            targets = each.targets if isinstance(each, ast.Assign) else []
            if any(isinstance(target, ast.Name) and target.id == _FLAG for target in targets):
                return isinstance(each, ast.Assign) and ast.unparse(each.value) == "True"
        waiting += [base.id for base in node.bases if isinstance(base, ast.Name)]
    return False


def main() -> None:
    """Read the command line and write the file."""
    releases = dict(each.split("=", 1) for each in sys.argv[1:])
    found: dict[str, dict[str, list[int]]] = {"classes": {}, "types": {}}
    for number, folder in enumerate(releases.values()):
        for kind, names in (("classes", compatible(Path(folder))), ("types", types(Path(folder)))):
            for name in names:
                found[kind].setdefault(name, []).append(number)
    text = '{\n  "schema": 1,\n  "releases": ' + json.dumps(list(releases))
    for kind, table in found.items():
        rows = [f"    {json.dumps(name)}: {json.dumps(table[name])}" for name in sorted(table)]
        text += f',\n  "{kind}": {{\n' + ",\n".join(rows) + "\n  }"
    (SUPPORT / "transformers.json").write_text(text + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
