"""Find a model on this machine, in the folders of this program and of the hubs."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from gaudi_launch.core.base.paths import data_dir
from gaudi_launch.core.base.reader import read_json
from gaudi_launch.core.models.hub.record import read_record

_log = logging.getLogger(__name__)

# what hubs call the branch that a name without a revision means
_DEFAULT_BRANCHES = ("", "main", "master")


def folder_for(repo: str, revision: str = "", repo_type: str = "model") -> Path:
    """Return the target of a pull of this repository without --to.

    Another revision has a separate folder.
    """
    folder = data_dir() / f"{repo_type}s" / repo
    if revision in _DEFAULT_BRANCHES:
        return folder
    return folder.with_name(f"{folder.name}@{revision.replace('/', '-')}")


def find_local(repo: str, revision: str = "", *, code: bool = False) -> Path | None:
    """Return a complete local copy of ``owner/name``, None without one.

    Searched in this order: this program's folder, the Hugging Face cache, ModelScope's. ``code``:
    one that also has the Python files its config.json names.
    """
    ours = folder_for(repo, revision)
    record = read_record(ours)
    if record is not None and record.whole and record.intact(ours) and _usable(ours, code):
        return ours
    for folder in _cached(repo, revision):
        if _usable(folder, code) and not _unfinished(folder):
            return folder
    return None


def find_config(repo: str, revision: str = "") -> Path | None:
    """Return a local folder with config.json of ``owner/name``, complete or not."""
    folders = (folder_for(repo, revision), *_cached(repo, revision))
    return next((folder for folder in folders if _usable(folder, code=False)), None)


def _cached(repo: str, revision: str) -> list[Path]:
    """Return the folders in which the hubs' libraries keep this model."""
    folders = _hf_snapshots(repo, revision)
    if revision in _DEFAULT_BRANCHES:
        home = Path(os.environ.get("MODELSCOPE_CACHE", Path.home() / ".cache/modelscope"))
        folders += [home / "hub" / "models" / repo, home / "models" / repo, home / "hub" / repo]
    return folders


def _usable(folder: Path, code: bool) -> bool:
    return (folder / "config.json").is_file() and not (code and _lacks_code(folder))


def _lacks_code(folder: Path) -> bool:
    """Return True if config.json names Python files (auto_map) that are missing.

    Those of another repository (``owner/name--module.Class``) are fetched by the engine.
    """
    try:
        named = read_json(folder / "config.json", as_engine=True).get("auto_map", {})
        words = [
            word
            for value in named.values()
            for word in (value if isinstance(value, list) else [value])
        ]
    except (OSError, ValueError, AttributeError) as error:
        _log.debug("config.json is not read: %s", error)
        return False
    modules = {str(word).rpartition(".")[0] for word in words if word and "--" not in str(word)}
    return not all((folder / f"{module}.py").is_file() for module in modules if module)


def _hf_snapshots(repo: str, revision: str) -> list[Path]:
    home = (
        os.environ.get("HF_HUB_CACHE")
        or Path(os.environ.get("HF_HOME", Path.home() / ".cache/huggingface")) / "hub"
    )
    base = Path(home) / f"models--{repo.replace('/', '--')}"
    name = "main" if revision in _DEFAULT_BRANCHES else revision
    try:
        commit = (base / "refs" / name).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        _log.debug("a reference has no commit: %s", error)
        commit = revision
    return [base / "snapshots" / commit] if commit else []


def _unfinished(folder: Path) -> bool:
    from gaudi_launch.core.models.weights import read_weights

    found = read_weights(folder)
    return not found.get("weight_bytes") or bool(found.get("files_missing"))
