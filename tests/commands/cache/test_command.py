"""The cache commands as a user runs them, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from tests.support.cli import reading
from tests.support.recipes import BUCKETS, PARTS, fill

KEY = PARTS.key
MACHINE = ("--machine", "simulated:hls2")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill(tmp_path / "recipes")
    return tmp_path / "recipes"


@pytest.fixture
def call(root: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a cache command on the filled root: (exit code, stdout, stderr)."""

    def run_it(*words: str) -> tuple[int, str, str]:
        code = run(["cache", *words, "-c", str(root)])
        out, err = capsys.readouterr()
        return code, out, err

    return run_it


def test_list_for_people_and_programs(call: Any, root: Path) -> None:
    code, out, _ = call("list", "--all", *MACHINE)
    assert code == 0 and KEY in out and "Qwen2-72B-Instruct" in out and "vllm-fork@1.21" in out
    code, out, _ = call("list", "--json", *MACHINE)
    (row,) = json.loads(out)["entries"]
    assert (row["key"], row["files"], row["bytes"], row["graphs"], row["cards"]) == (
        KEY,
        4,
        1000,
        4,
        4,
    )
    assert [d["name"] for d in row["differences"]] in ([], ["driver"])


def test_show_gives_the_parts_in_words(call: Any) -> None:
    code, out, _ = call("show", KEY[:5])
    assert code == 0 and "tensor parallel" in out and "VLLM_FP32_SOFTMAX" in out
    shown = json.loads(call("show", KEY[:5], "--json")[1])
    assert (shown["schema"], shown["key"], shown["buckets"]["prompt"]) == (1, KEY, BUCKETS.prompt)


def test_verify_finds_damage(call: Any, root: Path) -> None:
    assert call("verify")[0] == 0
    (root / KEY / "recipe_0.recipe").write_bytes(b"")
    code, out, _ = call("verify", KEY, "--quick")
    assert code == 1 and "damaged" in out and "recipe_0.recipe" in out
    code, out, _ = call("verify", "--json")
    (verdict,) = json.loads(out)["keys"]
    assert (code, verdict["empty"]) == (1, ["recipe_0.recipe"])


def test_prune_shows_first_and_removes_only_with_yes(call: Any, root: Path) -> None:
    code, out, _ = call("prune", "--max-size", "100")
    assert code == 0 and KEY in out and "--yes" in out and (root / KEY).is_dir()
    code, out, _ = call("prune", "--max-size", "100", "--yes", "--json")
    assert (code, json.loads(out)["removed"]) == (0, [KEY])
    assert not (root / KEY).exists() and "Nothing" in call("prune", "--older", "1d")[1]


def test_export_and_import_on_another_root(call: Any, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "key.tar.zst"
    assert call("export", KEY, str(file))[0] == 0 and file.stat().st_size > 0
    other = tmp_path / "other"
    assert run(["cache", "import", str(file), "--force", "-c", str(other), *MACHINE]) == 0
    assert sorted(p.name for p in (other / KEY).iterdir()) == sorted(
        p.name for p in (root / KEY).iterdir()
    )


def test_sync_prints_the_command(call: Any) -> None:
    code, out, _ = call("sync", KEY, "me@host:/data")
    assert code == 0 and out.startswith("rsync -a ") and out.endswith("me@host:/data/\n")


def test_adopt_writes_a_ledger_beside_flat_recipes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    (flat / "a.recipe").write_bytes(b"a")
    words = [
        *("-c", str(flat), "-w", "/models/Qwen2-72B-Instruct", "-n", "4"),
        *("--engine", "vllm-fork@1.21", *MACHINE),
    ]
    adopted = reading(capsys, "cache", "adopt", *words)
    assert adopted["files"] == 1 and (flat / f"{adopted['key']}.json").is_file()
    assert (flat / "a.recipe").read_bytes() == b"a"


@pytest.mark.parametrize(
    ("words", "code", "id"),
    [
        (("show", "zzzz"), 2, "cache.no_such_key"),
        (("prune",), 2, "cache.prune_nothing_asked"),
        (("prune", "--max-size", "lots"), 2, "cache.bad_size"),
        (("prune", "--older", "x"), 2, "cache.bad_age"),
        (("export", KEY, "/nonexistent/x.tar.zst"), 1, "cache.export_failed"),
        (("import", "/nonexistent/x.tar.zst", *MACHINE), 1, "cache.import_failed"),
        (("sync", KEY, "-e"), 2, "common.usage"),
    ],
)
def test_wrong_words_are_sentences(call: Any, words: tuple[str, ...], code: int, id: str) -> None:
    got, out, err = call(*words)
    assert got == code and out == "" and len(err.strip().splitlines()) == 1
    if "--json" not in words and words[0] not in ("sync",):
        got, out, _ = call(*words, "--json")
        assert (got, json.loads(out)["error"]["id"]) == (code, id)
