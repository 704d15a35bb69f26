"""Makes model folders.

Run by path in the engine's interpreter, which has torch and transformers; never imported.

python make_demo.py gguf FILE.gguf OUT     the weights of a GGUF file as a Hugging Face folder,
float32 python make_demo.py tiny OUT               a random Llama of a few megabytes, for tests
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# engines on transformers 4 cannot read the tokenizer class that transformers 5 writes
_PLAIN_TOKENIZER = "PreTrainedTokenizerFast"
_CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def from_gguf(source: Path, target: Path) -> None:
    """Dequantise a GGUF file into a folder that every engine loads."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where: dict[str, Any] = {"gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(str(source.parent), **where)
    loaded = AutoModelForCausalLM.from_pretrained(str(source.parent), dtype=torch.float32, **where)
    # a model that remembers its GGUF file refuses to be saved
    loaded.config.__dict__.pop("quantization_config", None)
    model = type(loaded)(loaded.config).to(torch.float32)
    model.load_state_dict(loaded.state_dict())
    model.tie_weights()
    model.config.architectures = [type(model).__name__]
    save(model, tokenizer, target)


def tiny(target: Path) -> None:
    """Write a random Llama whose tokenizer knows the standard library's sources.

    It has 2 layers and a hidden size of 128.
    """
    import os

    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1024, special_tokens=special, initial_alphabet=alphabet
    )
    sources = sorted(Path(os.__file__).parent.glob("*.py"))[:20]
    tokenizer.train([str(path) for path in sources], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", chat_template=_CHAT_TEMPLATE
    )
    torch.manual_seed(0)
    # head_dim 32: the CPU attention of vLLM has no kernel for 16
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        eos_token_id=fast.eos_token_id,
        tie_word_embeddings=True,
    )
    save(LlamaForCausalLM(config).to(torch.float32), fast, target)


def save(model: Any, tokenizer: Any, target: Path) -> None:
    """Write a model and its tokenizer, the tokenizer under its plain class name."""
    target.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(str(target))
    tokenizer.save_pretrained(str(target))
    path = target / "tokenizer_config.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["tokenizer_class"] = _PLAIN_TOKENIZER
    path.write_text(json.dumps(document, ensure_ascii=False, indent=2), encoding="utf-8")


def main(words: list[str]) -> None:
    if words[:1] == ["gguf"] and len(words) == 3:
        from_gguf(Path(words[1]), Path(words[2]))
    elif words[:1] == ["tiny"] and len(words) == 2:
        tiny(Path(words[1]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
