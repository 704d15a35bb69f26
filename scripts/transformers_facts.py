#!/usr/bin/env python3
"""Write the classes of transformers that vLLM can use without a native class.

    transformers_facts.py VERSION=FOLDER ...

``FOLDER`` has ``transformers/models`` of that release. A class counts where its
``is_backend_compatible`` is true: ``_supports_attention_backend`` is True in it or in a base of the
same file. Writes ``profiles/engines/support/transformers.json``: the numbers of the releases by
class.
"""

from __future__ import annotations

import ast
import json
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
    classes: dict[str, list[int]] = {}
    for number, folder in enumerate(releases.values()):
        for name in compatible(Path(folder)):
            classes.setdefault(name, []).append(number)
    rows = [f"    {json.dumps(name)}: {json.dumps(classes[name])}" for name in sorted(classes)]
    text = '{\n  "schema": 1,\n  "releases": ' + json.dumps(list(releases)) + ',\n  "classes": {\n'
    (SUPPORT / "transformers.json").write_text(
        text + ",\n".join(rows) + "\n  }\n}\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
