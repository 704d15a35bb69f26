"""Count a model's parameters from config.json alone, layer by layer.

Pure. The rules follow the classes of huggingface/transformers 5.19
(models/<model_type>/modeling_*.py). `scripts/model_sizes.py` instantiates those classes on the meta
device, and the tests compare: equal within 1 %. Norms, biases and router corrections are not
counted, they are below 0.1 %.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gaudi_launch.core.base.json_values import array
from gaudi_launch.core.models.config import text_part
from gaudi_launch.core.models.config_dialects import in_usual_names
from gaudi_launch.core.models.model import Model

# both: attention and a state side by side; conv: a short convolution with its last inputs
Kind = Literal["full", "sliding", "latent", "linear", "mamba", "both", "conv", "none"]
# the first of these that a layer's name has decides
_KIND_WORDS: tuple[tuple[str, Kind], ...] = (
    ("hybrid", "both"),
    ("conv", "conv"),
    ("linear", "linear"),
    ("mamba", "mamba"),
    ("sliding", "sliding"),
    ("chunked", "sliding"),
    ("attention", "full"),
)
# transformers 5.19: classes without attention, whose config.json lists no kinds of layers
_MAMBA_ONLY = ("mamba", "mamba2", "falcon_mamba")
# gate, up and down; the older families have no gate (their modelling files in transformers)
_GATED, _PLAIN = 3, 2
_PLAIN_TYPES = (
    "gptj", "gpt_neo", "gpt2", "gpt_bigcode", "starcoder2", "bloom", "opt", "falcon", "phi", "mpt",
    "codegen", "xglm", "nemotron", "apertus", "arcee", "jais2", "persimmon", "fuyu", "bert",
    "roberta", "xlm-roberta", "camembert", "electra", "distilbert", "whisper", "bart", "mbart",
    "nanochat",
)  # fmt: skip
_GATED_TYPES = ("phi3", "phimoe", "phi4", "nemotron-nas", "falcon_h1")
# ends of the names of classes without an output head; WRITING_MODELS end so and have one
_HEADLESS = ("ForSequenceClassification", "ForTokenClassification", "RewardModel", "Model")
WRITING_MODELS = (
    "LMHeadModel", "ChatModel", "ChatGLMModel", "AquilaModel", "MiDashengLMModel", "OmniModel",
    "UltravoxModel", "MossAudioModel", "BartModel",
)  # fmt: skip
# families whose output head is their embedding unless config.json says otherwise
_TIED_TYPES = (
    "gemma", "gpt2", "gpt_bigcode", "starcoder2", "bloom", "opt", "falcon", "mpt", "xglm",
    "gpt_neo", "minicpm", "cohere",
)  # fmt: skip
_UNTIED_TYPES = ("gpt_neox",)
# where config.json leaves the width to the class: four times for the plain families; 3.5 is assumed
_MLP_MULTIPLE = 4
_MLP_RATIO = 3.5
# vision towers with a gate in their MLP (models/qwen2_5_vl, gemma4, mllama of transformers)
_GATED_TOWERS = ("qwen2_5_vl", "gemma4", "pixtral")


@dataclass(frozen=True)
class Layer:
    """One layer's parameters: ``attention``, ``mlp`` and ``experts``.

    ``attention`` in the wide sense, ``mlp`` that every token passes.
    """

    kind: Kind
    attention: int = 0
    mlp: int = 0
    experts: int = 0


@dataclass(frozen=True)
class Parameters:
    """A model's parameters by part.

    ``head`` is 0 where it is the embedding; ``tower``: vision and projector.
    """

    embedding: int
    head: int
    layers: tuple[Layer, ...]
    tower: int = 0

    @property
    def language(self) -> int:
        """Return the parameters of the language model."""
        body = sum(layer.attention + layer.mlp + layer.experts for layer in self.layers)
        return self.embedding + self.head + body

    @property
    def total(self) -> int:
        """Return all parameters, with the vision tower."""
        return self.language + self.tower


def parameters_of(model: Model) -> Parameters | None:
    """Return the parameters of ``model`` by part.

    Return None where its layers, hidden size or heads are not known, and for experts by modality
    without the width of each.

    >>> llama = Model("m", "m", layers=32, hidden_size=4096, intermediate_size=14336, heads=32,
    ...     kv_heads=8, head_dim=128, vocab_size=128256)
    >>> found = parameters_of(llama)
    >>> found and round(found.language / 1e9, 2)
    8.03
    """
    if not (model.layers and model.hidden_size):
        return None
    text = text_part(model.config)
    has_heads = bool(model.heads and model.head_dim)
    if not has_heads and not is_attention_free(text):
        return None
    embedding = model.hidden_size * (model.vocab_size or 0)
    if _lists_experts(text) and not _indices(text, "moe_intermediate_size"):
        return None
    layers = tuple(_layer(model, text, index) for index in range(model.layers))
    # gemma3n's and gemma4's second embedding, one row per layer and token
    width = _number(text, "hidden_size_per_layer_input")
    per_layer = width * model.layers * _number(text, "vocab_size_per_layer_input")
    # the parameters of the towers for images and sound, and projectors
    document = model.config.get("thinker_config")
    if not isinstance(document, Mapping):
        document = model.config
    return Parameters(
        embedding=embedding + per_layer,
        head=0 if is_tied(model) or is_headless(model) else embedding,
        layers=layers,
        tower=_vision(model, document) + _audio(model, document),
    )


def is_tied(model: Model) -> bool:
    """Return True if the output head is the input embedding."""
    if model.tie_word_embeddings is not None:
        return model.tie_word_embeddings
    if model.config_sizes.get("tie_word_embeddings"):
        return True
    kind = model.model_type or ""
    return kind.startswith(_TIED_TYPES) and not kind.startswith(_UNTIED_TYPES)


def is_headless(model: Model) -> bool:
    """Return True for a class without an output head: embedders, rerankers."""
    name = model.architecture or ""
    return name.endswith(_HEADLESS) and not name.endswith(WRITING_MODELS)


def is_attention_free(text: Mapping[str, Any]) -> bool:
    """Return True for a model of states only."""
    return text.get("model_type") in _MAMBA_ONLY


def is_plain(model: Model) -> bool:
    """Return True for a family whose MLP has no gate."""
    kind = model.model_type or ""
    return kind.startswith(_PLAIN_TYPES) and not kind.startswith(_GATED_TYPES)


def default_inner(model: Model) -> int:
    """Return the MLP's width where config.json leaves it to the class."""
    hidden = model.hidden_size or 0
    if is_plain(model):
        return _MLP_MULTIPLE * hidden
    return int(_MLP_RATIO * hidden)


def layer_kinds(model: Model) -> tuple[Kind, ...]:
    """Return what each layer caches.

    All keys and values, a window of them, a latent, a state or nothing.
    """
    text = text_part(model.config)
    return tuple(_kind(model, text, index) for index in range(model.layers or 0))


def kv_widths(model: Model, *, shared: bool = True) -> tuple[tuple[int, int], ...]:
    """Return heads and elements of each layer's KV cache.

    For each layer that caches keys and values: its heads and the elements of one head's two rows.

    A window or a chunk is counted as a full cache: every shipped version allocates one
    (profiles/engines/support, section "cache"). MLA's latent is one head that every card keeps.
    ``shared``: the last layers that use an earlier layer's cache have none. () where config.json is
    not known.
    """
    text = text_part(model.config)
    if not (text and model.layers and model.kv_heads and model.head_dim):
        return ()
    found = []
    kinds = layer_kinds(model)
    # gemma4: the last layers use the cache of an earlier one (vllm-project/vllm-gaudi@091bbadd:
    # vllm_gaudi/v1/worker/hpu_model_runner.py, kv_sharing_target_layer_name)
    if shared:
        own = len(kinds) - _number(text, "num_kv_shared_layers")
    else:
        own = len(kinds)
    for kind in kinds[:own]:
        if kind in ("full", "sliding", "latent", "both"):
            found.append(_kv_width(model, text, sliding=kind == "sliding"))
    return tuple(found)


def mla_head_width(model: Model) -> int:
    """Return the elements of a query's head of MLA; 0 where config.json is not known."""
    text = text_part(model.config)
    plain, rope = _number(text, "qk_nope_head_dim"), _number(text, "qk_rope_head_dim")
    return plain + rope if plain else 0


def _kv_width(model: Model, text: Mapping[str, Any], *, sliding: bool) -> tuple[int, int]:
    assert model.kv_heads and model.head_dim
    if model.mla_rank:
        return 1, model.mla_rank
    if sliding and _number(text, "swa_num_key_value_heads"):
        return _number(text, "swa_num_key_value_heads"), _number(text, "swa_head_dim") + _number(
            text, "swa_v_head_dim"
        )
    if not sliding and _number(text, "global_head_dim"):
        heads = _number(text, "num_global_key_value_heads") or model.kv_heads
        return heads, 2 * _number(text, "global_head_dim")
    value = model.head_dim
    # minicpm3 and mimo_v2: values are narrower than keys; MLA's own widths do not reach the cache
    if not _number(text, "kv_lora_rank"):
        value = _number(text, "v_head_dim") or value
    return model.kv_heads, model.head_dim + value


def _kind(model: Model, text: Mapping[str, Any], index: int) -> Kind:
    named = _named_kind(text, index)
    if named == "full" and (_number(text, "kv_lora_rank") or model.mla_rank):
        return "latent"
    return named


def _named_kind(text: Mapping[str, Any], index: int) -> Kind:
    kinds = text.get("layer_types")
    if isinstance(kinds, list) and index < len(kinds):
        # the kind of an entry of layer_types
        for word, kind in _KIND_WORDS:
            if word in str(kinds[index]):
                return kind
        return "none"
    if is_attention_free(text):
        return "mamba"
    return "full"


def _layer(model: Model, text: Mapping[str, Any], index: int) -> Layer:
    kind = _kind(model, text, index)
    if kind == "none":
        # nemotron_h: a layer is either a mixer, an MLP or a block of experts
        mlp, experts = _mlp(model, text, index)
        return Layer(kind, mlp=mlp, experts=experts)
    attention = _mixer(model, text, kind)
    if text.get("model_type") == "nemotron_h" or is_attention_free(text):
        return Layer(kind, attention=attention)
    if _number(text, "num_mem_blocks"):
        return _shared_block(model, text, index)
    mlp, experts = _mlp(model, text, index)
    return Layer(kind, attention=attention, mlp=mlp, experts=experts)


def _mixer(model: Model, text: Mapping[str, Any], kind: Kind) -> int:
    if _number(text, "o_lora_rank"):
        # deepseek_v4: one shared key-value head, low ranks before and after; its compressors and
        # indexers are not counted: 0.2 % of the model
        assert model.hidden_size and model.heads and model.head_dim
        hidden, width = model.hidden_size, model.heads * model.head_dim
        query = _number(text, "q_lora_rank") * (hidden + width)
        out_rank = _number(text, "o_lora_rank")
        output = out_rank * (width + _number(text, "o_groups") * hidden)
        return query + hidden * model.head_dim + output
    count = _MIXERS.get(kind, _attention)
    return count(model, text)


def _attention(model: Model, text: Mapping[str, Any]) -> int:
    """Return an attention layer; a decoder attends to the encoder, too."""
    attentions = 1 + bool(_number(text, "decoder_layers"))
    return attentions * _heads(model, text, sliding=False)


def _window(model: Model, text: Mapping[str, Any]) -> int:
    return _heads(model, text, sliding=True)


def _parallel(model: Model, text: Mapping[str, Any]) -> int:
    """Return an attention and a state side by side."""
    return _heads(model, text, sliding=False) + _mamba(model, text)


@dataclass(frozen=True)
class _HeadSizes:
    """The heads of an attention layer: counts, and elements of a key and a value."""

    heads: int
    kv_heads: int
    key: int
    value: int
    has_values: bool = True


def _head_sizes(model: Model, text: Mapping[str, Any], *, sliding: bool) -> _HeadSizes:
    assert model.heads and model.head_dim
    heads, key = model.heads, model.head_dim
    kv_heads = model.kv_heads or heads
    value = _number(text, "v_head_dim") or key
    wide = _number(text, "global_head_dim")
    if sliding:
        return _HeadSizes(
            _number(text, "swa_num_attention_heads") or heads,
            _number(text, "swa_num_key_value_heads") or kv_heads,
            _number(text, "swa_head_dim") or key,
            _number(text, "swa_v_head_dim") or value,
        )
    if not wide:
        return _HeadSizes(heads, kv_heads, key, value)
    # gemma4: full layers have wider heads, and keys serve as values
    if text.get("attention_k_eq_v"):
        kv_heads = _number(text, "num_global_key_value_heads") or kv_heads
        return _HeadSizes(heads, kv_heads, wide, wide, has_values=False)
    return _HeadSizes(heads, kv_heads, wide, wide)


def _heads(model: Model, text: Mapping[str, Any], *, sliding: bool) -> int:
    assert model.hidden_size
    hidden, sizes = model.hidden_size, _head_sizes(model, text, sliding=sliding)
    queries = 1 + bool(text.get("attn_output_gate"))
    keys = sizes.heads * sizes.key
    projections = queries * keys + sizes.kv_heads * sizes.key + sizes.heads * sizes.value
    query_rank = _number(text, "share_q_dim")
    if query_rank:
        # step3: queries pass a low rank
        projections += query_rank - keys
        projections += query_rank * keys // hidden
    if sizes.has_values:
        projections += sizes.kv_heads * sizes.value
    return hidden * projections


def _latent(model: Model, text: Mapping[str, Any]) -> int:
    assert model.hidden_size and model.heads and model.head_dim
    hidden, heads = model.hidden_size, model.heads
    rank = _number(text, "kv_lora_rank")
    if not rank:
        return 2 * hidden * heads * model.head_dim
    rope = _number(text, "qk_rope_head_dim")
    plain = _number(text, "qk_nope_head_dim") or model.head_dim
    value = _number(text, "v_head_dim") or model.head_dim
    query_rank = _number(text, "q_lora_rank")
    query = hidden * heads * (plain + rope)
    if query_rank:
        query = query_rank * (hidden + heads * (plain + rope))
    keys = hidden * (rank + rope) + rank * heads * (plain + value)
    return query + keys + heads * value * hidden + _indexer(text, hidden)


def _indexer(text: Mapping[str, Any], hidden: int) -> int:
    """Return the parameters that choose the keys of sparse attention.

    Types: deepseek_v32, glm_moe_dsa.
    """
    heads, width = _number(text, "index_n_heads"), _number(text, "index_head_dim")
    return _number(text, "q_lora_rank") * heads * width + hidden * (width + heads)


def _gated_delta(model: Model, text: Mapping[str, Any]) -> int:
    """Return a linear-attention layer's parameters.

    Types: qwen3_next, qwen3_5 (Gated DeltaNet).
    """
    hidden = model.hidden_size or 0
    value_heads = _number(text, "linear_num_value_heads")
    keys = _number(text, "linear_num_key_heads") * _number(text, "linear_key_head_dim")
    values = value_heads * _number(text, "linear_value_head_dim")
    into = hidden * (2 * keys + 2 * values + 2 * value_heads)
    convolution = _number(text, "linear_conv_kernel_dim") * (2 * keys + values)
    return into + convolution + values * hidden


def _linear(model: Model, text: Mapping[str, Any]) -> int:
    """Return the parameters of a layer with linear attention, by its family."""
    assert model.hidden_size
    width = (model.heads or 0) * (model.head_dim or 0)
    if _number(text, "linear_num_value_heads"):
        return _gated_delta(model, text)
    if _number(text, "linear_num_heads"):
        # vllm-project/vllm@0.26:vllm/model_executor/layers/kda.py KimiDeltaAttention
        heads, head = _number(text, "linear_num_heads"), _number(text, "linear_head_dim")
        width = heads * head
        low_ranks = 2 * (model.hidden_size * head + head * width)
        convolutions = 3 * width * _number(text, "linear_conv_kernel_dim")
        return 4 * model.hidden_size * width + low_ranks + convolutions + model.hidden_size * heads
    # MiniMax-Text-01 (lightning attention): queries, keys, values, a gate and the output
    return 5 * model.hidden_size * width


def _short_convolution(model: Model, text: Mapping[str, Any]) -> int:
    """Return a layer of lfm2 without attention (Lfm2ShortConv of transformers)."""
    hidden = model.hidden_size or 0
    return 4 * hidden * hidden + hidden * _number(text, "conv_L_cache")


def _shared_block(model: Model, text: Mapping[str, Any], index: int) -> Layer:
    """Return a layer of zamba2, whose attention and MLP are in a few shared blocks.

    transformers 5.19: models/zamba2/modeling_zamba2.py. A block reads the hidden state and the
    embedding side by side; each use of it has a separate adapter and projection.
    """
    assert model.hidden_size and model.heads and model.head_dim
    hidden, inner = model.hidden_size, _dense_width(model, text)
    mamba = _mamba(model, text)
    kind = _kind(model, text, index)
    if kind != "both":
        return Layer(kind, attention=mamba)
    mlp = hidden * hidden
    if text.get("use_shared_mlp_adapter", True) is not False:
        mlp += _number(text, "adapter_rank") * (hidden + 2 * inner)
    uses = [each for each in range(index) if _kind(model, text, each) == "both"]
    if len(uses) >= _number(text, "num_mem_blocks"):
        return Layer(kind, attention=mamba, mlp=mlp)
    width = model.heads * model.head_dim
    attention = 2 * hidden * 3 * width + width * hidden
    return Layer(kind, attention=mamba + attention, mlp=mlp + _GATED * hidden * inner)


def _mamba(model: Model, text: Mapping[str, Any]) -> int:
    """Return the parameters of a layer of Mamba or Mamba-2.

    Types: mamba, mamba2, falcon_mamba, jamba, bamba, zamba2, falcon_h1, nemotron_h and
    granitemoehybrid.
    """
    hidden = model.hidden_size or 0
    heads = _number(text, "mamba_num_heads", "mamba_n_heads", "n_mamba_heads")
    head = _number(text, "mamba_head_dim", "mamba_d_head", "mamba_headdim")
    if text.get("model_type") == "mamba2":
        heads, head = _number(text, "num_heads"), _number(text, "head_dim")
    if text.get("model_type") in ("mamba", "falcon_mamba", "jamba"):
        heads = head = 0
    inner = _number(text, "mamba_d_ssm") or heads * head
    if not inner and is_attention_free(text):
        inner = _number(text, "intermediate_size")
    inner = inner or hidden * _number(text, "mamba_expand", "expand")
    state = _number(text, "ssm_state_size", "mamba_d_state", "state_size")
    kernel = _number(text, "conv_kernel", "mamba_d_conv")
    if not heads:
        # Mamba: steps of time have a low rank
        rank = _number(text, "time_step_rank", "mamba_dt_rank") or -(-hidden // 16)
        selected = inner * (rank + 2 * state) + rank * inner + inner * state
        return hidden * 2 * inner + inner * kernel + selected + inner * hidden
    states = 2 * (_number(text, "n_groups", "mamba_n_groups", "mamba_ngroups") or 1) * state
    into = hidden * (2 * inner + states + heads)
    return into + (inner + states) * kernel + inner * hidden


_MIXERS: Mapping[Kind, Callable[[Model, Mapping[str, Any]], int]] = {
    "sliding": _window,
    "latent": _latent,
    "linear": _linear,
    "mamba": _mamba,
    "conv": _short_convolution,
    "both": _parallel,
}


def _mlp(model: Model, text: Mapping[str, Any], index: int) -> tuple[int, int]:
    """Return the parameters of a layer's MLP and of its routed experts.

    Every token passes the MLP.
    """
    assert model.hidden_size
    matrices = _PLAIN if is_plain(model) else _GATED
    plain = matrices * model.hidden_size * _dense_width(model, text)
    if _lists_experts(text):
        if index >= _first_modal_layer(text):
            return _modal_experts(model, text)
        return (plain, 0)
    if not (model.moe and model.experts):
        return plain, 0
    if not _has_experts(text, index):
        return plain, 0
    shared, experts = _experts(model, text, matrices)
    # gemma4: each layer has experts in addition to its MLP
    return (shared + plain if text.get("enable_moe_block") else shared), experts


def has_modal_experts(model: Model) -> bool:
    """Return True for experts that config.json lists by modality (ernie4_5_moe_vl)."""
    return _lists_experts(text_part(model.config))


def _lists_experts(text: Mapping[str, Any]) -> bool:
    return isinstance(text.get("moe_num_experts"), list)


def _first_modal_layer(text: Mapping[str, Any]) -> int:
    """Return the first layer with experts, of one number or a list."""
    first = _indices(text, "moe_layer_start_index")
    if first:
        return min(first)
    return _number(text, "moe_layer_start_index")


def _modal_experts(model: Model, text: Mapping[str, Any]) -> tuple[int, int]:
    """Return the shared and the routed parameters of experts by modality.

    transformers 5.19: models/ernie4_5_vl_moe/modeling_ernie4_5_vl_moe.py. Shared experts have the
    width of text experts; each modality has a router.
    """
    assert model.hidden_size
    counts, widths = _indices(text, "moe_num_experts"), _indices(text, "moe_intermediate_size")
    pairs = list(zip(counts, widths, strict=False))
    matrix = _GATED * model.hidden_size
    routed = matrix * sum(count * width for count, width in pairs)
    shared = matrix * _number(text, "moe_num_shared_experts") * widths[0]
    return shared + model.hidden_size * sum(counts), routed


def _dense_width(model: Model, text: Mapping[str, Any]) -> int:
    if not (model.moe and model.experts):
        return _number(text, "intermediate_size") or model.intermediate_size or default_inner(model)
    named = _number(
        text,
        "dense_intermediate_size",
        "intermediate_size_mlp",
        "intermediate_size",
        "ffn_hidden_size",
    )
    return named or model.intermediate_size or default_inner(model)


def _has_experts(text: Mapping[str, Any], index: int) -> bool:
    if text.get("model_type") == "nemotron_h":
        kinds = text.get("layers_block_type")
        pattern = text.get("hybrid_override_pattern")
        if isinstance(kinds, list):
            return bool(kinds[index] == "moe")
        return isinstance(pattern, str) and pattern[index] == "E"
    # written by transformers 5 for every family with dense layers among those with experts
    kinds = text.get("mlp_layer_types")
    if isinstance(kinds, list) and index < len(kinds):
        return bool(kinds[index] != "dense")
    frequency = text.get("moe_layer_freq")
    if isinstance(frequency, list) and index < len(frequency):
        return bool(frequency[index])
    if index < _number(text, "first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"):
        return False
    if index in _indices(text, "mlp_only_layers"):
        return False
    every = (
        _number(text, "interleave_moe_layer_step", "decoder_sparse_step", "expert_layer_period")
        or 1
    )
    return (index + 1) % every == 0


def _experts(model: Model, text: Mapping[str, Any], matrices: int) -> tuple[int, int]:
    """Return the shared and the routed parameters of one layer with experts.

    The router is counted as shared.
    """
    assert model.hidden_size and model.experts
    hidden = model.hidden_size
    width = (
        _number(text, "moe_intermediate_size", "intermediate_size") or model.intermediate_size or 0
    )
    # nemotron_h of 2026: experts work on a narrower copy of the hidden state
    latent = _number(text, "moe_latent_size")
    routed = matrices * (latent or hidden) * width * model.experts
    shared = matrices * hidden * _shared_width(text, width)
    return shared + 2 * hidden * latent + hidden * model.experts, routed


def _shared_width(text: Mapping[str, Any], width: int) -> int:
    named = _number(
        text, "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
        "share_expert_dim", "shared_intermediate_size",
    )  # fmt: skip
    if named:
        return named
    if str(text.get("model_type")).startswith("llama4"):
        return width
    return width * _shared_experts(text)


def _shared_experts(text: Mapping[str, Any]) -> int:
    """Return the number of shared experts; hunyuan_v1_moe lists one number a layer."""
    each = text.get("num_shared_expert")
    if isinstance(each, list):
        return max((count for count in each if isinstance(count, int)), default=0)
    return _number(
        text,
        "n_shared_experts",
        "num_shared_experts",
        "num_shared_expert",
        "moe_num_shared_experts",
    )


def _audio(model: Model, document: Mapping[str, Any]) -> int:
    """Return an encoder for sound of Whisper's kind and one projection."""
    part = document.get("audio_config")
    if _number(document, "decoder_layers"):
        part = document
    if not isinstance(part, Mapping):
        return 0
    audio = in_usual_names(part, str(part.get("model_type")), is_part=True)
    hidden = _number(audio, "d_model", "hidden_size")
    inner = _number(audio, "encoder_ffn_dim", "intermediate_size")
    depth = _number(audio, "encoder_layers", "num_hidden_layers")
    front = 3 * hidden * (_number(audio, "num_mel_bins") + hidden)
    blocks = depth * (4 * hidden * hidden + _PLAIN * hidden * inner)
    positions = _number(audio, "max_source_positions") * hidden
    projection = 0 if part is document else hidden * (model.hidden_size or 0)
    return front + blocks + positions + projection


def _vision(model: Model, document: Mapping[str, Any]) -> int:
    part = document.get("vision_config") or document.get("vit_config")
    if not isinstance(part, Mapping):
        return 0
    vision = in_usual_names(part, str(part.get("model_type")), is_part=True)
    # qwen2_vl: embed_dim is the tower's width, hidden_size that of its output
    hidden = _number(vision, "embed_dim", "hidden_size", "vt_hidden_size")
    inner = _number(vision, "intermediate_size", "vt_intermediate_size")
    # ernie4_5_moe_vl (Ernie4_5_VLVisionMLP) and qwen2_vl
    if not inner:
        inner = hidden * _number(vision, "mlp_ratio")
    depth = _number(vision, "depth", "num_hidden_layers", "vt_num_hidden_layers")
    gated = str(vision.get("model_type")).startswith(_GATED_TOWERS) and "qwen3" not in str(
        vision.get("model_type")
    )
    matrices = _GATED if gated else _PLAIN
    blocks = depth * (4 * hidden * hidden + matrices * hidden * inner)
    patch = (
        _number(vision, "patch_size") ** 2
        * 3
        * (_number(vision, "temporal_patch_size") or 1)
        * hidden
    )
    positions = hidden * _number(vision, "num_position_embeddings")
    return blocks + patch + positions + _mergers(vision, hidden, model.hidden_size or 0)


def _mergers(vision: Mapping[str, Any], hidden: int, text_hidden: int) -> int:
    """Return the projectors' parameters.

    There is one for each layer that the language model sees.
    """
    merge = _number(vision, "spatial_merge_size") or 1
    merged = hidden * merge * merge
    out = _number(vision, "out_hidden_size", "projection_dim") or text_hidden
    count = 1 + len(array(vision.get("deepstack_visual_indexes")))
    if merge == 1:
        return hidden * out
    return count * merged * (merged + out)


def _indices(text: Mapping[str, Any], name: str) -> tuple[int, ...]:
    value = text.get(name)
    if not isinstance(value, list):
        return ()
    return tuple(item for item in value if isinstance(item, int))


def _number(document: Mapping[str, Any], *names: str) -> int:
    """Return the first of these that is a positive number; 0 without one."""
    for name in names:
        value = document.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0
