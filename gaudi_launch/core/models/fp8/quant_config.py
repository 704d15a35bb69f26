"""Read a QUANT_CONFIG file of the Intel Neural Compressor and its measurements."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.reader import read_json

_log = logging.getLogger(__name__)

Origin = Literal["flag", "environment", "profile", "calibrated", "downloaded", "engine"]
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class QuantFile:
    """A QUANT_CONFIG file: its path, its origin and the KV cache type for it.

    ``missing`` are the names of its measurement files that do not exist, for the requested number
    of cards.
    """

    path: str
    origin: Origin
    kv_dtype: str = "fp8_inc"
    missing: tuple[str, ...] = ()

    @property
    def reason(self) -> Message:
        """Return where it was found."""
        return message(_FOUND[self.origin])


_FOUND: Mapping[Origin, str] = {
    "flag": "quant.found_flag",
    "environment": "quant.found_environment",
    "profile": "quant.found_profile",
    "calibrated": "quant.found_calibrated",
    "downloaded": "quant.found_downloaded",
    "engine": "quant.found_engine",
}


def kv_cache_dtype(config: Mapping[str, Any]) -> str:
    """Return ``auto`` if the blocklist names a cache (it stays bf16), or ``fp8_inc``.

    Source: HabanaAI/vllm-fork@aice/v1.22.0:vllm/config.py (INC QUANT_CONFIG).
    """
    blocklist = config.get("blocklist")
    if not isinstance(blocklist, Mapping):
        return "fp8_inc"
    lists = [blocklist.get(key) for key in ("types", "names")]
    words = [str(word) for each in lists if isinstance(each, list) for word in each]
    if any("cache" in word.lower() for word in words):
        return "auto"
    return "fp8_inc"


def read_quant_file(path: Path, cards: int, origin: Origin, prefix: str = "") -> QuantFile:
    """Read one file for a deployment on ``cards`` cards.

    ``prefix`` is INC_MEASUREMENT_DUMP_PATH_PREFIX.

    Raises LaunchError: USAGE for a file that the user named, MODEL for one that was found.
    """
    code = ExitCode.USAGE if origin in ("flag", "environment") else ExitCode.MODEL
    config = _read(path, code)
    mode = str(config.get("mode", "QUANTIZE"))
    if mode.upper() != "QUANTIZE":
        raise LaunchError("quant.mode", code, path=str(path), mode=mode)
    return QuantFile(str(path), origin, kv_cache_dtype(config), _missing(config, cards, prefix))


def measured_folder(path: Path, prefix: str = "") -> Path | None:
    """Return the folder of a file's measurements, to which the engine adds scales.

    Return None where the file is not on this machine or names no folder.
    """
    try:
        stem = _read(path, ExitCode.USAGE).get("dump_stats_path")
    except LaunchError as error:
        _log.debug("the quantisation file is not read: %s", error)
        return None
    if isinstance(stem, str) and stem:
        return (Path(prefix) / stem).parent
    return None


def _read(path: Path, code: ExitCode) -> Mapping[str, Any]:
    try:
        document = read_json(path, _MOST_BYTES)
    except OSError as error:
        raise LaunchError(
            "quant.unreadable", code, path=str(path), why=error.strerror or str(error)
        ) from None
    except ValueError as error:
        raise LaunchError("quant.unreadable", code, path=str(path), why=f"JSON: {error}") from None
    if not isinstance(document, dict):
        raise LaunchError("quant.unreadable", code, path=str(path), why="no JSON object")
    return document


def _missing(config: Mapping[str, Any], cards: int, prefix: str) -> tuple[str, ...]:
    """Return each rank's measurements that are not there.

    The stem is ``dump_stats_path``, relative ones below the prefix; then
    ``_hooks_<observer>_<rank>_<ranks>``
    (HabanaAI/vllm-fork@deepseek_r1:scripts/quickstart/README.md and utils.sh clean_inc_scale).
    Assumed: with scales of one (``unit_scale``) nothing is read, and a single card's file may lack
    its two numbers.
    """
    stem, method = config.get("dump_stats_path"), str(config.get("scale_method", ""))
    if not isinstance(stem, str) or not stem or method == "unit_scale":
        return ()
    start = Path(prefix) / stem
    name = f"{start.name}_hooks_{config.get('observer', 'maxabs')}"
    try:
        there = {path.stem for path in start.parent.iterdir() if path.suffix in (".npz", ".json")}
    except (OSError, ValueError) as error:
        _log.debug("the measurements are not listed: %s", error)
        there = set()
    if cards == 1 and name in there:
        return ()
    wanted = [f"{name}_{rank}_{cards}" for rank in range(cards)]
    return tuple(str(start.parent / f"{one}.npz") for one in wanted if one not in there)
