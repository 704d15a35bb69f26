"""Build the site of the documentation in both languages from the pages of docs/.

    python scripts/docs_site.py [FOLDER]     build it into FOLDER (default: build/site)

mkdocs reads a copy, in which a Chinese page has the name that its plugin expects, and the page
about Python has the docstrings of the API. Any warning ends the build. It needs the extra ``docs``,
and no network.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
_CHINESE = re.compile(r"\(([\w/.-]+)_zh\.md(#[^)]*)?\)")
# the theme loads it from there
_SHIM, _OWN_SHIM = "https://unpkg.com/iframe-worker/shim", "assets/iframe-worker.js"
_LOADED = re.compile(
    r'(?:src|href)="(https?:[^"]+\.(?:js|css|woff2?)|https?://(?:unpkg|fonts)[^"]*)"'
)
_API = ("gaudi_launch.plan", "gaudi_launch.serve", "gaudi_launch.LaunchOptions")
_TITLES = {"serving.md": "Functions", "serving_zh.md": "函数"}


def main() -> int:
    """Build the site; return 1 where a page would load something from a network."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else TOP / "build" / "site").absolute()
    with tempfile.TemporaryDirectory() as folder:
        stage(Path(folder))
        words = ["build", "--strict", "--quiet", "--config-file", f"{folder}/mkdocs.yml"]
        words = [sys.executable, "-m", "mkdocs", *words, "--site-dir", str(target)]
        if status := subprocess.run(words, check=False).returncode:
            return status
    shutil.copy(TOP / "docs" / "site" / "iframe-worker.js", target / _OWN_SHIM)
    _split_search(target)
    for page in sorted(target.rglob("*.html")):
        up = "../" * (len(page.relative_to(target).parts) - 1)
        content = page.read_text(encoding="utf-8").replace(_SHIM, up + _OWN_SHIM)
        # where the page's own index of the search is
        content = content.replace(f'"base": "{up[:-1]}"', '"base": "."')
        page.write_text(content, encoding="utf-8")
        if loaded := _LOADED.search(content):
            print(f"{page} loads {loaded[1]}", file=sys.stderr)
            return 1
    return 0


def _split_search(target: Path) -> None:
    """Give each language a separate index; mkdocs writes one for all pages."""
    index = json.loads((target / "search" / "search_index.json").read_text(encoding="utf-8"))
    found: dict[str, list[dict[str, str]]] = {"": [], "zh/": []}
    for entry in index["docs"]:
        place = "zh/" if entry["location"].startswith("zh/") else ""
        found[place].append({**entry, "location": entry["location"].removeprefix(place)})
    for place, entries in found.items():
        config = {**index["config"], "lang": [place.rstrip("/") or "en"]}
        content = json.dumps({"config": config, "docs": entries}, ensure_ascii=False)
        folder = target / place / "search"
        folder.mkdir(exist_ok=True)
        (folder / "search_index.json").write_text(content, encoding="utf-8")
        (folder / "search_index.js").write_text(f"var __index = {content}", encoding="utf-8")


def stage(folder: Path) -> None:
    """Write the configuration and the pages as mkdocs reads them."""
    shutil.copy(TOP / "docs" / "site" / "mkdocs.yml", folder / "mkdocs.yml")
    pages = folder / "docs"
    pages.mkdir()
    (pages / "decisions").mkdir()
    for page in sorted((TOP / "docs").rglob("*.md")):
        name = re.sub(r"_zh\.md$", ".zh.md", page.relative_to(TOP / "docs").as_posix())
        (pages / name).write_text(_staged(page), encoding="utf-8")
    for picture in (TOP / "docs").glob("*.svg"):
        shutil.copy(picture, pages)


def _staged(page: Path) -> str:
    content = _CHINESE.sub(r"(\1.md\2)", page.read_text(encoding="utf-8"))
    if page.name in _TITLES:
        names = "".join(f"\n\n::: {name}" for name in _API)
        content += f"\n\n## {_TITLES[page.name]}{names}\n"
    return content


if __name__ == "__main__":
    sys.exit(main())
