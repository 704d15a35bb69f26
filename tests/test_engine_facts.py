"""The script that reads what an engine version runs.

The syntax tree and the executed modules agree."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch import paths

SCRIPT = Path(__file__).parent.parent / "scripts" / "engine_facts.py"
SHIPPED = paths.profiles_dir() / "engines" / "support"

REGISTRY = """
import cloudpickle
import torch.nn as nn
from vllm.logger import init_logger
from .interfaces import is_hybrid

logger = init_logger(__name__)
_TEXT_GENERATION_MODELS = {
    "LlamaForCausalLM": ("llama", "LlamaForCausalLM"),
    "MistralForCausalLM": ("llama", "LlamaForCausalLM"),
    "JambaForCausalLM": (
        "jamba",
        "JambaForCausalLM",
    ),
}
_EMBEDDING_MODELS = {
    "BertModel": ("bert", "BertEmbeddingModel"),
    **{
        k: (mod, arch) for k, (mod, arch) in _TEXT_GENERATION_MODELS.items()
        if arch == "LlamaForCausalLM"
    },
}
_VLLM_MODELS = {**_TEXT_GENERATION_MODELS, **_EMBEDDING_MODELS}
_PREVIOUSLY_SUPPORTED_MODELS = {"OldForCausalLM": "0.9.2"}


class _ModelRegistry:
    def __init__(self, models: dict[str, nn.Module | None]) -> None:
        self.models = models


ModelRegistry = _ModelRegistry(_VLLM_MODELS)
"""
PLATFORM = """
import torch
from vllm.platforms import Platform, PlatformEnum


class HpuPlatform(Platform):
    _enum = PlatformEnum.HPU
    supported_quantization: list[str] = ["fp8", "inc"]
"""
ENVS = """
import os
from typing import Any, Callable

environment_variables: dict[str, Callable[[], Any]] = {
    "VLLM_PORT": lambda: int(os.getenv("VLLM_PORT", "8000")),
    "VLLM_CACHE_ROOT": lambda: os.path.expanduser(os.getenv("VLLM_CACHE_ROOT", "~/.cache/vllm")),
}
"""
LLAMA = """
from vllm.attention import Attention


class LlamaAttention(nn.Module):
    def __init__(self, window):
        self.attn = Attention(8, 64, per_layer_sliding_window=window)


class LlamaForCausalLM(nn.Module, SupportsLoRA, SupportsPP):
    layer = LlamaAttention
"""
JAMBA = """
from vllm.model_executor.layers.mamba.mamba_mixer import MambaMixer
from .llama import LlamaAttention

LAYERS = {"attention": LlamaAttention, "mamba": MambaMixer}


class Base(IsHybrid):
    pass


class JambaForCausalLM(nn.Module, Base):
    def __init__(self, kind):
        self.layer = LAYERS[kind]()
"""
CACHE_ENGINE = """
class CacheEngine:
    @staticmethod
    def get_cache_block_size(cache_config, model_config, parallel_config) -> int:
        num_attention_layers = model_config.get_num_layers_by_block_type(
            parallel_config, LayerBlockType.attention
        )
        heads = model_config.get_num_kv_heads(parallel_config)
        key_cache_entry = heads * model_config.get_head_size()
        value_cache_entry = key_cache_entry if not model_config.use_mla else 0
        total = num_attention_layers * (key_cache_entry + value_cache_entry)
        total *= cache_config.block_size
        return get_dtype_size(model_config.dtype) * total
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
MODELS = {
    "llama": LLAMA,
    "jamba": JAMBA,
    "bert": "class BertEmbeddingModel(nn.Module):\n    pass\n",
}
ARGUMENTS = """
class EngineArgs:
    max_num_seqs: int = SchedulerConfig.max_num_seqs
    seed: int = 0

    def add(parser):
        parser.add_argument("--max-num-seqs", type=int, default=EngineArgs.max_num_seqs)
        parser.add_argument("--seed", **kwargs["seed"])
"""
CONFIG = """
class SchedulerConfig:
    max_num_seqs: int = Field(default=128, ge=1)


class ModelConfig:
    def is_deepseek_mla(self) -> bool:
        return self.hf_text_config.model_type in ("deepseek_v3", "kimi_k2")
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "engine"
    files = {
        "vllm/model_executor/models/registry.py": REGISTRY,
        "vllm/platforms/hpu.py": PLATFORM,
        "vllm/envs.py": ENVS,
        "vllm/engine/arg_utils.py": ARGUMENTS,
        "vllm/config.py": CONFIG,
        "vllm/worker/cache_engine.py": CACHE_ENGINE,
        "requirements/common.txt": "transformers >= 4.57.0, <= 4.57.1  # pinned\n",
        "README_GAUDI.md": (
            "- [a/B](https://huggingface.co/a/B) on single HPU, or with 2x and 8x HPU, BF16\n"
        ),
        **{f"vllm/model_executor/models/{name}.py": text for name, text in MODELS.items()},
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def read(checkout: Path, out: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(SCRIPT), "read", "vllm-fork", "9.9", "--checkout", str(checkout)]
    argv += ["--repository", "a/b", "--commit", "0" * 12, "--date", "2026-01-02", "--out", str(out)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120)


def facts(checkout: Path, out: Path) -> dict[str, Any]:
    answer = read(checkout, out)
    assert answer.returncode == 0, answer.stderr
    document: dict[str, Any] = json.loads((out / "vllm-fork-9.9.json").read_text(encoding="utf-8"))
    return document


def test_a_checkout_is_read_and_executed(checkout: Path, tmp_path: Path) -> None:
    found = facts(checkout, tmp_path / "out")
    assert found["read_by"]["models"] == ["ast", "import"]
    assert found["read_by"]["quantization"] == ["ast", "import"]
    assert found["models"] == {
        "BertModel": {
            "class": "BertEmbeddingModel",
            "interfaces": [],
            "layers": [],
            "module": "bert",
            "tasks": ["pool"],
        },
        "JambaForCausalLM": {
            "class": "JambaForCausalLM",
            "interfaces": ["hybrid"],
            "layers": ["full", "sliding", "state"],
            "module": "jamba",
            "tasks": ["generate"],
        },
        **{
            name: {
                "class": "LlamaForCausalLM",
                "interfaces": ["lora", "pipeline"],
                "layers": ["full", "sliding"],
                "module": "llama",
                "tasks": ["generate", "pool"],
            }
            for name in ("LlamaForCausalLM", "MistralForCausalLM")
        },
    }
    assert found["quantization"]["supported"] == ["fp8", "inc"]
    assert found["removed"] == {"OldForCausalLM": "0.9.2"}
    assert found["options"]["--max-num-seqs"]["default"] == "128"
    assert found["options"]["--seed"]["default"] == "0"
    assert found["environment"]["VLLM_PORT"] == {
        "default": "'8000'",
        "read_by": ["vllm/envs.py:6"],
        "value": 8000,
    }
    assert found["environment"]["VLLM_CACHE_ROOT"]["value"] == "?"
    assert found["transformers"] == {"common.txt": ">=4.57.0,<=4.57.1"}
    assert found["mla"]["model_types"] == ["deepseek_v3", "kimi_k2"]
    assert [(each["model"], each["cards"]) for each in found["validated"]] == [("a/B", [1, 2, 8])]


def test_a_fork_allocates_by_its_cache_engine(checkout: Path, tmp_path: Path) -> None:
    found = facts(checkout, tmp_path / "out")
    place = "vllm/worker/cache_engine.py"
    assert found["read_by"]["cache"] == ["ast", "import"]
    assert found["cache"] == {
        "full": {"allocates": "full", "source": f"{place}:9"},
        "sliding": {"allocates": "full", "source": f"{place}:9"},
        "chunked": {"allocates": "full", "source": f"{place}:9"},
        "latent": {"allocates": "latent", "source": f"{place}:10"},
        "state": {"allocates": "model", "source": f"{place}:5"},
    }


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    folder = tmp_path / "plugin"
    for name, text in {"platform.py": PLATFORM, "v1/worker/hpu_model_runner.py": RUNNER}.items():
        path = folder / "vllm_gaudi" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_the_plugin_allocates_by_its_runner(plugin: Path, tmp_path: Path) -> None:
    found = facts(plugin, tmp_path / "out")
    assert found["read_by"]["cache"] == ["ast", "import"]
    assert {kind: entry["allocates"] for kind, entry in found["cache"].items()} == {
        "full": "full",
        "sliding": "full",
        "chunked": "full",
        "latent": "latent",
        "state": "state",
        "encoder": "none",
        "cross": "refused",
    }
    assert found["cache"]["state"]["source"] == "vllm_gaudi/v1/worker/hpu_model_runner.py:8"


def test_a_runner_that_knows_windows_needs_another_rule(plugin: Path, tmp_path: Path) -> None:
    path = plugin / "vllm_gaudi/v1/worker/hpu_model_runner.py"
    path.write_text(RUNNER.replace("FullAttentionSpec(", "SlidingWindowSpec("), encoding="utf-8")
    answer = read(plugin, tmp_path / "out")
    assert answer.returncode != 0
    assert "the cache depends on 'Window'" in answer.stderr


def test_an_allocation_that_executes_to_something_else_is_refused(
    checkout: Path, tmp_path: Path
) -> None:
    path = checkout / "vllm/worker/cache_engine.py"
    path.write_text(CACHE_ENGINE.replace("else 0", "else 1"), encoding="utf-8")
    answer = read(checkout, tmp_path / "out")
    assert answer.returncode != 0
    assert "cache: read and executed differ" in answer.stderr


def test_a_name_drawn_at_random_is_no_value(checkout: Path, tmp_path: Path) -> None:
    path = checkout / "vllm/envs.py"
    drawn = '    "VLLM_NAME": lambda: os.getenv("VLLM_NAME", NAME),\n}\n'
    text = ENVS.replace("}\n", drawn).replace(
        "import os", "import os\nimport uuid\n\nNAME = uuid.uuid4().hex", 1
    )
    path.write_text(text, encoding="utf-8")
    assert facts(checkout, tmp_path / "out")["environment"]["VLLM_NAME"]["value"] == "?"


def test_a_name_that_is_drawn_and_exported_is_no_value(checkout: Path, tmp_path: Path) -> None:
    path = checkout / "vllm/envs.py"
    drawn = '    "VLLM_NAME": lambda: os.environ.setdefault("VLLM_NAME", uuid.uuid4().hex),\n}\n'
    path.write_text(
        ENVS.replace("}\n", drawn).replace("import os", "import os\nimport uuid", 1),
        encoding="utf-8",
    )
    assert facts(checkout, tmp_path / "out")["environment"]["VLLM_NAME"]["value"] == "?"


def test_no_shipped_value_was_drawn_at_random() -> None:
    drawn = re.compile(r"[0-9a-f]{32}")
    for path in SHIPPED.glob("*-*.json"):
        variables = json.loads(path.read_text(encoding="utf-8")).get("environment", {})
        found = [name for name, entry in variables.items() if drawn.search(str(entry.get("value")))]
        assert found == [], path.name


def test_the_same_commit_gives_the_same_file(checkout: Path, tmp_path: Path) -> None:
    assert facts(checkout, tmp_path / "one") == facts(checkout, tmp_path / "two")


def test_a_registry_that_executes_to_something_else_is_refused(
    checkout: Path, tmp_path: Path
) -> None:
    path = checkout / "vllm/model_executor/models/registry.py"
    path.write_text(REGISTRY + '_VLLM_MODELS["Late"] = ("late", "Late")\n', encoding="utf-8")
    answer = read(checkout, tmp_path / "out")
    assert answer.returncode != 0
    assert "models: read and executed differ" in answer.stderr


def test_every_complete_shipped_version_was_read_and_executed() -> None:
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in SHIPPED.glob("*-*.json")]
    complete = [document for document in documents if "removed" in document]
    assert len(complete) >= 19
    for document in complete:
        assert document["read_by"]["models"] == ["ast", "import"], document["version"]
        assert document["read_by"]["quantization"] == ["ast", "import"], document["version"]
        assert document["read_by"]["cache"] == ["ast", "import"], document["version"]


def test_no_shipped_version_keeps_a_window_only() -> None:
    # sizing counts a window as a full cache: a version that does otherwise needs another count
    rows = json.loads((SHIPPED / "index.json").read_text(encoding="utf-8"))["versions"]
    kinds = ("full", "sliding", "chunked", "latent")
    found = {tuple(row["cache"][kind]["allocates"] for kind in kinds) for row in rows}
    assert found == {("full", "full", "full", "latent")}


def test_the_shipped_mla_types_are_those_of_the_shipped_files() -> None:
    shipped = json.loads((SHIPPED / "mla.json").read_text(encoding="utf-8"))
    listed = set()
    for path in SHIPPED.glob("*.json"):
        listed |= set(
            json.loads(path.read_text(encoding="utf-8")).get("mla", {}).get("model_types", ())
        )
    assert all(
        place.startswith(("vllm-", "deepseek_r1@")) for place in shipped["model_types"].values()
    )
    assert set(shipped["model_types"]) == listed


def test_the_shipped_index_is_that_of_the_shipped_files() -> None:
    index = json.loads((SHIPPED / "index.json").read_text(encoding="utf-8"))
    documents = {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in SHIPPED.glob("*-*.json")
    }
    assert len(index["versions"]) == len(documents)
    for number, row in enumerate(index["versions"]):
        document = documents[f"{row['engine']}-{row['version']}"]
        assert row["commit"] == document["commit"]
        listed = {name for name, numbers in index["models"].items() if number in numbers}
        assert listed == set(document["models"])
