"""Read JSON of others with the standard library alone."""

import json
from typing import Any


def plain_json(text: str | bytes) -> Any:
    """Return the document of a JSON text.

    Raises ValueError for what `core.base.reader.parse_json` refuses. Files that run without the
    package have this one inserted (`core.base.reader.standalone`), those of Ray a copy
    (tests/core/base/test_reader.py compares them).
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a repeated key")
        return dict(pairs)

    if len(text) > 1 << 26:
        raise ValueError("too large")
    try:
        document = json.loads(text, object_pairs_hook=once)
        # NaN, infinities and lone surrogates
        json.dumps(document, allow_nan=False, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("too deep") from None
    level = [document]
    for _ in range(65):
        if any(isinstance(each, int) and abs(each) >= 2**64 for each in level):
            raise ValueError("a number of more than 64 bits")
        lists = [each for each in level if isinstance(each, list)]
        lists += [list(each.values()) for each in level if isinstance(each, dict)]
        level = [each for values in lists for each in values]
        if not level:
            return document
    raise ValueError("too deep")
