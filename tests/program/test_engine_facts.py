"""The script that reads what a release runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base import paths
from gaudi_launch.core.engines.facts.reading import plugin_parsers
from tests.support.places import TOP
from tests.support.stand_in_release import RUNNER

SCRIPT = TOP / "scripts" / "engine_facts.py"
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
        "vllm_gaudi/platform.py": PLATFORM,
        "vllm/envs.py": ENVS,
        "vllm/engine/arg_utils.py": ARGUMENTS,
        "vllm/config.py": CONFIG,
        "vllm_gaudi/v1/worker/hpu_model_runner.py": RUNNER,
        "requirements/common.txt": "transformers >= 4.57.0, <= 4.57.1  # pinned\n",
        "docs/validated_models.md": (
            "| [a/B](https://huggingface.co/a/B) | 1, 2, 8 | BF16 | Gaudi 3 |\n"
        ),
        **{f"vllm/model_executor/models/{name}.py": text for name, text in MODELS.items()},
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def read(checkout: Path, out: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(SCRIPT), "read", "vllm-gaudi", "9.9", "--checkout", str(checkout)]
    argv += [
        "--upstream",
        str(checkout),
        "--repository",
        "a/b",
        "--commit",
        "0" * 12,
        "--date",
        "2026-01-02",
        "--out",
        str(out),
    ]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120)


def facts(checkout: Path, out: Path) -> dict[str, Any]:
    answer = read(checkout, out)
    assert answer.returncode == 0, answer.stderr
    document: dict[str, Any] = json.loads((out / "vllm-gaudi-9.9.json").read_text(encoding="utf-8"))
    return document


def test_a_checkout_is_read_and_executed(checkout: Path, tmp_path: Path) -> None:
    found = facts(checkout, tmp_path / "out")
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
        "unused": True,
    }
    assert found["transformers"] == {"common.txt": ">=4.57.0,<=4.57.1"}
    assert found["mla"]["model_types"] == ["deepseek_v3", "kimi_k2"]
    assert [(each["model"], each["cards"]) for each in found["validated"]] == [("a/B", [1, 2, 8])]


def test_the_plugin_allocates_by_its_runner(checkout: Path, tmp_path: Path) -> None:
    found = facts(checkout, tmp_path / "out")
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


def test_a_runner_that_knows_windows_needs_another_rule(checkout: Path, tmp_path: Path) -> None:
    path = checkout / "vllm_gaudi/v1/worker/hpu_model_runner.py"
    path.write_text(RUNNER.replace("FullAttentionSpec(", "SlidingWindowSpec("), encoding="utf-8")
    answer = read(checkout, tmp_path / "out")
    assert answer.returncode != 0
    assert "the cache depends on 'Window'" in answer.stderr


def test_the_same_commit_gives_the_same_file(checkout: Path, tmp_path: Path) -> None:
    assert facts(checkout, tmp_path / "one") == facts(checkout, tmp_path / "two")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (('"bert", ', "BERT, "), "an entry of another form: (BERT, 'BertEmbeddingModel')"),
        (("if arch == ", "if arch != "), "another form: {k: (mod, arch) for"),
        (("{**_TEXT", "{**_OTHER"), "_VLLM_MODELS is not made of known groups"),
        (
            ("\n\nclass _Model", '\n_VLLM_MODELS["x"] = ("x", "X")\n\n\nclass _Model'),
            "changed later",
        ),
    ],
)
def test_a_registry_of_another_form_is_refused(
    checkout: Path, tmp_path: Path, change: tuple[str, str], why: str
) -> None:
    path = checkout / "vllm/model_executor/models/registry.py"
    path.write_text(REGISTRY.replace(*change), encoding="utf-8")
    answer = read(checkout, tmp_path / "out")
    assert answer.returncode != 0
    assert why in answer.stderr


def test_the_parsers_of_the_plugin_are_read_in_each_form(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        'ToolParserManager.register_module(name="a_py", module=A)\n'
        '@ToolParserManager.register_module(["b", "c"])\nclass B: ...\n'
        'ReasoningParserManager.register_lazy_module("d", "vllm_gaudi.d", "D")\n'
        'ToolParserManager.import_tool_parser("/plugin.py")\n',
        encoding="utf-8",
    )
    assert plugin_parsers(tmp_path) == {"reasoning": {"d"}, "tool": {"a_py", "b", "c"}}


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
