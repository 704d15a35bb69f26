"""Where fp8's measurements are looked for, what counts as whole, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.models.fp8.measurements import (
    MeasurementQuery,
    calibrated_folder,
    clear_stale,
    downloaded_folder,
    find,
    quant_name,
    write_published,
)
from gaudi_launch.core.models.fp8.quant_config import QuantFile, read_quant_file
from gaudi_launch.core.models.model import Published

WANTED = MeasurementQuery(model="Small-1B", cards=2, generation="g2")
PUBLISHED = Published(
    "me/measured", 2, "inc_measure_output", {"mode": "QUANTIZE", "observer": "maxabs"}
)


@pytest.fixture(autouse=True)
def home(own_folders: Path) -> Path:
    return own_folders


def quant(folder: Path, ranks: int = 2, **more: Any) -> Path:
    """A QUANT_CONFIG with the measurements of that many ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / "g2" / "inc_output"
    stem.parent.mkdir(exist_ok=True)
    for rank in range(ranks):
        (stem.parent / f"inc_output_hooks_maxabs_{rank}_{ranks}.npz").write_bytes(b"x")
    path = folder / quant_name("g2")
    path.write_text(json.dumps({"mode": "QUANTIZE", "dump_stats_path": str(stem), **more}))
    return path


def test_the_strongest_source_wins(home: Path) -> None:
    named = {word: quant(home / word) for word in ("flag", "environment", "profile")}
    checkout = home / "fork"
    theirs = quant(checkout / "scripts" / "quantization" / "small-1b")
    ours = quant(calibrated_folder("Small-1B", "g2", 2))
    full = replace(
        WANTED,
        named=str(named["flag"]),
        exported=str(named["environment"]),
        profile_file=str(named["profile"]),
        published=PUBLISHED,
        checkout=str(checkout),
    )
    order = []
    weaker: tuple[dict[str, Any], ...] = (
        {},
        {"named": None},
        {"exported": None},
        {"profile_file": None},
    )
    for change in weaker:
        full = replace(full, **change)
        order.append(find(full))
    ours.unlink()
    order += [find(full), find(replace(full, published=None))]
    folder = downloaded_folder("me/measured")
    assert order == [
        QuantFile(str(named["flag"]), "flag"),
        QuantFile(str(named["environment"]), "environment"),
        QuantFile(str(named["profile"]), "profile"),
        QuantFile(str(ours), "calibrated"),
        QuantFile(str(folder / "maxabs_quant_g2.json"), "downloaded", missing=(str(folder),)),
        QuantFile(str(theirs), "engine"),
    ]


@pytest.mark.parametrize(
    ("ranks", "cards", "more", "missing"),
    [
        (2, 2, {}, []),
        (2, 4, {}, [0, 1, 2, 3]),
        (1, 1, {}, []),
        (2, 4, {"scale_method": "unit_scale"}, []),
        (2, 2, {"observer": "other"}, [0, 1]),
    ],
)
def test_each_rank_needs_its_file(
    ranks: int, cards: int, more: dict[str, str], missing: list[int], home: Path
) -> None:
    path = quant(home / "q", ranks, **more)
    observer = more.get("observer", "maxabs")
    stem = home / "q" / "g2" / f"inc_output_hooks_{observer}"
    wanted = tuple(f"{stem}_{rank}_{cards}.npz" for rank in missing)
    assert read_quant_file(path, cards, "flag").missing == wanted


def test_a_relative_path_is_below_the_prefix(home: Path) -> None:
    path = quant(home / "q", 2, dump_stats_path="q/g2/inc_output")
    assert read_quant_file(path, 2, "environment", str(home)).missing == ()
    assert len(read_quant_file(path, 2, "environment", str(home / "elsewhere")).missing) == 2


def test_the_single_file_of_a_single_card(home: Path) -> None:
    path = quant(home / "q", 0)
    (home / "q" / "g2" / "inc_output_hooks_maxabs.npz").write_bytes(b"x")
    assert read_quant_file(path, 1, "flag").missing == ()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda s: st.lists(s) | st.dictionaries(st.text(), s),
    )
)
def test_no_document_is_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, document: Any
) -> None:
    path = tmp_path_factory.mktemp("q") / "q.json"
    blocked = {
        "blocklist": {"types": document, "names": document},
        "dump_stats_path": document,
        "observer": document,
        "scale_method": document,
    }
    for one in (document, blocked):
        path.write_text(json.dumps(one))
        try:
            read_quant_file(path, 2, "flag")
        except LaunchError as error:
            assert error.id.startswith("quant.")


def test_published_measurements_get_a_file_with_their_path() -> None:
    folder = downloaded_folder("me/measured")
    folder.mkdir(parents=True)
    (folder / "inc_measure_output_hooks_maxabs_0_2.npz").write_bytes(b"x")
    found = write_published(PUBLISHED, "g2")
    assert json.loads(Path(found.path).read_text()) == {
        "mode": "QUANTIZE",
        "observer": "maxabs",
        "dump_stats_path": str(folder / "inc_measure_output"),
    }
    assert found.missing == (str(folder / "inc_measure_output_hooks_maxabs_1_2.npz"),)
    (folder / "inc_measure_output_hooks_maxabs_1_2.npz").write_bytes(b"x")
    assert find(replace(WANTED, published=PUBLISHED)) == QuantFile(found.path, "downloaded")


def test_only_our_own_stale_scales_are_removed(home: Path) -> None:
    for origin, removed in (("calibrated", 1), ("flag", 0)):
        path = quant(home / origin)
        stale = (
            path.parent
            / "g2"
            / "inc_output_hooks_maxabs_ACT_MAXABS_HW_WEIGHTS_PCS_MAXABS_POW2_0_2.npz"
        )
        stale.write_bytes(b"x")
        assert clear_stale(QuantFile(str(path), origin)) == removed  # type: ignore[arg-type]
        assert stale.exists() is not bool(removed)
        assert len(list((path.parent / "g2").iterdir())) == 3 - removed
