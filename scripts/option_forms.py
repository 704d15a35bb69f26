"""Write the forms of options' values into the facts of engine releases.

    python scripts/option_forms.py PYTHON VLLM ENGINE-VERSION ...

VLLM is a folder with ``vllm/`` of these releases, PYTHON an interpreter with torch and the packages
that it imports. Its parser converts samples, and a form is known by those that it takes. Options,
values and parsers are replaced, too: those of the forks were only read before.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from gaudi_launch.core.engines.facts.reading import add_options, render
from gaudi_launch.core.engines.version_facts import plain_option

TOP = Path(__file__).resolve().parents[1]
ASK = TOP / "gaudi_launch" / "core" / "engines" / "runtime" / "ask_options.py"
SUPPORT = TOP / "profiles" / "engines" / "support"
# a value of each form, and the pattern of all that have it
SAMPLES = {
    "1": "[+-]?[0-9]+",
    "0.5": r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?",
    "8k": r"[0-9]+(\.[0-9]+)?[kmgtKMGT]",
    "auto": "auto",
    "None": "(None)?",
    "{}": r"(?s:\s*\{.*\}\s*)",
    "image=1": r"\s*\w+\s*=\s*[+-]?[0-9]+\s*(,\s*\w+\s*=\s*[+-]?[0-9]+\s*)*",
    "[]": r'(?s:\s*(\[.*\]|".*"|true|false|null)\s*)',
    "text": "(?s:.*)",
}
# started in the engine's interpreter with ASK, SAMPLES and VLLM
CHILD = """
import importlib.util, json, sys

spec = importlib.util.spec_from_file_location("ask_options", sys.argv[1])
ask = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ask)
before, samples = ask.row_of, json.loads(sys.argv[2])

def taken(action):
    convert = action.container._registry_get("type", action.type, action.type)
    for text in samples:
        try:
            convert(text)
            yield text
        except Exception:
            pass

def row_of(action):
    needs = action.nargs in (None, "+")
    return {**before(action), **({"taken": list(taken(action))} if needs else {})}

ask.row_of = row_of
sys.path.insert(0, sys.argv[3])
answers, sys.stdout = sys.stdout, sys.stderr
print("\\n" + json.dumps(ask.report()), file=answers)
"""


def main(python: str, vllm: str, releases: list[str]) -> None:
    """Write the files."""
    words = [python, "-c", CHILD, str(ASK), json.dumps([*SAMPLES]), vllm]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    for row in found["options"].values():
        taken = row.pop("taken", [])
        # a parser that takes a text takes all others
        patterns = [SAMPLES[each] for each in (["text"] if "text" in taken else taken)]
        if patterns:
            # JSON's parser takes a number, too, the check after it only an object
            shown = next((each for each in ("text", "{}") if each in taken), taken[0])
            row["form"] = ["|".join(patterns), shown]
    for release in releases:
        path = SUPPORT / f"{release}.json"
        document = json.loads(path.read_text(encoding="utf-8"))
        known = {plain_option(name) for name in document["options"]}
        print(release, "other options:", sorted(known ^ {*found["options"]}))
        add_options(document, found)
        path.write_text(render(document), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
