"""Safetensors headers: whole, cut off, damaged."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.models.weights import (
    HeaderError,
    count_parameters,
    read_header,
    read_weights,
)
from tests.support.shards import index, shard


def test_missing_cut_and_foreign_shards(tmp_path: Path) -> None:
    shard(tmp_path / "1.safetensors", {"a": ("BF16", [8], 16)})
    shard(tmp_path / "2.safetensors", {"b": ("BF16", [8], 16)}, cut=1)
    (tmp_path / "3.safetensors").write_bytes(b"\x10")
    (tmp_path / "4.safetensors").write_bytes(struct.pack("<Q", 2) + b"[]")
    shard(tmp_path / "consolidated.safetensors", {"x": ("BF16", [99], 198)})
    index(tmp_path, *(f"{number}.safetensors" for number in range(1, 6)))
    found = read_weights(tmp_path)
    assert found["parameters"] == 16
    assert found["files_missing"] == (
        "2.safetensors (truncated)",
        "3.safetensors (truncated)",
        "4.safetensors (its header is not a JSON object)",
        "5.safetensors",
    )


def test_of_a_folder_that_is_half_fetched_the_index_says_the_size(tmp_path: Path) -> None:
    shard(tmp_path / "1.safetensors", {"a": ("BF16", [8], 16)})
    index(tmp_path, "1.safetensors", "2.safetensors")
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "metadata": {"total_size": 5000}}))
    found = read_weights(tmp_path)
    assert (found["weight_bytes"], found["parameters"]) == (5000, None)
    # a shard that is cut off has its whole header: parameters are exact, bytes what it will have
    whole = shard(tmp_path / "2.safetensors", {"b": ("BF16", [2500], 5000)})
    sizes = read_weights(tmp_path)["weight_bytes"], read_weights(tmp_path)["parameters"]
    shard(tmp_path / "2.safetensors", {"b": ("BF16", [2500], 5000)}, cut=4000)
    found = read_weights(tmp_path)
    assert (
        (found["weight_bytes"], found["parameters"]) == sizes
        and whole < sizes[0]
        and sizes[1] == 2508
    )


def test_a_name_that_leaves_the_folder_is_only_missing(tmp_path: Path) -> None:
    index(tmp_path, "../secret.safetensors")
    assert read_weights(tmp_path)["files_missing"] == ("../secret.safetensors",)


def index_error(folder: Path) -> tuple[str, int, dict[str, str]]:
    with pytest.raises(LaunchError) as caught:
        read_weights(folder)
    return caught.value.id, int(caught.value.exit_code), dict(caught.value.text.values)


def test_an_index_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    for text, why in (
        ("{}", "no weight_map in it"),
        ('{"weight_map": 5}', "no weight_map in it"),
        ("[", "Expecting value: line 1 column 2 (char 1)"),
    ):
        path.write_text(text)
        values = {"path": str(path), "why": why}
        assert index_error(tmp_path) == ("models.bad_config", 5, values)
    path.unlink()
    path.mkdir()
    values = {"path": str(path), "why": "Is a directory"}
    assert index_error(tmp_path) == ("models.bad_config", 5, values)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"weight_map": 5}', '{"weight_map": {"a": ', "[" * 100_000]
)
def test_broken_index_is_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(LaunchError) as caught:
        read_weights(tmp_path)
    assert "index.json" in str(caught.value)


ENTRY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["data_offsets", "shape", "dtype", "a"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.binary(max_size=40) | st.dictionaries(st.text(max_size=3), ENTRY, max_size=3).map(json.dumps)
)
def test_any_file_is_read_or_named(tmp_path: Path, content: bytes | str) -> None:
    raw = (
        content
        if isinstance(content, bytes)
        else struct.pack("<Q", len(content.encode())) + content.encode()
    )
    (tmp_path / "model.safetensors").write_bytes(raw)
    found = read_weights(tmp_path)
    assert (found["parameters"] or 0) >= 0
    assert all(name.startswith("model.safetensors (") for name in found["files_missing"])


@pytest.mark.parametrize("shape", [f"[{2**62}, 4]", f"[{2**40}, {2**40}]"], ids=["sum", "product"])
def test_a_shape_that_no_file_can_have_is_damage(tmp_path: Path, shape: str) -> None:
    text = f'{{"w": {{"dtype": "BF16", "shape": {shape}, "data_offsets": [0, 0]}}}}'.encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    found = read_weights(tmp_path)
    assert found["parameters"] is None
    assert found["files_missing"] == (
        "model.safetensors (its header has an entry that is not a tensor)",
    )


def test_packed_weights_count_as_many() -> None:
    packed = {"up.qweight": {"dtype": "I32", "shape": [2, 3]}}
    assert (count_parameters(packed, 4), count_parameters(packed, 8)) == (48, 24)
    assert count_parameters({"up": {"dtype": "U8", "shape": [2, 3]}}, 4) == 12


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"1234567", "shorter than its header"),
        (struct.pack("<Q", 10) + b"{}", "shorter than its header"),
        (struct.pack("<Q", 1 << 40), f"a header of {1 << 40} bytes"),
        (struct.pack("<Q", 1) + b"[", "its header is not JSON"),
        (struct.pack("<Q", 2) + b"[]", "its header is not a JSON object"),
    ],
)
def test_what_is_wrong_with_a_header(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(HeaderError) as caught:
        read_header(tmp_path / "x")
    assert str(caught.value) == why
