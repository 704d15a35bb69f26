"""Is a model on this machine already? Looked for where we, and both hubs' own libraries, put them."""

from __future__ import annotations

import os
from pathlib import Path

from gaudi_launch.models.hub_files import read_record
from gaudi_launch.paths import data_dir


def folder_for(repo: str) -> Path:
    """Where a pull of this repository goes without --to."""
    return data_dir() / "models" / repo


def find_local(repo: str) -> Path | None:
    """A whole local copy of ``owner/name``: ours, else the Hugging Face cache's, else ModelScope's."""
    ours = folder_for(repo)
    record = read_record(ours)
    if record is not None and record.whole and record.intact(ours) and (ours / "config.json").is_file():
        return ours
    for folder in (*_hf_snapshots(repo), *_ms_folders(repo)):
        if (folder / "config.json").is_file() and not _unfinished(folder):
            return folder
    return None


def _hf_snapshots(repo: str) -> list[Path]:
    home = (
        os.environ.get("HF_HUB_CACHE")
        or Path(os.environ.get("HF_HOME", Path.home() / ".cache/huggingface")) / "hub"
    )
    base = Path(home) / f"models--{repo.replace('/', '--')}"
    try:
        revision = (base / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        return []
    return [base / "snapshots" / revision]


def _ms_folders(repo: str) -> list[Path]:
    home = Path(os.environ.get("MODELSCOPE_CACHE", Path.home() / ".cache/modelscope"))
    return [home / "hub" / "models" / repo, home / "models" / repo, home / "hub" / repo]


def _unfinished(folder: Path) -> bool:
    from gaudi_launch.models.weights import read_weights

    found = read_weights(folder)
    return not found.get("weight_bytes") or bool(found.get("files_missing"))
