"""Find measurements for fp8: the user's, a profile's, calibrated or downloaded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.base.paths import data_dir, write_whole
from gaudi_launch.core.models.fp8.quant_config import (
    Origin,
    QuantFile,
    kv_cache_dtype,
    read_quant_file,
)
from gaudi_launch.core.models.model import Published

PREFIX = "INC_MEASUREMENT_DUMP_PATH_PREFIX"
# files that a launch with QUANT_CONFIG leaves with the measurements; those of another setting must
# be removed (HabanaAI/vllm-fork@deepseek_r1:scripts/quickstart/utils.sh clean_inc_scale)
_STALE = "*ACT_MAXABS_HW_WEIGHTS*"


@dataclass(frozen=True)
class MeasurementQuery:
    """A search for measurements.

    ``named`` are a flag's and the environment's file, ``profile_file`` a profile's, ``checkout``
    the folder of the engine's sources, where its scripts keep such files. ``family`` is "" for the
    fork; measurements are by names of the engine's modules, so another family's are not used.
    """

    model: str
    cards: int
    generation: str
    named: str | None = None
    exported: str | None = None
    prefix: str = ""
    profile_file: str | None = None
    published: Published | None = None
    checkout: str | None = None
    family: str = ""


def root() -> Path:
    """Return the folder of measurements, without creating it."""
    return data_dir() / "measurements"


def quant_name(generation: str) -> str:
    """Return the file name that the calibration scripts use.

    Source: vllm-hpu-extension:calibration/calibrate_model.sh.
    """
    return f"maxabs_quant_{generation}.json"


def calibrated_folder(model: str, generation: str, cards: int, family: str = "") -> Path:
    """Return the folder of the results of ``fp8 calibrate``.

    Measurements are valid for one number of cards of one generation.
    """
    return root() / "calibrated" / model.lower() / f"{generation}-n{cards}{_ending(family)}"


def _ending(family: str) -> str:
    return f"-{family}" if family else ""


def calibrated_for(model: str, generation: str, family: str = "") -> tuple[int, ...]:
    """Return the numbers of cards that this model was calibrated for here, ascending."""
    folder, ending = root() / "calibrated" / model.lower(), _ending(family)
    found = folder.glob(f"{generation}-n*{ending}/{quant_name(generation)}")
    numbers = (
        path.parent.name.removeprefix(f"{generation}-n").removesuffix(ending) for path in found
    )
    return tuple(sorted(int(number) for number in numbers if number.isascii() and number.isdigit()))


def downloaded_folder(repo: str) -> Path:
    """Return the target folder of a measurement repository."""
    return root() / repo


def find(wanted: MeasurementQuery) -> QuantFile | None:
    """Return the QUANT_CONFIG file to use, None if there is none.

    Strongest first: flag, environment, profile, calibrated here, published (if not fetched yet, its
    ``missing`` is set), the engine's checkout.

    Raises LaunchError for a file that exists, or was named by the user, and cannot be used.
    """
    named: tuple[tuple[str | None, Origin], ...] = (
        (wanted.named, "flag"),
        (wanted.exported, "environment"),
        (wanted.profile_file, "profile"),
    )
    for path, origin in named:
        if path:
            return read_quant_file(Path(path).expanduser(), wanted.cards, origin, wanted.prefix)
    ours = calibrated_folder(
        wanted.model, wanted.generation, wanted.cards, wanted.family
    ) / quant_name(wanted.generation)
    if ours.is_file():
        return read_quant_file(ours, wanted.cards, "calibrated")
    if wanted.published is not None:
        folder = downloaded_folder(wanted.published.repo)
        file = folder / quant_name(wanted.generation)
        if file.is_file():
            return read_quant_file(file, wanted.published.cards, "downloaded")
        return QuantFile(
            str(file), "downloaded", kv_cache_dtype(wanted.published.quantisation), (str(folder),)
        )
    if wanted.checkout:
        theirs = Path(wanted.checkout) / "scripts" / "quantization" / wanted.model.lower()
        if (theirs / quant_name(wanted.generation)).is_file():
            return read_quant_file(
                theirs / quant_name(wanted.generation), wanted.cards, "engine", wanted.prefix
            )
    return None


def write_published(published: Published, generation: str) -> QuantFile:
    """Write the QUANT_CONFIG of fetched measurements, with their absolute path.

    Raises OSError.
    """
    folder = downloaded_folder(published.repo)
    document = {
        **published.quantisation,
        "dump_stats_path": str(folder.absolute() / published.stem),
    }
    path = folder / quant_name(generation)
    write_whole(path, json.dumps(document, indent=1))
    return read_quant_file(path, published.cards, "downloaded")


def clear_stale(quant: QuantFile) -> int:
    """Remove scales that an earlier launch left with measurements; return a count."""
    if quant.origin not in ("calibrated", "downloaded"):
        return 0
    found = list(Path(quant.path).parent.rglob(_STALE))
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)
