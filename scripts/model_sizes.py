"""Write the parameters of transformers' classes for given configurations.

Run it in an interpreter with torch and transformers (that of an installed engine):

    python scripts/model_sizes.py OUTPUT.json SOURCE CONFIG.json...

Each class is instantiated on the meta device: no weight is made. The output has, for each
configuration, what config.json says (without long lists of other tools), the class, the parameters
by part and the versions used. The same configurations give the same file.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

# kept from config.json: all numbers, flags and lists by which a class is built
_LEFT_OUT = (
    "auto_map",
    "quantization_config",
    "id2label",
    "label2id",
    "rope_parameters",
    "image_grid_pinpoints",
)


def instantiate(document: dict[str, Any]) -> Any:
    """Return the model of a configuration on the meta device.

    Raises what transformers raises.
    """
    import torch
    import transformers

    document = {
        key: value
        for key, value in document.items()
        if key not in ("auto_map", "quantization_config")
    }
    config = transformers.AutoConfig.for_model(**document)
    names = document.get("architectures") or []
    build = transformers.AutoModelForCausalLM.from_config
    if names:
        build = getattr(transformers, names[0], build)
    with torch.device("meta"):
        model = build(config)
    model.tie_weights()
    return model


def count(model: Any) -> dict[str, int]:
    """Return the parameters by part; tied ones are counted once.

    The parts are embedding, head, vision, experts, rest and total.
    """
    parts = dict.fromkeys(("embedding", "head", "tower", "experts", "rest"), 0)
    seen = set()
    for name, parameter in model.named_parameters():
        if id(parameter) in seen:
            continue
        seen.add(id(parameter))
        parts[_part(name)] += parameter.numel()
    return {**parts, "total": sum(parts.values())}


def _part(name: str) -> str:
    if any(word in name for word in ("vision", "visual", "projector", "audio", "vit.")):
        return "tower"
    if "embed_tokens" in name or name.endswith(
        ("wte.weight", "word_embeddings.weight", "embeddings.weight")
    ):
        return "embedding"
    if name.startswith("lm_head") or ".lm_head" in name:
        return "head"
    if ".experts." in name:
        return "experts"
    return "rest"


def reduced(value: Any) -> Any:
    """Return a configuration without what no count depends on."""
    if isinstance(value, dict):
        return {key: reduced(item) for key, item in value.items() if _counts(key, item)}
    return value


def _counts(key: str, item: Any) -> bool:
    return (
        key not in _LEFT_OUT and not key.endswith(("_token_id", "_token_ids")) and item is not None
    )


def main(argv: list[str]) -> int:
    """Write OUTPUT for the configurations named in ``argv``."""
    import torch
    import transformers

    warnings.filterwarnings("ignore")
    output, source, *files = argv
    models, without = {}, {}
    for file in sorted(files, key=lambda name: Path(name).name.lower()):
        name = Path(file).name.removesuffix("_config.json").removesuffix(".json").replace("--", "/")
        document = json.loads(Path(file).read_text(encoding="utf-8"))
        try:
            model = instantiate(document)
        except Exception as error:
            # transformers raises anything for a configuration that its class cannot read
            without[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
            continue
        counted = count(model)
        models[name] = {
            "class": type(model).__name__,
            "parameters": counted,
            "config": reduced(document),
        }
    found = {
        "schema": 1,
        "source": source,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "models": models,
        "not_instantiated": without,
    }
    Path(output).write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{len(models)} models, {len(without)} that could not be instantiated", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
