"""Read a model folder as `Model`: config.json, or the name where there is none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.json_values import array, mapping
from gaudi_launch.core.base.messages import Message
from gaudi_launch.core.base.reader import parse_json, shipped_json
from gaudi_launch.core.base.redact import redact_text
from gaudi_launch.core.models.config_dialects import EXPERT_KEYS, in_usual_names, text_type
from gaudi_launch.core.models.fp8.conversion_record import is_recorded
from gaudi_launch.core.models.model import Model

# the quantisation of ModelOpt before 0.31 (vLLM 0.26.0: vllm/transformers_utils/config.py)
MODELOPT = "hf_quant_config.json"
# the part of config.json with the language model in multimodal ones (transformers, llama4,
# qwen2_5_vl, llava)
_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
_PARTS = {
    "vision_config": "vision",
    "audio_config": "audio",
    "vision_tower": "vision",
    "mm_vision_tower": "vision",
}
# families that see, where there is only a name to go by: assumed from the names of their releases
# on the hub
_VISION_NAME = re.compile(
    r"llava|pixtral|internvl|idefics|paligemma|smolvlm|minicpm-v|(?<![a-z])vl(?![a-z])|(?<![a-z])vision(?![a-z])"
    r"|gemma-3-(4|12|27)b|llama-4",
    re.IGNORECASE,
)
_POSITION_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
# the routed experts of a layer that one token passes
CHOSEN_EXPERTS = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts")
_LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
# suffixes of hub names for copies of a model in other weights (assumed from the names in use;
# config.json shows it for certain)
_QUANTISED = re.compile(r"[-_.](awq|gptq(?!-int8)|fp8)(?![a-z0-9])", re.IGNORECASE)
_HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$", re.ASCII)
# the folder of a revision in the cache of huggingface_hub
_SNAPSHOT = re.compile(r"(?:^|/)models--[^/]+?--([^/]+)/snapshots/[^/]+$")
_MOST_CONFIG_BYTES = 8 << 20


def name_of(path: str) -> str:
    """Return the last part of a path or hub id, of a snapshot the model's."""
    plain = path.rstrip("/")
    cached = _SNAPSHOT.search(plain)
    return cached[1] if cached is not None else plain.rsplit("/", 1)[-1]


def looks_like_hub_id(path: str) -> bool:
    """Return True for ``owner/name`` that is not an existing folder."""
    return bool(_HUB_ID.match(path)) and not Path(path).exists()


def refuse_address(path: str) -> None:
    """Raise LaunchError (USAGE) for the address of a model's page, with its hub ID."""
    if "://" not in path:
        return
    address = urlsplit(path)
    # the path of s3:// or file:// does not name a hub's model
    on_hub = address.path if address.scheme.startswith("http") else ""
    path_parts = on_hub.removesuffix(".git").split("/")
    parts = [part for part in path_parts if part not in ("", "models")]
    pull = f"pull {'/'.join(parts[:2]) or 'OWNER/NAME'}"
    if "modelscope" in address.netloc:
        pull += " --from modelscope"
    raise LaunchError("models.address", ExitCode.USAGE, found=redact_text(path), pull=pull)


def named_model(path: str, unread: Message | None = None) -> Model:
    """Return a model of which only the name is known.

    The name may indicate other parts than language and a method of quantisation; engines that rely
    on it show it as assumed. ``unread``: the reason why a hub's config.json is not known.
    """
    name = name_of(path)
    quantised = _QUANTISED.search(name)
    return Model(
        path=path,
        name=name,
        quantization=quantised[1].lower() if quantised else None,
        multimodal=("vision",) if _VISION_NAME.search(name) else (),
        unread=unread,
    )


def read_model(path: str, must_exist: bool = True) -> Model:
    """Return the facts of a model's own files.

    ``must_exist`` False lets a missing folder pass: only its name is then known
    (`gaudi_launch.core.planning.known_model` adds what a profile says).

    Raises LaunchError (MODEL): no such folder, no config.json in it, or one that cannot be read.
    """
    folder = Path(path).expanduser()
    try:
        there = folder.is_dir()
    except OSError as error:
        raise LaunchError(
            "models.unreadable", ExitCode.MODEL, path=path, why=error.strerror or ""
        ) from None
    if not there:
        if folder.suffix == ".gguf":
            raise LaunchError("models.gguf", ExitCode.MODEL, path=path)
        if must_exist and not looks_like_hub_id(path):
            raise LaunchError("models.no_folder", ExitCode.MODEL, path=path)
        return named_model(path)
    document = read_config(folder)
    from gaudi_launch.core.models.weights import (
        TOKENIZER,
        has_tokenizer,
        has_weights,
        read_weights,
        tokens_missing,
    )

    found = model_from_config(path, document, read_weights(folder, *counted_with(document)))
    names = [each.name for each in folder.iterdir()]
    if has_weights(folder) and not has_tokenizer(names):
        found = replace(found, files_missing=(*found.files_missing, TOKENIZER))
    return replace(found, converted=is_recorded(folder), tokens_missing=tokens_missing(folder))


def counted_with(document: Mapping[str, Any]) -> tuple[int, int | None]:
    """Return what config.json states for counting weights.

    That is the bits of a packed weight and the number of layers that are loaded.
    """
    quantization = _part(text_part(document), "quantization_config") or _part(
        document, "quantization_config"
    )
    bits = _number(quantization, "bits", "w_bit") or 4
    if bits not in (2, 3, 4, 8):
        bits = 4
    return bits, _number(text_part(document), *_LAYER_KEYS)


def read_config(folder: Path) -> dict[str, Any]:
    """Return config.json of a folder. Raises LaunchError (MODEL)."""
    document, own = _document(folder / "config.json"), folder / MODELOPT
    if "quantization_config" in document or not own.is_file():
        return document
    return with_modelopt(document, _document(own))


def _document(file: Path) -> dict[str, Any]:
    """Return the document of a file of a model. Raises LaunchError (MODEL)."""
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_CONFIG_BYTES + 1)
    except FileNotFoundError:
        raise LaunchError("models.no_config", ExitCode.MODEL, path=str(file.parent)) from None
    except OSError as error:
        raise LaunchError(
            "models.bad_config", ExitCode.MODEL, path=str(file), why=error.strerror or ""
        ) from None
    return parse_config(content, str(file))


def with_modelopt(document: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return config.json with the quantisation of ModelOpt's file, as vLLM."""
    settings = {**_part(own, "quantization"), "quant_method": "modelopt"}
    return {**document, "quantization_config": settings}


def parse_config(content: bytes, path: str) -> dict[str, Any]:
    """Return the document of a config.json.

    Raises LaunchError (MODEL) that names ``path``.
    """
    try:
        document = parse_json(content, _MOST_CONFIG_BYTES, as_engine=True)
    except ValueError as error:
        raise LaunchError("models.bad_config", ExitCode.MODEL, path=path, why=str(error)) from None
    if not isinstance(document, dict):
        raise LaunchError("models.bad_config", ExitCode.MODEL, path=path, why="not a JSON object")
    return document


def model_from_config(
    path: str, document: Mapping[str, Any], weights: Mapping[str, Any] | None = None
) -> Model:
    """Return `Model` from the document of config.json.

    What is not there, or of a wrong kind, is None. Pure.
    """
    text = text_part(document)
    heads = _number(text, "num_attention_heads", "n_head", "n_heads")
    hidden = _number(text, "hidden_size", "n_embd", "d_model")
    # doge: the class has a number of experts also where it has none
    experts = None if text.get("is_moe") is False else _number(text, *EXPERT_KEYS)
    rank = None
    kinds = (document.get("model_type"), text.get("model_type"))
    if any(isinstance(kind, str) and kind in mla_types() for kind in kinds):
        rank = _latent_rank(text)
    head_dim = _number(text, "head_dim", "kv_channels")
    if not head_dim and hidden and heads:
        head_dim = hidden // heads
    quantization = document.get("quantization_config", text.get("quantization_config"))
    tied = document.get("tie_word_embeddings", text.get("tie_word_embeddings"))
    dtype = document.get(
        "dtype", document.get("torch_dtype", text.get("dtype", text.get("torch_dtype")))
    )
    found = weights or {}
    return Model(
        path=path,
        name=name_of(path),
        source="config.json",
        architecture=next(map(str, array(document.get("architectures"))), None),
        model_type=_word(document.get("model_type")),
        parameters=found.get("parameters"),
        weight_bytes=found.get("weight_bytes"),
        dtype=_word(dtype),
        quantization=_quantization(quantization),
        moe=experts is not None and experts > 1,
        experts=experts,
        layers=_layers(text),
        attention_layers=_attention_layers(text),
        hidden_size=hidden,
        intermediate_size=_intermediate(text, experts),
        heads=heads,
        kv_heads=_kv_heads(text, heads),
        head_dim=head_dim,
        mla_rank=rank,
        vocab_size=_number(text, "vocab_size"),
        max_position_embeddings=_positions(text),
        remote_code=bool(document.get("auto_map")),
        multimodal=tuple(sorted({part for key, part in _PARTS.items() if document.get(key)})),
        tie_word_embeddings=tied if isinstance(tied, bool) else None,
        unloaded_bytes=found.get("unloaded_bytes", 0),
        files_missing=tuple(found.get("files_missing", ())),
        vocab_rows=found.get("vocab_rows"),
        config=document,
    )


def text_part(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the language model's part of config.json, by the usual names."""
    outer, kind = document, _word(document.get("model_type")) or ""
    # qwen2_5_omni has two levels; more levels are not a model and must not recurse
    for _ in range(4):
        inner = next(
            (document[name] for name in _TEXT_PARTS if isinstance(document.get(name), dict)), None
        )
        if not inner:
            break
        kind = _word(inner.get("model_type")) or text_type(kind) or kind
        document = inner
    return in_usual_names(document, kind, is_part=document is not outer)


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = document.get(name)
    return mapping(part)


def _number(document: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = document.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**12:
            return value
    return None


def _positions(text: Mapping[str, Any]) -> int | None:
    """Return the longest context: model_max_length, else the smallest key.

    vllm-project/vllm@0.32:vllm/transformers_utils/model_arch_config_convertor.py
    derive_max_model_len_and_key, HabanaAI/vllm-fork@95af7009:vllm/config.py:3302-3331: Command-R
    has 8192 positions and serves 131072.
    """
    stated = _number(text, "model_max_length")
    if stated:
        return stated
    found = [_number(text, key) for key in _POSITION_KEYS]
    return min((each for each in found if each), default=None)


def _kv_heads(text: Mapping[str, Any], heads: int | None) -> int | None:
    # falcon: one head for all queries unless the new decoder says otherwise (transformers
    # FalconConfig)
    if text.get("multi_query") is True and not text.get("new_decoder_architecture"):
        return 1
    # chatglm calls it multi_query_group_num (THUDM/glm-4-9b-chat config.json)
    if text.get("multi_query_attention") is True:
        return _number(text, "multi_query_group_num") or heads
    each = text.get("num_key_value_heads")
    if isinstance(each, list):  # one number a layer: the widest decides
        return max((_number({"n": one}, "n") or 0 for one in each), default=0) or heads
    return _number(text, "num_key_value_heads", "num_kv_heads", "n_head_kv") or heads


@cache
def mla_types() -> frozenset[str]:
    """Return the model types whose cache the engines compress (MLA).

    They are those of is_deepseek_mla.

    minicpm3 has the ranks but ordinary heads in its cache, so it is not among them. The file is
    written by scripts/engine_facts.py from every shipped engine version.
    """
    return frozenset(shipped_json("engines", "support", "mla.json")["model_types"])


def _intermediate(text: Mapping[str, Any], experts: int | None) -> int | None:
    """Return the MLP's width that one token passes.

    The widest kind of layer where there are several.
    """
    dense = _number(
        text, "intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_hidden_size"
    )
    if not experts or experts < 2:
        return dense
    # llama4 and mixtral call an expert's width intermediate_size
    each = _number(text, "moe_intermediate_size", "intermediate_size")
    if each is None:
        return dense
    chosen = _number(text, *CHOSEN_EXPERTS) or 1
    shared = _number(text, "shared_expert_intermediate_size") or each * (
        _number(text, "n_shared_experts") or 0
    )
    if str(text.get("model_type")).startswith("llama4"):
        shared = each
    return max(dense or 0, each * chosen + shared)


def _layers(text: Mapping[str, Any]) -> int | None:
    """Return the number of layers. nemotron_h of 2026 lists their kinds only."""
    kinds = text.get("layers_block_type")
    listed = None
    if isinstance(kinds, list) and kinds:
        listed = len(kinds)
    return _number(text, *_LAYER_KEYS) or listed


def _attention_layers(text: Mapping[str, Any]) -> int | None:
    """Return the number of layers with a KV cache, where only some have one.

    Such models are Qwen3-Next, Jamba, Nemotron-H and granite hybrids.
    """
    kinds = text.get("layer_types")
    if not isinstance(kinds, list):
        return _layers(text)
    named = [kind for kind in kinds if isinstance(kind, str) and "linear" not in kind]
    # a hybrid layer has keys and values, and a state, too
    return sum(kind == "hybrid" or "attention" in kind for kind in named)


def _latent_rank(text: Mapping[str, Any]) -> int | None:
    """Return the elements of a token in the cache of latent attention."""
    rank = _number(text, "kv_lora_rank")
    if not rank:
        return None
    return rank + (_number(text, "qk_rope_head_dim") or 0)


def _quantization(document: Any) -> str | None:
    if not isinstance(document, dict):
        return None
    method = document.get("quant_method") or document.get("quant_algo")
    if not method:
        return None
    return str(method).lower()


def _word(value: Any) -> str | None:
    if isinstance(value, str) and value:
        return str(value).removeprefix("torch.")
    return None
