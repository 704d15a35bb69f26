"""The part of a pull that talks to a hub, in a separate process.

A hang, a crash or a kill of it does not affect the launcher. Run as ``python -m
gaudi_launch.core.models.hub.child``: a request as one JSON line on stdin, answers as JSON lines on
stdout. ``{"do": "list", source, repo, revision, repo_type}`` answers ``{revision, files}``;
``{"do": "fetch", ..., target, files}`` fetches each file into the parts folder, verifies it, moves
it into place and answers ``{"done": path}``. A failure answers ``{"error": kind, "detail": text}``.
The libraries do the transfer.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.models.hub.file_choice import PARTS, digest_of
from gaudi_launch.core.models.hub.hub_error import HubError, classify


def _digest(sha256: str | None) -> str:
    """Return a digest with its algorithm; "" where the hub names none."""
    if not sha256:
        return ""
    return f"sha256:{sha256}"


def say(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)


# --- Hugging Face ---------------------------------------------------------------------------------


def _hf_list(request: dict[str, Any]) -> dict[str, Any]:
    from huggingface_hub import HfApi

    api = HfApi()
    repo, kind = request["repo"], request["repo_type"]
    info = api.repo_info(repo, repo_type=kind, revision=request["revision"] or None, timeout=30)
    files = []
    for entry in api.list_repo_tree(repo, repo_type=kind, revision=info.sha, recursive=True):
        size = getattr(entry, "size", None)
        if size is None:
            continue  # a folder
        lfs = getattr(entry, "lfs", None)
        sha256 = getattr(lfs, "sha256", None) or mapping(lfs).get("sha256")
        blob = getattr(entry, "blob_id", None)
        if sha256:
            digest = f"sha256:{sha256}"
        elif blob:
            digest = f"blob:{blob}"
        else:
            digest = ""
        files.append({"path": entry.path, "size": size, "digest": digest})
    return {"revision": info.sha, "files": files}


def _hf_fetch(request: dict[str, Any], path: str, size: int, part: Path) -> None:
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined, unused-ignore]

    url = hf_hub_url(
        request["repo"], path, repo_type=request["repo_type"], revision=request["revision"]
    )
    # a link planted under this name in a shared folder is not followed
    handle = os.open(
        part, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666
    )
    with os.fdopen(handle, "ab") as file:
        # snapshot_download restarts every file in a new process; this resumes where the last one
        # stopped
        http_get(url, file, resume_size=file.tell(), headers=build_hf_headers(), expected_size=size)


# --- ModelScope -----------------------------------------------------------------------------------


def _ms_list(request: dict[str, Any]) -> dict[str, Any]:
    from modelscope.hub.api import HubApi

    # the branch's commit is not returned here; each file's sha256 identifies the listing instead
    api = HubApi()
    revision = request["revision"] or "master"
    inner = getattr(api, "_api", None)
    files = []
    if inner is not None and hasattr(inner, "list_repo_files"):
        from modelscope_hub.constants import RepoType  # type: ignore[import-untyped, unused-ignore]

        kind = RepoType.MODEL
        if request["repo_type"] == "dataset":
            kind = RepoType.DATASET
        for entry in inner.list_repo_files(
            request["repo"], kind, revision=revision, recursive=True
        ):
            if getattr(entry, "type", "blob") == "tree":
                continue  # a folder
            sha256 = getattr(entry, "sha256", None)
            files.append(
                {
                    "path": entry.path,
                    "size": entry.size,
                    "digest": _digest(sha256),
                }
            )
    else:
        for row in api.get_model_files(request["repo"], revision=revision, recursive=True):
            if row.get("Type", "blob") == "blob":
                sha256 = row.get("Sha256")
                digest = _digest(sha256)
                files.append({"path": row["Path"], "size": row["Size"], "digest": digest})
    return {"revision": revision, "files": files}


def _ms_fetch(request: dict[str, Any], path: str, size: int, part: Path) -> None:
    from modelscope.hub.file_download import dataset_file_download, model_file_download

    # it keeps its own partial file below this folder and resumes it
    folder = part.parent
    download = model_file_download
    if request["repo_type"] == "dataset":
        download = dataset_file_download
    got = download(request["repo"], path, revision=request["revision"], local_dir=str(folder))
    Path(got).replace(part)


# --- both -----------------------------------------------------------------------------------------

_LIST = {"hf": _hf_list, "modelscope": _ms_list}
_FETCH = {"hf": _hf_fetch, "modelscope": _ms_fetch}


class _Hashing:
    """A sign of life while a large file is hashed."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, at: int) -> None:
        say(hashing=self._path, at=at)


def fetch(request: dict[str, Any]) -> None:
    """Fetch and verify every file of the request, smallest first."""
    target = Path(request["target"])
    for entry in sorted(request["files"], key=lambda entry: entry["size"]):
        path, size, digest = entry["path"], entry["size"], entry["digest"]
        final = target / path
        if _is_there(final, size, digest):
            say(done=path, size=size, digest=digest, mtime=final.stat().st_mtime_ns, in_place=True)
            continue
        part = target / PARTS / f"{path}.part"
        part.parent.mkdir(parents=True, exist_ok=True)
        for attempt in (1, 2):
            if part.exists() and part.stat().st_size > size:
                part.unlink()
            if size == 0:
                part.write_bytes(b"")
            else:
                _FETCH[request["source"]](request, path, size, part)
            kind = digest.partition(":")[0]
            found = ""
            if digest:
                found = digest_of(part, kind, _Hashing(path))
            if part.stat().st_size == size and found == digest:
                break
            part.unlink()
            if attempt == 2:
                raise HubError("changed", path)
        final.parent.mkdir(parents=True, exist_ok=True)
        part.replace(final)
        say(done=path, size=size, digest=digest, mtime=final.stat().st_mtime_ns)


def _is_there(final: Path, size: int, digest: str) -> bool:
    """Return True if a file without a record is in place.

    Another tool may have fetched it, or a pull that was killed before it wrote the record.
    """
    if not digest or not final.is_file() or final.stat().st_size != size:
        return False
    return digest_of(final, digest.partition(":")[0], _Hashing(final.name)) == digest


def main() -> None:
    request = json.loads(sys.stdin.readline())
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
    answers = sys.stdout
    try:
        # the libraries print bars and notes; stdout is for answers
        with contextlib.redirect_stdout(sys.stderr):
            result = _LIST[request["source"]](request) if request["do"] == "list" else None
        if result is not None:
            print(json.dumps(result), file=answers, flush=True)
        else:
            fetch(request)
    except Exception as error:
        found = classify(error)
        say(error=found.kind, detail=found.detail[:2000])
        sys.exit(1)


if __name__ == "__main__":
    main()
