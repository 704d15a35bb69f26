"""A stand-in for an installed vllm-gaudi and its vLLM, of any release number.

Its bucket code has the rules that a test gives it, its parser and its variables are a few. Nothing
of it is the engine's code.
"""

from __future__ import annotations

import sys
import venv
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy

from gaudi_launch.core.buckets.ladder_rules import LadderRules
from tests.support.places import TOP

_REGISTRY = """
_TEXT_GENERATION_MODELS = {
    "LlamaForCausalLM": ("llama", "LlamaForCausalLM"),
    "Qwen3ForCausalLM": ("llama", "LlamaForCausalLM"),
}
_VLLM_MODELS = {**_TEXT_GENERATION_MODELS}
_PREVIOUSLY_SUPPORTED_MODELS = {}
"""
_LLAMA = """
from vllm.attention import Attention


class LlamaForCausalLM(SupportsLoRA, SupportsPP):
    def __init__(self):
        self.attn = Attention(8, 64)
"""
_PLATFORM = """
class HpuPlatform:
    supported_quantization: list[str] = ["fp8", "inc"]
"""
RUNNER = """
class HPUModelRunner:
    def get_kv_cache_spec(self) -> dict[str, KVCacheSpec]:
        kv_cache_spec: dict[str, KVCacheSpec] = {}
        context = self.vllm_config.compilation_config.static_forward_context
        for layer_name, attn_module in context.items():
            if isinstance(attn_module, MambaBase):
                kv_cache_spec[layer_name] = attn_module.get_kv_cache_spec(self.vllm_config)
            elif isinstance(attn_module, Attention):
                if attn_module.attn_type == AttentionType.DECODER:
                    heads = attn_module.num_kv_heads
                    kv_cache_spec[layer_name] = FullAttentionSpec(num_kv_heads=heads)
                elif attn_module.attn_type in (AttentionType.ENCODER, AttentionType.ENCODER_ONLY):
                    continue
                elif attn_module.attn_type == AttentionType.ENCODER_DECODER:
                    raise NotImplementedError
            elif isinstance(attn_module, MLAAttention):
                kv_cache_spec[layer_name] = MLAAttentionSpec(num_kv_heads=1)
        return kv_cache_spec
"""
_CONFIG = """
class ModelConfig:
    def is_deepseek_mla(self):
        return self.hf_text_config.model_type in ("deepseek_v3",)
"""
_PLATFORMS = """
class CurrentPlatform:
    device_type = "hpu"


current_platform = CurrentPlatform()
"""
_ARGUMENTS = """
class EngineArgs:
    seed: int = 0

    def add(parser):
OPTIONS
"""
_CLI = """
def make_arg_parser(parser):
OPTIONS
    return parser
"""
_PARSER = "from argparse import ArgumentParser as FlexibleArgumentParser\n"
_BUCKETS = """
import os
import sys

sys.path += PLACES
import numpy  # once: each copy of this process would import it
from gaudi_launch.core.buckets.engine_buckets import (
    algorithm_of, engine_buckets, engine_model, lookups
)
from gaudi_launch.core.buckets.families import ladder_name
from gaudi_launch.core.buckets.ladder_rules import LadderRules

FAMILY = ladder_name(LadderRules(**RULES))
NAMES = ("max_num_seqs", "max_num_prefill_seqs", "block_size", "max_num_batched_tokens")


class ExponentialBucketing:
    pass


class HPUBucketingManager:
    def initialize(self, *sizes, **more):
        self.args = dict(zip((*NAMES, "max_model_len"), sizes), **more)
        file = os.environ.get("VLLM_BUCKETING_FROM_FILE")
        if file:
            self.args["bucket_file"] = open(file).read()

    def get_bucketing_strategy(self):
        found = algorithm_of(FAMILY, os.environ, with_limit=False)
        return type(found.capitalize() + "Bucketing", (), {})()

    def case(self):
        return FAMILY, algorithm_of(FAMILY, os.environ, with_limit=False), os.environ, self.args

    def generate_prompt_buckets(self):
        self.prompt_buckets = engine_model(*self.case()).prompt.buckets()

    def generate_decode_buckets(self):
        self.args["num_hpu_blocks"] = self.num_hpu_blocks
        self.args["skip_decode_block_clamp"] = getattr(self, "skip_decode_block_clamp", False)
        self.decode_buckets = engine_buckets(*self.case()).decode
        self.rule = lookups(*self.case(), remember=True)

    def find_prompt_bucket(self, batch, query, context):
        return self.rule.prompt(batch, query, context).bucket

    def find_decode_bucket(self, batch, blocks):
        return self.rule.decode(batch, blocks).bucket
"""


_RULES = LadderRules(decode_top="sequences")


@dataclass(frozen=True)
class StandInRelease:
    """Contents of the stand-in for one release."""

    version: str
    rules: LadderRules = _RULES
    options: tuple[str, ...] = ("--max-model-len", "--seed")
    variables: tuple[str, ...] = ("VLLM_CONTIGUOUS_PA",)


def _files(release: StandInRelease) -> Mapping[str, str]:
    written = "\n".join(f'        parser.add_argument("{name}")' for name in release.options)
    plain = "\n".join(f'    parser.add_argument("{name}")' for name in release.options)
    reads = "\n".join(f'os.environ.get("{name}")' for name in release.variables)
    # its bucket code is ours, which needs numpy
    places = [str(TOP), str(Path(numpy.__file__).parents[1])]
    buckets = _BUCKETS.replace("RULES)", f"{asdict(release.rules)!r})").replace(
        "PLACES", repr(places)
    )
    return {
        "vllm/__init__.py": "",
        "vllm/envs.py": "environment_variables = {}\n",
        "vllm/config.py": _CONFIG,
        "vllm/platforms/__init__.py": _PLATFORMS,
        "vllm/utils/__init__.py": "",
        "vllm/utils/argparse_utils.py": _PARSER,
        "vllm/engine/arg_utils.py": _ARGUMENTS.replace("OPTIONS", written),
        "vllm/entrypoints/openai/cli_args.py": _CLI.replace("OPTIONS", plain),
        "vllm/model_executor/models/registry.py": _REGISTRY,
        "vllm/model_executor/models/llama.py": _LLAMA,
        "vllm_gaudi/__init__.py": "",
        "vllm_gaudi/platform.py": _PLATFORM,
        "vllm_gaudi/extension/__init__.py": "",
        "vllm_gaudi/extension/features.py": f"import os\n{reads}\n",
        "vllm_gaudi/extension/bucketing/__init__.py": "",
        "vllm_gaudi/extension/bucketing/common.py": buckets,
        "vllm_gaudi/v1/worker/hpu_model_runner.py": RUNNER,
        f"vllm_gaudi-{release.version}.dist-info/METADATA": _metadata(
            "vllm-gaudi", release.version
        ),
        "vllm-0.26.0.dist-info/METADATA": _metadata("vllm", "0.26.0", "transformers>=5.5.3"),
    }


def _metadata(name: str, version: str, *requires: str) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    return "\n".join([*lines, *(f"Requires-Dist: {each}" for each in requires), ""])


def install(folder: Path, release: StandInRelease) -> Path:
    """Make an environment with this release in ``folder``; return its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    number = "{}.{}".format(*sys.version_info)
    site = folder / "lib" / f"python{number}" / "site-packages"
    for name, text in _files(release).items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "bin" / "python"


def packages(python: Path) -> Path:
    """Return the folder with the packages of an interpreter of `install`."""
    return next((python.parent.parent / "lib").glob("python*/site-packages"))
