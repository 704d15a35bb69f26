"""Serve requests by vLLM's own scheduler under a virtual clock.

Run by the CPU engine's interpreter.

Reads one JSON object from the file that the first argument names (see `Case`), writes one to
stdout. Nothing is computed: a step takes the time that the case's constants give it, and each
request gets the tokens that it is to get. Queueing as in vllm/v1/engine/core.py (step,
step_with_batch_queue), forwards as in
vllm-project/vllm-gaudi@091bbadd:vllm_gaudi/v1/worker/hpu_model_runner.py: one for each prompt or
part of a prompt, then one for all sequences that decode; the tokens of a step appear together at
its end.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import tempfile
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
# the import of vLLM: 10 s of processor time with the search for garbage, 7 without
gc.disable()

_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 1,
    "num_hidden_layers": 1,
    "num_key_value_heads": 1,
    "max_position_embeddings": 1 << 20,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}
# tokens of the vocabulary that prompts are made of
_TOKENS = 900
_ANSWER = 950


@dataclass(frozen=True)
class Case:
    """A workload and an engine.

    ``requests`` are (arrival seconds, input tokens, output tokens, group, tokens shared within the
    group); ``cost`` has the constants of `gaudi_launch.core.predict.step_time.StepTime` in
    milliseconds. With ``concurrency`` a request comes when another one has ended, whatever its
    time.
    """

    requests: list[tuple[float, int, int, int, int]]
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    num_blocks: int
    cost: dict[str, float]
    block_size: int = 128
    prefix_caching: bool = False
    ahead: bool = True
    concurrency: int = 0


@dataclass
class Record:
    """The result of a run: seconds of each request, and forwards with their counts."""

    came: list[float]
    first: list[float]
    done: list[float]
    prompts: dict[tuple[int, int], int] = field(default_factory=dict)
    decodes: dict[tuple[int, int], int] = field(default_factory=dict)
    preempted: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "came": self.came,
            "first": self.first,
            "done": self.done,
            "prompts": [[*shape, count] for shape, count in sorted(self.prompts.items())],
            "decodes": [[*shape, count] for shape, count in sorted(self.decodes.items())],
            "preempted": self.preempted,
        }


def make_scheduler(case: Case, folder: Path) -> Any:
    """Return vLLM's scheduler for ``case``."""
    import torch
    from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    (folder / "config.json").write_text(json.dumps(_CONFIG), encoding="utf-8")
    model = ModelConfig(
        model=str(folder),
        skip_tokenizer_init=True,
        max_model_len=case.max_model_len,
        dtype="bfloat16",
    )
    scheduling = SchedulerConfig(
        max_num_seqs=case.max_num_seqs,
        max_num_batched_tokens=case.max_num_batched_tokens,
        max_model_len=case.max_model_len,
        enable_chunked_prefill=True,
        is_encoder_decoder=False,
        async_scheduling=case.ahead,
    )
    cache = CacheConfig(block_size=case.block_size, enable_prefix_caching=case.prefix_caching)
    config = VllmConfig(
        model_config=model,
        scheduler_config=scheduling,
        cache_config=cache,
        device_config=DeviceConfig("cpu"),
    )
    # the CPU's platform has switched it off and may have cut the budget
    config.scheduler_config.async_scheduling = case.ahead
    config.scheduler_config.max_num_batched_tokens = case.max_num_batched_tokens
    config.cache_config.block_size = case.block_size
    config.cache_config.enable_prefix_caching = case.prefix_caching
    # one block is the null block
    blocks = case.num_blocks + 1
    config.cache_config.num_gpu_blocks = blocks
    spec = FullAttentionSpec(
        block_size=case.block_size, num_kv_heads=1, head_size=64, dtype=torch.bfloat16
    )
    layer = "model.layers.0.self_attn.attn"
    tensors: list[Any] = []
    kv = KVCacheConfig(
        num_blocks=blocks,
        kv_cache_tensors=tensors,
        kv_cache_groups=[KVCacheGroupSpec([layer], spec)],
    )
    kind = AsyncScheduler if case.ahead else Scheduler
    return kind(
        vllm_config=config,
        kv_cache_config=kv,
        structured_output_manager=StructuredOutputManager(config),
        block_size=case.block_size,
        log_stats=False,
    )


def make_requests(case: Case) -> list[Any]:
    """Return the requests with token numbers.

    Those of a group begin with the same ones.
    """
    import random

    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    init_none_hash(sha256)
    hasher = get_request_block_hasher(case.block_size, sha256) if case.prefix_caching else None
    heads: dict[int, list[int]] = {}
    made = []
    for number, (time, tokens, output, group, shared) in enumerate(case.requests):
        prompt = [1 + number % _TOKENS] * tokens
        if case.prefix_caching:
            chance = random.Random(number)
            prompt = [chance.randrange(_TOKENS) for _ in range(tokens)]
            if shared:
                head = heads.setdefault(group, [])
                drawn = random.Random(1_000_003 + group)
                if len(head) < shared:
                    head[:] = [drawn.randrange(_TOKENS) for _ in range(shared)]
                prompt[: min(shared, tokens)] = head[: min(shared, tokens)]
        made.append(
            Request(
                request_id=str(number),
                prompt_token_ids=prompt,
                sampling_params=SamplingParams(max_tokens=output, ignore_eos=True),
                pooling_params=None,
                arrival_time=time,
                block_hasher=hasher,
            )
        )
    return made


@dataclass(frozen=True)
class Step:
    """A scheduled step: its end and its output.

    ``parts`` are the requests whose prompts it only begins.
    """

    end: float
    output: Any
    parts: frozenset[str]


class Engine:
    """One engine core with its queue of steps, on a separate clock."""

    def __init__(self, case: Case, scheduler: Any, requests: list[Any]) -> None:
        self.case = case
        self.scheduler = scheduler
        self.requests = {request.request_id: request for request in requests}
        self.arrivals = deque(requests)
        self.now = 0.0
        self.free = 0.0
        self.inside = 0
        self.queue: deque[Step] = deque()
        count = len(requests)
        nan = float("nan")
        self.record = Record([nan] * count, [nan] * count, [nan] * count)

    def serve(self) -> Record:
        while self.arrivals or self.queue or self.scheduler.has_requests():
            self.take()
            if not self.queue and not self.scheduler.has_requests():
                self.now = max(self.now, self.arrivals[0].arrival_time)
                continue
            self.step()
        return self.record

    def take(self) -> None:
        """Hand requests that have come to the scheduler."""
        closed = self.case.concurrency
        while self.arrivals:
            request = self.arrivals[0]
            if self.inside >= closed if closed else request.arrival_time > self.now:
                break
            self.arrivals.popleft()
            self.record.came[int(request.request_id)] = self.now if closed else request.arrival_time
            self.inside += 1
            self.scheduler.add_request(request)

    def step(self) -> None:
        if self.scheduler.has_requests():
            output = self.scheduler.schedule()
            executed = output.total_num_scheduled_tokens > 0
            start = max(self.now, self.free)
            self.free = start + self.seconds(output)
            parts = {
                name for name in output.num_scheduled_tokens if self.requests[name].is_prefill_chunk
            }
            self.queue.append(Step(self.free, output, frozenset(parts)))
            depth = 2 if self.case.ahead else 1
            if len(self.queue) < depth and (executed or self.scheduler.has_requests()):
                return
        step = self.queue.popleft()
        self.now = max(self.now, step.end)
        self.finish(step)

    def seconds(self, output: Any) -> float:
        """Return seconds of a step, and a record of its forwards."""
        cost = self.case.cost
        block = self.case.block_size
        milliseconds = 0.0
        sequences = blocks = 0
        for name, tokens in output.num_scheduled_tokens.items():
            request = self.requests[name]
            # computed tokens already count those of this step
            before = request.num_computed_tokens - tokens
            if before < request.num_prompt_tokens or tokens > 1:
                shape = (tokens, -(-before // block))
                self.record.prompts[shape] = self.record.prompts.get(shape, 0) + 1
                masked = 1 + cost.get("prefill_masked", 0.0) * (before > 0)
                attention = cost["prefill_attention"] * masked * (tokens + 2 * before)
                each = cost["prefill_token"] + attention
                milliseconds += cost["prefill_fixed"] + tokens * each
            else:
                sequences += 1
                blocks += -(-(before + 1) // block)
        if sequences:
            shape = (sequences, blocks)
            self.record.decodes[shape] = self.record.decodes.get(shape, 0) + 1
            milliseconds += cost["decode_fixed"]
            milliseconds += cost["decode_sequence"] * sequences + cost["decode_block"] * blocks
        self.record.preempted += len(output.preempted_req_ids or ())
        return milliseconds / 1000

    def finish(self, step: Step) -> None:
        """Give the tokens of a step back; a part of a prompt gives none."""
        from vllm.v1.outputs import ModelRunnerOutput

        output = step.output
        names = list(output.num_scheduled_tokens)
        sampled = [[] if name in step.parts else [_ANSWER] for name in names]
        made = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: at for at, name in enumerate(names)},
            sampled_token_ids=sampled,
        )
        found = self.scheduler.update_from_output(output, made)
        for outputs in found.values():
            for each in outputs.outputs:
                number = int(each.request_id)
                if each.new_token_ids and self.record.first[number] != self.record.first[number]:
                    self.record.first[number] = self.now
                if each.finish_reason is not None:
                    self.record.done[number] = self.now
                    self.inside -= 1


def main(path: str) -> None:
    given = json.loads(Path(path).read_text(encoding="utf-8"))
    found = []
    for each in given["cases"]:
        case = Case(**{**each, "requests": [tuple(request) for request in each["requests"]]})
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
            scheduler = make_scheduler(case, Path(folder))
            found.append(Engine(case, scheduler, make_requests(case)).serve().to_json())
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
