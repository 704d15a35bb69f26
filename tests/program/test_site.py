"""The site: built without a network and without a warning, each language with its own search."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.places import TOP


def test_the_site_is_built_without_a_network(tmp_path: Path) -> None:
    nowhere = dict.fromkeys(
        ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://[::1]:9"
    )
    words = [sys.executable, str(TOP / "scripts" / "docs_site.py"), str(tmp_path / "site")]
    done = subprocess.run(
        words, env={**os.environ, **nowhere}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    pages = [path.relative_to(TOP / "docs") for path in (TOP / "docs").rglob("*.md")]
    english = {f"{path.with_suffix('')}" for path in pages if "_zh" not in path.stem}
    for place in ("", "zh"):
        folder = tmp_path / "site" / place
        assert [page for page in english if not (folder / f"{page}.html").is_file()] == []
        index = json.loads((folder / "search" / "search_index.json").read_text(encoding="utf-8"))
        found = {entry["location"].partition(".html")[0] for entry in index["docs"]}
        assert found == english
    reference = (tmp_path / "site" / "serving.html").read_text(encoding="utf-8")
    assert "Return the plan that" in reference
