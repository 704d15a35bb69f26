"""Changes of the model and of a card's memory by the user's engine options.

Each option of every release has a mark in profiles/engines/options/marks.yaml: modelled, without
effect on memory, lengths and buckets, or not modelled. A plan prints no number that an option
without a model changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.models import sizing
from gaudi_launch.core.models.config import model_from_config
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.parameter_count import parameters_of
from gaudi_launch.core.planning.engine_args import EngineArgs
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.passthrough import marks
from gaudi_launch.core.planning.request import Request

# the names of config.json that a model without one has as facts
_FIELDS = {
    "num_hidden_layers": ("layers", "attention_layers"),
    "max_position_embeddings": ("max_position_embeddings",),
    "num_attention_heads": ("heads",),
    "num_key_value_heads": ("kv_heads",),
    "hidden_size": ("hidden_size",),
    "intermediate_size": ("intermediate_size",),
    "head_dim": ("head_dim",),
    "vocab_size": ("vocab_size",),
}
# vllm/config/model.py _get_and_verify_max_len: the types of rope whose factor does not lengthen
_NOT_LONGER = ("su", "longrope", "llama3")
_SPECULATIVE, _LORA = "--speculative-config", "--enable-lora"
_HEADS = ("eagle", "eagle3")
# vllm/config/lora.py
_RANK, _SLOTS = 16, 1


@dataclass(frozen=True)
class CardAdditions:
    """Bytes of weights and of one KV block that options add to a card.

    ``unknown`` are the options whose part cannot be counted.
    """

    weights: float = 0.0
    block: int = 0
    unknown: tuple[str, ...] = ()


def not_modelled(args: EngineArgs) -> tuple[str, ...]:
    """Return the user's options that change a plan's numbers without a rule here."""
    marked = marks()["not_modelled"]
    given = dict.fromkeys(argument.name for argument in (*args.file, *args.user))
    return tuple(
        name
        for name in given
        if name in marked and args.has(name) and args.last(name) != marked[name]
    )


def with_overrides(model: Model, args: EngineArgs) -> Model:
    """Return the model changed by --hf-overrides and --rope-scaling, with the draft.

    Weights are counted again where the overrides change a size. An EAGLE head of which only the
    name is known is one layer of a dense model, with embedding and output head
    (vllm/model_executor/models/llama_eagle3.py; its sizes are assumed).
    """
    draft = draft_of(args)
    if draft is None and speculative_options(args).get("method") in _HEADS and model.moe is False:
        draft = replace(_overridden(model, {"num_hidden_layers": 1}), source="assumed")
    model = replace(model, draft=draft)
    changed = json_object(args.last("--hf-overrides"))
    if args.has("--rope-scaling"):
        changed["rope_scaling"] = json_object(args.last("--rope-scaling"))
    if not changed:
        return model
    found = _overridden(model, changed)
    rope = mapping(changed.get("rope_scaling") or changed.get("rope_parameters"))
    factor = rope.get("factor")
    if isinstance(factor, int | float) and rope.get("rope_type", rope.get("type")) not in (
        *_NOT_LONGER,
    ):
        start = rope.get("original_max_position_embeddings") or found.max_position_embeddings
        if isinstance(start, int):
            found = replace(found, max_position_embeddings=int(start * factor))
    return found


def _overridden(model: Model, changed: Mapping[str, Any]) -> Model:
    made = replace(model, **_fields(changed))
    if model.config:
        made = model_from_config(model.path, _merged(model.config, changed))
        made = replace(
            made, source=model.source, name=model.name, files_missing=model.files_missing
        )
    before, after = parameters_of(model), parameters_of(made)
    parameters, on_disk = model.parameters, model.weight_bytes
    if before is None or after is None:
        parameters, on_disk = None, None
    elif before != after:
        parameters = int(after.total)
        on_disk = None if on_disk is None else int(on_disk * after.total / before.total)
    unloaded = model.unloaded_bytes if before == after else 0
    return replace(made, parameters=parameters, weight_bytes=on_disk, unloaded_bytes=unloaded)


def _fields(changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a model that these values of config.json are."""
    sizes = {name: value for name, value in changed.items() if isinstance(value, int)}
    return {field: value for name, value in sizes.items() for field in _FIELDS.get(name, ())}


def _merged(config: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(config)
    for name, value in changed.items():
        inner = made.get(name)
        if isinstance(inner, dict) and isinstance(value, dict):
            value = _merged(inner, value)
        made[name] = value
    return made


def json_object(text: str | None) -> dict[str, Any]:
    """Return a JSON object; the values of ``--option.key value`` are JSON, too."""
    found = mapping(_json(text or ""))
    return {name: _json(each) if isinstance(each, str) else each for name, each in found.items()}


def _json(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return text


def additions(model: Model, cards: int, args: EngineArgs) -> CardAdditions:
    """Return what LoRA slots and a draft model or head take of each card."""
    found = CardAdditions(unknown=not_modelled(args))
    if args.has(_LORA):
        slots = _whole(args, "--max-loras", _SLOTS) * _whole(args, "--max-lora-rank", _RANK)
        width = _lora_width(model, cards)
        if width is None:
            found = replace(found, unknown=(*found.unknown, _LORA))
        else:
            found = replace(found, weights=2.0 * slots * width)
    speculative = speculative_options(args)
    if not speculative or str(speculative.get("method", "")).startswith("ngram"):
        return found
    weights, block = _draft(model, cards, speculative)
    if weights is None or block is None:
        return replace(found, unknown=(*found.unknown, _SPECULATIVE))
    return replace(found, weights=found.weights + weights, block=block)


def unmodelled(request: Request, model: Model) -> tuple[str, ...]:
    """Return the user's options and variables whose effect on this plan is not known."""
    return (*additions(model, 1, request.args).unknown, *request.unmodelled)


def speculative_options(args: EngineArgs) -> dict[str, Any]:
    """Return the object of --speculative-config and its short options."""
    found = json_object(args.last(_SPECULATIVE))
    for option, key in (("--spec-method", "method"), ("--spec-model", "model")):
        if args.has(option):
            found[key] = args.last(option)
    return found


def draft_of(args: EngineArgs) -> Model | None:
    """Return the draft model of the options; None where only its name is known."""
    path = speculative_options(args).get("model")
    if not isinstance(path, str):
        return None
    found = known_model(path, must_exist=False)
    return None if found.source == "name" else found


def _draft(
    model: Model, cards: int, speculative: Mapping[str, Any]
) -> tuple[float | None, int | None]:
    """Return a draft's bytes of weights and of one KV block on each card.

    The layers for further tokens of the model's own files are those that it loads then, with the
    cache of one layer.
    """
    draft = model.draft
    if draft is not None:
        dtype = draft.dtype or "bfloat16"
        return sizing.weight_bytes_per_card(draft, cards, dtype), sizing.block_bytes(draft, cards)
    layers, block = model.attention_layers or model.layers, sizing.block_bytes(model, cards)
    own = "mtp" in str(speculative.get("method", "")) and not speculative.get("model")
    if not own or not model.unloaded_bytes or not layers or block is None:
        return None, None
    return model.unloaded_bytes / cards, block // layers


def _lora_width(model: Model, cards: int) -> float | None:
    """Return the values that one rank of an adapter has on a card; None for experts.

    vllm/lora/layers: A of the projections with divided outputs and B of those with divided inputs
    are complete on each card.
    """
    hidden, middle, layers = model.hidden_size, model.intermediate_size, model.layers
    if model.moe or model.mla_rank or not (hidden and middle and layers):
        return None
    if not (model.heads and model.kv_heads and model.head_dim):
        return None
    queries = model.heads * model.head_dim
    keys = max(1, model.kv_heads // cards) * model.head_dim
    into = 5 * hidden + queries / cards + 2 * keys + 2 * middle / cards
    out = 2 * hidden + queries / cards + middle / cards
    return layers * (into + out)


def _whole(args: EngineArgs, name: str, default: int) -> int:
    text = args.last(name) or ""
    return int(text) if text.isascii() and text.isdigit() else default
