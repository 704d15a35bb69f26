"""Choose the files of a repository that serving needs, and record them. Pure."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from pathlib import Path

from gaudi_launch.core.models.folder_lock import NAME as LOCK
from gaudi_launch.core.models.hub.record import RECORD, RemoteFile

PARTS = ".gaudi-launch-parts"

_WEIGHTS = "*.safetensors"
_TELL_SECONDS = 5.0
_PICKLED = ("*.bin", "*.pt", "*.pth")
# formats of other frameworks, copies in another layout, pictures
_NEVER = (
    *(
        "*.h5",
        "*.msgpack",
        "*.ot",
        "*.onnx",
        "*.onnx_data",
        "*.gguf",
        "*.ggml",
        "*.tflite",
        "*.mlmodel",
        "*.png",
    ),
    *(
        "*.jpg",
        "*.jpeg",
        "*.gif",
        "*.mp4",
        "*.pdf",
        ".gitattributes",
        ".gitignore",
        "*.md",
        "LICENSE*",
        "*.index",
    ),
    *(
        "onnx/*",
        "original/*",
        "metal/*",
        "openvino/*",
        "coreml/*",
        "figures/*",
        "assets/*",
        "runs/*",
    ),
)


def choose(
    files: Iterable[RemoteFile], *, everything: bool = False, code: bool = False
) -> list[RemoteFile]:
    """Return the files that serving needs.

    That is the weights once (safetensors before pickles, shards before one consolidated copy),
    tokenizer and configuration; Python files only with ``code``.
    """
    known = sorted(files, key=lambda file: file.path)
    if everything:
        return known
    tensors = [file.path for file in known if fnmatch(file.path, _WEIGHTS)]
    sharded = any("-of-" in path for path in tensors)
    return [file for file in known if _needed(file.path, bool(tensors), sharded, code)]


def _needed(path: str, tensors: bool, sharded: bool, code: bool) -> bool:
    name = path.rsplit("/", 1)[-1]
    if any(fnmatch(path, pattern) or fnmatch(name, pattern) for pattern in _NEVER):
        return False
    if name.endswith(".py"):
        return code
    if tensors and any(fnmatch(name, pattern) for pattern in _PICKLED):
        return False
    if sharded and fnmatch(name, "consolidated*"):
        return False
    return not (tensors and name == "pytorch_model.bin.index.json")


def safe(path: str) -> bool:
    """Return True if a hub's path may be written below a folder."""
    parts = Path(path).parts
    return (
        bool(parts)
        and not Path(path).is_absolute()
        and ".." not in parts
        and parts[0] not in (RECORD, PARTS, LOCK)
    )


def digest_of(path: Path, kind: str, tell: Callable[[int], None] = lambda at: None) -> str:
    """Return a file's digest in the form of `RemoteFile`; ``kind`` is sha256 or blob.

    ``tell`` gets the number of bytes read from time to time: a large file takes minutes.
    """
    if kind == "blob":
        # git's name of a file: sha1 of its header and its content
        running = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    else:
        running = hashlib.sha256()
    with path.open("rb") as file:
        heard = time.monotonic()
        while block := file.read(1 << 20):
            running.update(block)
            if time.monotonic() - heard > _TELL_SECONDS:
                heard = time.monotonic()
                tell(file.tell())
    return f"{kind}:{running.hexdigest()}"
