"""The facts of a model, for people and for programs."""

from __future__ import annotations

from typing import Any

from gaudi_launch.cli.console import console, emit_json
from gaudi_launch.commands.inspect.case import InspectedModel
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.models.model import Model

_FIELDS = (
    "path", "name", "source", "architecture", "model_type", "parameters", "weight_bytes", "dtype",
    "quantization", "moe", "experts", "layers", "attention_layers", "hidden_size",
    "intermediate_size", "heads", "kv_heads", "head_dim", "mla_rank", "vocab_size",
    "max_position_embeddings", "tie_word_embeddings", "remote_code", "multimodal", "files_missing",
)  # fmt: skip


def to_json(found: InspectedModel) -> dict[str, Any]:
    """Return the facts for programs."""
    model = found.model
    facts = {name: getattr(model, name) for name in _FIELDS}
    facts |= {"multimodal": list(model.multimodal), "files_missing": list(model.files_missing)}
    return {
        "schema": 1,
        **facts,
        "kv_bytes_per_token": found.kv_bytes_per_token,
        "profile": found.profile,
    }


def show(found: InspectedModel, as_json: bool) -> None:
    """Print the facts that are known, one a line."""
    if as_json:
        emit_json(to_json(found))
        return
    out = console()
    for word, value in _lines(found):
        if value not in (None, "", ()):
            out.print(text("common.pair", label=text(f"models.word_{word}"), value=value))


def _lines(found: InspectedModel) -> list[tuple[str, object]]:
    """Return the lines as pairs of a label and its value."""
    model, kv_bytes = found.model, found.kv_bytes_per_token
    parameters = None
    if model.parameters:
        parameters = f"{model.parameters / 1e9:.3f}e9 ({model.parameters})"
    weights = "" if model.source == "hub" else text("models.no_weights")
    if model.weight_bytes:
        weights = f"{model.weight_bytes / 2**30:.2f} GiB"
    kv = None
    if kv_bytes:
        kv = text("models.kv", bytes=kv_bytes, block=f"{kv_bytes * 128 / 2**20:.3g}")
    return [
        ("model", model.path),
        ("source", _source(found)),
        (
            "architecture",
            " / ".join(word for word in (model.architecture, model.model_type) if word),
        ),
        ("parameters", parameters),
        ("weights", weights),
        ("dtype", ", ".join(word for word in (model.dtype, model.quantization) if word)),
        ("layers", _layers(model)),
        ("heads", _heads(model)),
        ("mla", model.mla_rank),
        ("experts", model.experts if model.moe else None),
        ("hidden", model.hidden_size),
        ("context", model.max_position_embeddings),
        ("vocabulary", model.vocab_size),
        ("kv", kv),
        ("multimodal", ", ".join(model.multimodal)),
        ("remote_code", text("models.remote_code") if model.remote_code else None),
        ("profile", found.profile),
        *(("missing", name) for name in model.files_missing),
    ]


def _source(found: InspectedModel) -> str | None:
    """Return where the facts are from, if that is not the model's folder."""
    if found.model.source == "profile":
        return text("models.from_profile", profile=found.profile)
    return text("models.from_hub") if found.model.source == "hub" else None


def _heads(model: Model) -> object:
    if not model.heads or model.mla_rank:
        return model.heads
    return text("models.heads", heads=model.heads, kv=model.kv_heads, size=model.head_dim)


def _layers(model: Model) -> str | None:
    if model.layers is None:
        return None
    if model.attention_layers in (None, model.layers):
        return str(model.layers)
    return text("models.layers", layers=model.layers, attention=model.attention_layers)
