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
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.models.hub.file_choice import PARTS, digest_of

# the variable with the token of each hub, and the command that keeps one
TOKENS = {
    "hf": {"token": "HF_TOKEN", "login": "hf auth login"},
    "modelscope": {"token": "MODELSCOPE_API_TOKEN", "login": "modelscope login"},
}


def _digest(sha256: str | None) -> str:
    """Return a digest with its algorithm; "" where the hub names none."""
    if not sha256:
        return ""
    return f"sha256:{sha256}"


class HubError(Exception):
    """An error of a hub, by kind.

    The kinds are offline, no_repo, no_revision, no_file, gated, token, busy, changed, disk and
    other.
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


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


_KIND_OF_NAME = {
    # a subclass of RepositoryNotFoundError in huggingface_hub
    "GatedRepoError": "gated",
    "OfflineModeIsEnabled": "offline_mode",
    "RepositoryNotFoundError": "no_repo",
    "NotExistError": "no_repo",
    "HubRepoNotFoundError": "no_repo",
    "NotFoundError": "no_repo",
    "RevisionNotFoundError": "no_revision",
}


# the hub's header X-Error-Code (huggingface_hub 1.0:utils/_http.py, hf_raise_for_status)
_KIND_OF_CODE = {
    "GatedRepo": "gated",
    "RepoNotFound": "no_repo",
    "RevisionNotFound": "no_revision",
    "EntryNotFound": "no_file",
}
# the hub's answer to a token that it does not know (ibid.)
_BAD_TOKEN = "Invalid credentials in Authorization header"


_KIND_OF_STATUS = {401: "gated", 403: "gated", 404: "no_repo", 429: "busy"}


_NETWORK = re.compile("Connect|Timeout|Resolve|Network|Offline|RemoteDisconnected|MaxRetry")


def classify(error: BaseException) -> HubError:
    """Return the kind of a library's error, by its name and its HTTP status.

    Error classes move between releases of the libraries.
    """
    if isinstance(error, HubError):
        return error
    name, text = type(error).__name__, str(error)
    if isinstance(error, OSError) and error.errno in (28, 122):
        return HubError("disk", text)
    answer = getattr(error, "response", None)
    headers = getattr(answer, "headers", None) or {}
    status = getattr(answer, "status_code", None)
    if status == 401 and _BAD_TOKEN in f"{headers.get('X-Error-Message')} {text}":
        return HubError("token", text)
    # By name first: the Hub answers 401 for a repository that does not exist (huggingface_hub's
    # RepositoryNotFoundError), and the text contains ".../revision/..." whenever a revision was
    # requested.
    if name in _KIND_OF_NAME:
        return HubError(_KIND_OF_NAME[name], text)
    if headers.get("X-Error-Code") in _KIND_OF_CODE:
        return HubError(_KIND_OF_CODE[headers["X-Error-Code"]], text)
    if status == 404 and "revision" in text.lower():
        return HubError("no_revision", text)
    if status in _KIND_OF_STATUS:
        return HubError(_KIND_OF_STATUS[status], text)
    if any(
        isinstance(each, ConnectionError) or _NETWORK.search(type(each).__name__)
        for each in _causes(error)
    ):
        return HubError("offline", reason_of(error))
    return HubError("other", f"{name}: {text}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that it follows from."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


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


_MOST_WRAPS = 12


def reason_of(error: BaseException) -> str:
    """Return the system's text of the innermost cause (``Connection refused``).

    Without one, return ``timed out`` or the outermost error's class.
    """
    found = list(_wrapped(error))
    for each in reversed(found):
        if isinstance(each, OSError) and each.strerror:
            return each.strerror
    if any("timeout" in type(each).__name__.lower() for each in found):
        return "timed out"
    return type(error).__name__


def _wrapped(error: BaseException) -> Iterator[BaseException]:
    """Return the error and those that it wraps, outermost first.

    They are its cause, context, reason (urllib3) or first argument.
    """
    waiting: list[BaseException] = [error]
    seen: list[BaseException] = []
    while waiting and len(seen) < _MOST_WRAPS:
        each = waiting.pop(0)
        if each in seen:
            continue
        seen.append(each)
        yield each
        inner = (each.__cause__, each.__context__, getattr(each, "reason", None), *each.args[:1])
        waiting += [one for one in inner if isinstance(one, BaseException)]


if __name__ == "__main__":
    main()
