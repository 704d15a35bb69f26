"""Name the sentences whose English text changed while the Chinese one did not.

tests/data/translations.json has for each id a hash of the English text that the Chinese text was
made from, and a hash of that Chinese text. Both are of the templates, so that a new form of a
placeholder counts as a change.

    python scripts/translations.py                list the stale ids
    python scripts/translations.py --write        record all sentences except the stale ones
    python scripts/translations.py --write ID...  record these, too: their Chinese text still fits
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
PACKAGE = TOP / "gaudi_launch"
RECORD = TOP / "tests" / "data" / "translations.json"

Record = Mapping[str, Mapping[str, str]]


def recorded() -> Record:
    """Return the record: by catalogue folder and id, both hashes in one text."""
    found: Record = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def measured() -> Record:
    """Return what the record would be for the present catalogues."""
    found = {}
    for path in sorted(PACKAGE.rglob("en.json")):
        english = json.loads(path.read_text(encoding="utf-8"))
        chinese = json.loads(path.with_name("zh.json").read_text(encoding="utf-8"))
        found[path.parent.relative_to(PACKAGE).as_posix()] = {
            id: f"{_hash(english[id])} {_hash(chinese.get(id, ''))}" for id in sorted(english)
        }
    return found


def _hash(template: str) -> str:
    return sha256(template.encode()).hexdigest()[:8]


def _flat(record: Record) -> dict[str, str]:
    return {id: hashes for sentences in record.values() for id, hashes in sentences.items()}


def stale(now: Record, before: Record) -> list[str]:
    """Return the ids with another English text and the same Chinese text."""
    old = _flat(before)
    found = []
    for id, hashes in _flat(now).items():
        english, chinese = hashes.split()
        english_then, chinese_then = old.get(id, hashes).split()
        if english != english_then and chinese == chinese_then:
            found.append(id)
    return found


def updated(now: Record, before: Record, checked: Collection[str] = ()) -> Record:
    """Return the new record: a stale id keeps its hashes until it is checked."""
    kept = _flat(before)
    left = set(stale(now, before)).difference(checked)
    return {
        folder: {id: kept[id] if id in left else hashes for id, hashes in sentences.items()}
        for folder, sentences in now.items()
    }


def main() -> int:
    reader = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    reader.add_argument("--write", action="store_true")
    reader.add_argument("checked", nargs="*", metavar="ID")
    options = reader.parse_args()
    now = measured()
    record = recorded() if RECORD.exists() else {}
    if options.write:
        record = updated(now, record, options.checked)
        RECORD.write_text(json.dumps(record, indent=0) + "\n", encoding="utf-8")
    left = stale(now, record)
    print("".join(f"{id}\n" for id in left), end="")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
