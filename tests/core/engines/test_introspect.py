"""Asking an installed engine: a stand-in package of each shape, absent and broken ones, and real
ones.

Real engines: GAUDI_LAUNCH_TEST_ENGINES names a folder with one folder an engine
(vllm-fork-aice-v1.21.0, ...), each holding its vllm_hpu_extension or vllm_gaudi package.
"""

from __future__ import annotations

import logging
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.buckets.bucket_list import BucketError, Buckets
from gaudi_launch.core.buckets.engine_buckets import algorithm_of, engine_buckets
from gaudi_launch.core.buckets.families import CONTEXT_LADDER
from gaudi_launch.core.engines.introspect import ask_engine
from tests.support.bucket_parity import FAMILY_OF

ARGS = {
    "max_num_seqs": 3,
    "max_model_len": 4096,
    "block_size": 128,
    "num_hpu_blocks": 700,
    "max_num_prefill_seqs": 2,
    "max_num_batched_tokens": 2048,
}

EXTENSION = "vllm_hpu_extension"

CONTEXT = """
import logging
import os
print("noise that is not the answer")
class HPUBucketingContext:
    def __init__(self, seqs, prefills, block, tokens, *rest):
        self.prompt_buckets = [(prefills, tokens)]
        self.seqs = seqs
    def generate_prompt_buckets(self):
        pass
    def generate_decode_buckets(self, blocks, speculative=0):
        self.decode_buckets = [(self.seqs + speculative, int(os.environ.get("VLLM_MARK", blocks)))]
"""

MANAGER = """
from vllm.logger import init_logger
init_logger("x").warning("noise")
class LinearBucketingStrategy:
    pass
class HPUBucketingManager:
    def initialize(self, seqs, prefills, block, tokens, length, **more):
        self.prompt_buckets, self.seqs, self.more = [(prefills, tokens, 0)], seqs, more
    def get_bucketing_strategy(self):
        return LinearBucketingStrategy()
    def generate_prompt_buckets(self):
        pass
    def generate_decode_buckets(self):
        self.decode_buckets = [(self.seqs, 1, self.num_hpu_blocks)]
"""


def _package(root: Path, monkeypatch: pytest.MonkeyPatch, modules: dict[str, str]) -> None:
    for name, text in modules.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        for folder in path.parents:
            if folder == root:
                break
            (folder / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(root))


def test_one_module_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _package(tmp_path, monkeypatch, {"vllm_hpu_extension/bucketing.py": CONTEXT})
    monkeypatch.setenv("VLLM_MARK", "9")  # ours, must not reach the engine
    answer = ask_engine(sys.executable, EXTENSION, {}, {**ARGS, "num_speculative_tokens": 1})
    assert answer == ("linear", Buckets([[2, 2048, 0]], [[4, 1, 700]]))
    answer = ask_engine(sys.executable, EXTENSION, {"VLLM_MARK": "5"}, ARGS)
    assert answer == ("linear", Buckets([[2, 2048, 0]], [[3, 1, 5]]))


def test_one_module_fork_with_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = CONTEXT + "\ndef warmup_range_with_limit(config): ...\n"
    _package(tmp_path, monkeypatch, {"vllm_hpu_extension/bucketing.py": limit})
    answer = ask_engine(sys.executable, EXTENSION, {}, ARGS)
    assert answer == ("linear-limit", Buckets([[2, 2048, 0]], [[3, 1, 700]]))


def test_context_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    common = CONTEXT + "\ndef get_bucketing_context():\n    return HPUBucketingContext\n"
    _package(tmp_path, monkeypatch, {"vllm_hpu_extension/bucketing/common.py": common})
    answer = ask_engine(sys.executable, EXTENSION, {}, ARGS)
    assert answer == ("linear", Buckets([[2, 2048, 0]], [[3, 1, 700]]))


def test_manager_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {
        "vllm_hpu_extension/bucketing/common.py": MANAGER,
        "vllm_hpu_extension/environment.py": "_VLLM_VALUES = {}\n",
    }
    _package(tmp_path, monkeypatch, modules)
    answer = ask_engine(sys.executable, EXTENSION, {}, ARGS)
    assert answer == ("linear", Buckets([[2, 2048, 0]], [[3, 1, 700]]))


def test_plugin_with_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = MANAGER.replace(
        "self.decode_buckets = [(self.seqs, 1, self.num_hpu_blocks)]",
        (
            "import os; self.decode_buckets = "
            "[(len(open(os.environ['VLLM_BUCKETING_FROM_FILE']).read()), 1, 2)]"
        ),
    )
    _package(tmp_path, monkeypatch, {"vllm_gaudi/extension/bucketing/common.py": reads})
    answer = ask_engine(sys.executable, "vllm_gaudi", {}, {**ARGS, "bucket_file": "12345"})
    assert answer == ("file", Buckets([[2, 2048, 0]], [[5, 1, 2]]))


@pytest.mark.parametrize(
    "text",
    [
        None,
        "import nothing_like_this\n",
        "import os\nos._exit(3)\n",
        "import time\ntime.sleep(60)\n",
    ],
)
def test_no_answer(text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _package(tmp_path, monkeypatch, {"vllm_hpu_extension/bucketing.py": text} if text else {})
    seconds = 2 if "sleep" in (text or "") else 30
    assert ask_engine(sys.executable, EXTENSION, {}, ARGS, seconds=seconds) is None
    assert ask_engine(tmp_path / "python", EXTENSION, {}, ARGS) is None


def test_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {"vllm_hpu_extension/bucketing.py": "raise RuntimeError('no device')\n"}
    _package(tmp_path, monkeypatch, broken)
    with pytest.raises(BucketError, match=r"rejects this configuration.+no device"):
        ask_engine(sys.executable, EXTENSION, {}, ARGS)


ENGINES = Path(os.environ.get("GAUDI_LAUNCH_TEST_ENGINES", "/nonexistent"))


@pytest.mark.skipif(not ENGINES.is_dir(), reason="GAUDI_LAUNCH_TEST_ENGINES names no folder")
@pytest.mark.parametrize("engine", sorted(FAMILY_OF))
@pytest.mark.parametrize("seed", range(25))
def test_real_engine(
    engine: str, seed: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    if not (ENGINES / engine).is_dir():
        pytest.skip(f"no {engine}")
    monkeypatch.setenv("PYTHONPATH", str(ENGINES / engine))
    family = FAMILY_OF[engine]
    env, args = _random_case(random.Random(seed), family)
    package = "vllm_gaudi" if family == CONTEXT_LADDER else EXTENSION
    try:
        answer = ask_engine(sys.executable, package, env, args, seconds=10)
    except BucketError as refusal:
        with pytest.raises(BucketError) as raised:
            engine_buckets(family, algorithm_of(family, env, with_limit=False), env, args)
        assert str(raised.value) in str(refusal)
        return
    if "TimeoutExpired" in caplog.text:
        pytest.skip("the engine itself is slower than that")
    assert answer is not None
    assert engine_buckets(family, answer[0], env, args) == answer[1]


def _random_case(chance: random.Random, family: str) -> tuple[dict[str, str], dict[str, Any]]:
    length = chance.choice(
        [chance.randint(64, 9000), 4096, 8192, chance.randrange(8192, 40000, 128)]
    )
    args = {
        "max_num_seqs": chance.choice([1, 3, 16, 100, 128, chance.randint(1, 300)]),
        "max_model_len": length,
        "block_size": 128,
        "num_hpu_blocks": chance.randint(100, 12000),
        "max_num_prefill_seqs": chance.choice([1, 2, 8, 16]),
        "max_num_batched_tokens": chance.choice([length, 2048, 8192]),
    }
    env = {}
    if chance.random() < 0.3:
        env["VLLM_CONTIGUOUS_PA"] = chance.choice(["true", "false", "1"])
    if family == CONTEXT_LADDER:
        env["VLLM_BUCKETING_STRATEGY"] = chance.choice(["exp", "lin", "pad"])
        args["num_speculative_tokens"] = chance.choice([0, 0, 2])
    else:
        env["VLLM_EXPONENTIAL_BUCKETING"] = chance.choice(["true", "false"])
    for dimension in ("PROMPT_BS", "PROMPT_SEQ", "DECODE_BS", "DECODE_BLOCK"):
        if chance.random() < 0.3:
            env[f"VLLM_{dimension}_BUCKET_STEP"] = str(chance.choice([1, 16, 32, 128, 256]))
        if chance.random() < 0.15:
            env[f"VLLM_{dimension}_BUCKET_MAX"] = str(chance.choice([1, 64, 256, 4096]))
    return env, args
