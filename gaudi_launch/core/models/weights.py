"""Read weight files by their headers: parameters, bytes, missing shards."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import struct
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.reader import parse_json, read_json
from gaudi_launch.core.base.yaml_reader import shipped

_log = logging.getLogger(__name__)

# safetensors: eight bytes with the header's length, then that much JSON (docs: safetensors format)
_MOST_HEADER_BYTES = 100 << 20
# no file system has larger files, so no tensor has more elements
_MOST_SIZE = 2**63
_LAYER = re.compile(r"model\.layers\.([0-9]{1,6})\.")


# the matrices with a row for each token of a language model (vllm-project/vllm 0.26.0:
# vllm/model_executor/layers/vocab_parallel_embedding.py weight_loader compares their rows)
_VOCABULARY = frozenset(
    f"{prefix}{name}.weight"
    for prefix in (
        "",
        "language_model.",
        "model.language_model.",
        "language_model.model.",
        "model.",
    )
    for name in ("embed_tokens", "lm_head")
)


class HeaderError(Exception):
    """A safetensors file whose header cannot be read; the text says why."""


def read_header(path: Path) -> tuple[Mapping[str, Any], int]:
    """Return the header of one safetensors file and the expected length in bytes.

    Raises HeaderError, OSError.
    """
    with path.open("rb") as file:
        first = file.read(8)
        if len(first) < 8:
            raise HeaderError("shorter than its header")
        (length,) = struct.unpack("<Q", first)
        if length > _MOST_HEADER_BYTES:
            raise HeaderError(f"a header of {length} bytes")
        text = file.read(length)
    if len(text) < length:
        raise HeaderError("shorter than its header")
    return parse_header(text)


def parse_header(text: bytes) -> tuple[Mapping[str, Any], int]:
    """Return a safetensors header and the expected length of its file.

    Raises HeaderError.
    """
    try:
        header = parse_json(text, _MOST_HEADER_BYTES)
    except ValueError:
        raise HeaderError("its header is not JSON") from None
    if not isinstance(header, dict):
        raise HeaderError("its header is not a JSON object")
    tensors = [entry for name, entry in header.items() if name != "__metadata__"]
    if not all(_is_tensor(entry) for entry in tensors):
        raise HeaderError("its header has an entry that is not a tensor")
    data = max((entry["data_offsets"][1] for entry in tensors), default=0)
    return header, 8 + len(text) + data


def _is_tensor(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    offsets, shape = entry.get("data_offsets"), entry.get("shape")
    if not (
        isinstance(offsets, list)
        and len(offsets) == 2
        and all(_is_size(offset) for offset in offsets)
    ):
        return False
    if (
        offsets[0] > offsets[1]
        or not isinstance(shape, list)
        or not all(_is_size(size) for size in shape)
    ):
        return False
    # safetensors' smallest types have four bits; awq and gptq pack more into theirs
    return prod(shape) < _MOST_SIZE


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_SIZE


def count_parameters(header: Mapping[str, Any], bits: int = 4) -> int:
    """Return the weights in one file, without scales and zero points.

    An int32 of a ``qweight`` (awq, gptq) contains 32 / ``bits`` weights; a byte without a sign
    contains two of four bits (mxfp4: transformers 4.55 integrations/mxfp4.py; nvfp4 packs alike).
    """
    total = 0
    for name, entry in header.items():
        if name == "__metadata__" or is_scale(name):
            continue
        total += prod(entry["shape"]) * _weights_each(name, entry.get("dtype"), bits)
    return total


def _weights_each(name: str, dtype: object, bits: int) -> int:
    """Return the number of weights in one element of a tensor."""
    if name.endswith("qweight") and dtype == "I32":
        return 32 // bits
    return 2 if dtype == "U8" else 1


def is_scale(name: str) -> bool:
    """Return True for a scale or index of quantised weights."""
    return name.endswith(
        ("_scale", "_scale_inv", "_scales", ".scales", ".qzeros", ".g_idx", "_zero_point")
    )


# what engines look for, and what of it is not loaded
# (HabanaAI/vllm-fork@habana_main:vllm/model_executor/model_loader/{loader,weight_utils}.py)
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_NO_WEIGHTS = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")


def count_unloaded(header: Mapping[str, Any], layers: int) -> int:
    """Return the bytes of layers numbered ``layers`` and up: multi-token prediction.

    The engines skip them on loading
    (HabanaAI/vllm-fork@aice/v1.22.0:vllm/model_executor/models/deepseek_v2.py, glm4_moe.py:
    spec_layer).
    """
    return sum(
        entry["data_offsets"][1] - entry["data_offsets"][0]
        for name, entry in header.items()
        if (found := _LAYER.match(name)) and int(found[1]) >= layers
    )


def read_weights(folder: Path, bits: int = 4, layers: int | None = None) -> dict[str, Any]:
    """Return the facts of a folder's weights, as fields of `Model`.

    ``parameters``, ``weight_bytes`` (None without weights), ``unloaded_bytes``, ``files_missing``:
    shards that the index names and the folder lacks, and truncated (``NAME (truncated)``) or
    damaged ones (``NAME (why)``), ``vocab_rows``.

    While shards are missing, the index gives the bytes of all of them, but the number of parameters
    is unknown. Raises LaunchError (MODEL) for an index that cannot be read.
    """
    missing: list[str] = []
    indexed, promised = _index(folder)
    try:
        present = {path.name for path in folder.iterdir() if path.suffix == ".safetensors"}
    except OSError as error:
        _log.debug("the folder is not read: %s", error)
        return {"parameters": None, "weight_bytes": None, "unloaded_bytes": 0, "files_missing": ()}
    # an index names the shards that are loaded; others (consolidated copies) are not
    names = indexed or present
    parameters = total = unloaded = read = 0
    rows: int | None = None
    for name in sorted(names):
        if name not in present:
            missing.append(name)
            continue
        path = folder / name
        try:
            header, length = read_header(path)
            size = path.stat().st_size
        except HeaderError as error:
            short = "shorter" in str(error)
            missing.append(f"{name} ({'truncated' if short else error})")
            continue
        except OSError as error:
            missing.append(f"{name} ({error.strerror})")
            continue
        read += 1
        if size < length:
            missing.append(f"{name} (truncated)")
        rows = rows or _vocab_rows(header)
        parameters += count_parameters(header, bits)
        unloaded += count_unloaded(header, layers) if layers else 0
        total += max(size, length)
    if promised and read < len(names):
        parameters, total, unloaded = 0, promised, 0
    # of the older format, which has no sizes to read
    other = sum(path.stat().st_size for path in folder.glob("*.bin") if path.is_file())
    return {
        "parameters": parameters or None,
        "weight_bytes": total or other or None,
        "unloaded_bytes": unloaded,
        "files_missing": tuple(missing),
        "vocab_rows": rows,
    }


def _vocab_rows(header: Mapping[str, Any]) -> int | None:
    """Return the rows of the embedding or the output layer; None without a plain one."""
    for name in sorted(_VOCABULARY & header.keys()):
        shape, dtype = header[name]["shape"], header[name]["dtype"]
        if len(shape) == 2 and str(dtype).startswith(("F", "BF")):
            return int(shape[0])
    return None


def _index(folder: Path) -> tuple[set[str], int]:
    """Return the shards that the index names and the bytes of all their tensors.

    The result is empty without an index.
    """
    path = folder / "model.safetensors.index.json"
    try:
        document = read_json(path)
        total = (document.get("metadata") or {}).get("total_size", 0)
        return {str(name) for name in document["weight_map"].values()}, int(total) if _is_size(
            total
        ) else 0
    except FileNotFoundError:
        return set(), 0
    except OSError as error:
        why = error.strerror or ""
    except ValueError as error:
        why = str(error)
    except (KeyError, AttributeError, TypeError):
        why = "no weight_map in it"
    raise LaunchError("models.bad_config", ExitCode.MODEL, path=str(path), why=why)


def has_weights(folder: Path) -> bool:
    """Return whether the folder has a file that an engine loads weights from."""
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return False
    return any(name.endswith(_WEIGHT_SUFFIXES) and name not in _NO_WEIGHTS for name in names)


# the file that most models have, named where all of these are missing
TOKENIZER = "tokenizer.json"
# the vocabularies that tokenizers load (transformers 5.19: VOCAB_FILES_NAMES of its tokenizers;
# mistral_common: tekken.json, tokenizer.model.v3), or code of the model's own
_TOKENIZERS = (
    TOKENIZER, "tekken.json", "vocab.json", "vocab.txt", "*.model", "tokenizer.model.*",
    "*.tiktoken", "tokenization_*.py",
)  # fmt: skip


@cache
def parser_tokens() -> Mapping[str, Mapping[str, Any]]:
    """Return the tokens that parsers need, by option and parser."""
    tokens: Mapping[str, Mapping[str, Any]] = shipped("engines/changes", "parser-tokens.yaml")[
        "parsers"
    ]
    return tokens


def tokens_missing(folder: Path) -> frozenset[str]:
    """Return the tokens of `parser_tokens` that the tokenizer in a folder lacks.

    None where it has no vocabulary to compare with.
    """
    text = b""
    for name in (TOKENIZER, "tokenizer_config.json"):
        with contextlib.suppress(OSError):
            text += (folder / name).read_bytes()
    if b'"vocab"' not in text:
        return frozenset()
    every = [each for parsers in parser_tokens().values() for each in parsers.values()]
    wanted = {token for each in every for token in each["tokens"]}
    return frozenset(each for each in wanted if not _has_token(text, each))


def _has_token(text: bytes, token: str) -> bool:
    plain = json.dumps(token, ensure_ascii=False).encode()
    return plain in text or json.dumps(token).encode() in text


def has_tokenizer(names: Iterable[str]) -> bool:
    """Return whether a folder with these files has a vocabulary."""
    return any(fnmatchcase(name, pattern) for name in names for pattern in _TOKENIZERS)
