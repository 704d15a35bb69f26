"""``gaudi-launch inspect``: what a model is, from its folder, or from the hub without its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from gaudi_launch.cli.command_app import CommandApp

if TYPE_CHECKING:
    from gaudi_launch.models.model import Model

app = CommandApp()

_FIELDS = (
    "path", "name", "source", "architecture", "model_type", "parameters", "weight_bytes", "dtype", "quantization",
    "moe", "experts", "layers", "attention_layers", "hidden_size", "intermediate_size", "heads", "kv_heads",
    "head_dim", "mla_rank", "vocab_size", "max_position_embeddings", "tie_word_embeddings", "remote_code",
    "multimodal", "files_missing",
)  # fmt: skip


@app.command()
def inspect(
    model: str = typer.Argument(
        ..., metavar="MODEL", help="A folder, or a hub ID such as Qwen/Qwen2-72B-Instruct."
    ),
    revision: str = typer.Option("", "--revision", help="Branch, tag or commit on the hub."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Read a model: architecture, parameters, layers, heads, experts, context, data type, missing files.

    For a model on the hub only config.json and the headers of its weights are read. HF_ENDPOINT sets a mirror.
    """
    from gaudi_launch import profiles
    from gaudi_launch.models.config import looks_like_hub_id
    from gaudi_launch.models.sizing import kv_bytes_per_token

    if looks_like_hub_id(model):
        from gaudi_launch.models.hub.remote import read_remote

        found = read_remote(model, revision or None)
    else:
        found = profiles.known_model(model)
    profile = profiles.match(found)
    token = kv_bytes_per_token(found)
    if as_json:
        from gaudi_launch.cli.console import emit_json

        facts: dict[str, Any] = {name: getattr(found, name) for name in _FIELDS}
        facts |= {"multimodal": list(found.multimodal), "files_missing": list(found.files_missing)}
        emit_json({"schema": 1, **facts, "kv_bytes_per_token": token, "profile": profile.name if profile else None})
        return
    _show(found, token, profile.name if profile else None)


def _show(model: Model, kv_bytes: int | None, profile: str | None) -> None:
    from gaudi_launch.cli.console import console
    from gaudi_launch.messages import text

    out = console()

    def line(word: str, value: object) -> None:
        if value not in (None, "", ()):
            out.print(f"{text(f'models.word_{word}')}: {value}", markup=False)

    line("model", model.path)
    line("architecture", " / ".join(word for word in (model.architecture, model.model_type) if word))
    line("parameters", f"{model.parameters / 1e9:.3f}e9 ({model.parameters})" if model.parameters else None)
    line("weights", f"{model.weight_bytes / 2**30:.2f} GiB" if model.weight_bytes else text("models.no_weights"))
    line("dtype", ", ".join(word for word in (model.dtype, model.quantization) if word))
    line("layers", _layers(model))
    heads = text("models.heads", heads=model.heads, kv=model.kv_heads, size=model.head_dim)
    line("heads", heads if model.heads and not model.mla_rank else model.heads)
    line("mla", model.mla_rank)
    line("experts", model.experts if model.moe else None)
    line("hidden", model.hidden_size)
    line("context", model.max_position_embeddings)
    line("vocabulary", model.vocab_size)
    line("kv", text("models.kv", bytes=kv_bytes, block=f"{kv_bytes * 128 / 2**20:.3g}") if kv_bytes else None)
    line("multimodal", ", ".join(model.multimodal))
    line("remote_code", text("models.remote_code") if model.remote_code else None)
    line("profile", profile)
    for name in model.files_missing:
        line("missing", name)


def _layers(model: Model) -> str | None:
    if model.layers is None or model.attention_layers in (None, model.layers):
        return None if model.layers is None else str(model.layers)
    from gaudi_launch.messages import text

    return text("models.layers", layers=model.layers, attention=model.attention_layers)
