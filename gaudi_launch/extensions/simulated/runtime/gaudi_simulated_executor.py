"""vLLM's executor of simulated cards: vLLM runs, the model does not.

vLLM 0.32 starts it in its engine's process by ``--distributed-executor-backend`` and its dotted
name. The API server, tokenizer, scheduler, KV manager and metrics are vLLM's; a step takes the time
of the launcher's model, and its tokens are made up. Settings: the file that ``--additional-config
'{"simulated": PATH}'`` names.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gaudi_simulated_cache import cache_specs, pool_bytes
from gaudi_simulated_card import CardClock, CardSettings, Prompt, StepPricer
from gaudi_simulated_faults import NOT_FOUND, Faults, faults_of, missing_card, restarts_in
from gaudi_simulated_text import MOST_LOGPROBS, Answer, AnswerText
from tqdm import tqdm
from vllm.logger import init_logger
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.v1.core.sched.output import GrammarOutput, NewRequestData, SchedulerOutput
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec
from vllm.v1.kv_cache_layout import KVCacheLayout
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, LogprobsLists, ModelRunnerOutput

# below vLLM's own logger, which has the handlers
logger = init_logger("vllm.simulated")

# the service's folder, where the launcher reads the record of the run
_FOLDER = "GAUDI_LAUNCH_SERVICE"
_RECORD_SECONDS = 0.5
# vllm/reasoning: the token of most parsers
_THOUGHT_END = "</think>"
# logarithms of made-up probabilities: the chosen token's, then the next ones'
_LOGPROBS = (-0.4, -1.6, -2.3, -3.0)


@dataclass
class Sequence_:
    """A request in the engine."""

    prompt_tokens: int
    answer: Answer
    logprobs: int
    last_block: int


@dataclass
class PendingStep:
    """A step that the card computes: its end, and the tokens that it gives."""

    due: float
    request_ids: list[str]
    indexes: list[int]


class StepResult(Future[ModelRunnerOutput]):
    """The result of a step, available when the card has finished it."""

    def __init__(self, output: ModelRunnerOutput, due: float, clock: CardClock) -> None:
        super().__init__()
        self._output, self._due, self._clock = output, due, clock

    def result(self, timeout: float | None = None) -> ModelRunnerOutput:
        """Wait for the card, then return the tokens."""
        if not self.done():
            self._clock.wait(self._due)
            self.set_result(self._output)
        return super().result(timeout)


class SimulatedExecutor(Executor):  # type: ignore[misc]
    """Answers for all cards of one engine."""

    supports_pp = True

    def _init_executor(self) -> None:
        path = self.vllm_config.additional_config["simulated"]
        self.settings: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
        card = CardSettings.of(self.settings["card"])
        # the CPU platform has changed these (vllm/platforms/cpu.py); the scheduler is chosen after
        # this executor is built
        self.scheduler_config.async_scheduling = self.settings["ahead"]
        self.scheduler_config.max_num_batched_tokens = card.max_num_batched_tokens
        self.cache_config.block_size = card.block_size
        rank = self.parallel_config.data_parallel_rank
        restarts = restarts_in(os.environ.get(_FOLDER))
        if missing_card(self.settings.get("faults", ()), rank, restarts):
            raise RuntimeError(NOT_FOUND)
        self.faults = Faults(
            faults_of(self.settings.get("faults", ()), rank, restarts), logger.warning
        )
        has_states = any(entry["kind"] == "state" for entry in self.settings["kv"])
        self.pricer = StepPricer(card, single_prompts=has_states)
        self.clock = CardClock(scale=card.time_scale)
        tokenizer = cached_tokenizer_from_config(self.model_config)
        thought_end = None
        if self.settings.get("thinks"):
            thought_end = tokenizer.get_vocab().get(_THOUGHT_END)
        self.text = AnswerText(
            lambda text: tokenizer.encode(text, add_special_tokens=False),
            self.settings["seed"],
            thought_end,
        )
        self.card = card
        self.requests: dict[str, Sequence_] = {}
        self.pending: PendingStep | None = None
        self._recorded = time.monotonic()
        self._running: set[str] = set()
        logger.info("Simulated cards: %s; no model is loaded.", self.settings["cards"])
        # in place of an earlier run's
        self._record(now=True)

    # Before the first step

    def get_kv_cache_specs(self) -> list[dict[str, KVCacheSpec]]:
        self.specs = cache_specs(self.settings["kv"], self.vllm_config)
        return [self.specs]

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        # the second is block-compact: for layers of different shapes
        return [[KVCacheLayout.LBNHC.name, KVCacheLayout.BLNHC.name]]

    def set_kv_cache_layout(self, layout_name: str) -> None:
        """Ignore the layout: no cache has one here."""

    def determine_available_memory(self) -> list[int]:
        return [pool_bytes(self.specs, self.settings["blocks"], self.vllm_config)]

    def initialize_from_config(self, kv_cache_configs: list[KVCacheConfig]) -> None:
        """Log the buckets; no cache is allocated."""
        for phase, shapes in (("prompt", self.card.prompt), ("decode", self.card.decode)):
            if shapes:
                logger.info(
                    "Generated %d %s buckets [bs, query, num_blocks]: %s",
                    len(shapes),
                    phase,
                    list(shapes),
                )

    def compile_or_warm_up_model(self) -> None:
        """Warm up; the time of the faults begins at its end."""
        self._warm_up()
        self.faults.start()

    def _warm_up(self) -> None:
        """Take the estimated time of each graph, with the plugin's bars and lines."""
        if not self.card.prompt:
            return
        if not self.card.warmed:
            logger.info("Skipping warmup...")
            return
        graphs = 0
        for phase, shapes in (("Prompt", self.card.prompt), ("Decode", self.card.decode)):
            with tqdm(total=len(shapes), desc=f"{phase} warmup processing: ", unit="item") as bar:
                for index in range(len(shapes)):
                    time.sleep(self.card.graph_seconds / self.card.time_scale)
                    bar.set_postfix_str(f"{index}/{len(shapes)}")
                    bar.update(1)
            logger.info("Graph/%s captured:%d used_mem:0 B", phase, len(shapes))
            graphs += len(shapes)
        seconds = graphs * self.card.graph_seconds
        logger.info("Warmup finished in %.0f secs, allocated 0 B of device memory", seconds)

    @property
    def supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    # Steps

    def execute_model(
        self, scheduler_output: SchedulerOutput, non_block: bool = False
    ) -> ModelRunnerOutput | Future[ModelRunnerOutput | None] | None:
        """Send a step to the card; `sample_tokens` returns its tokens."""
        for name in scheduler_output.finished_req_ids:
            self.requests.pop(name, None)
        if not scheduler_output.total_num_scheduled_tokens:
            self._running = set()
            if non_block:
                return _done(EMPTY_MODEL_RUNNER_OUTPUT)
            return EMPTY_MODEL_RUNNER_OUTPUT
        self.faults.before_step()
        if self.faults.once("compile"):
            self.pricer.forget()
        self.pending = self._begin(scheduler_output)
        return _done(None) if non_block else None

    def sample_tokens(
        self, grammar_output: GrammarOutput | None, non_block: bool = False
    ) -> ModelRunnerOutput | Future[ModelRunnerOutput]:
        """Return the tokens of the step that was sent last."""
        step, self.pending = self.pending, None
        assert step is not None
        result = StepResult(self._sample(step, grammar_output), step.due, self.clock)
        return result if non_block else result.result()

    def _begin(self, output: SchedulerOutput) -> PendingStep:
        """Price a step and start it on the card's clock."""
        scheduled = output.num_scheduled_tokens
        prompts: list[Prompt] = []
        ids: list[str] = []
        indexes: list[int] = []
        sequences = blocks = last_block = 0
        size = self.card.block_size
        for new in output.scheduled_new_reqs:
            self.requests[new.req_id] = sequence = self._sequence(new)
            tokens = scheduled[new.req_id]
            prompts.append(Prompt(tokens, new.num_computed_tokens))
            ids.append(new.req_id)
            is_last = new.num_computed_tokens + tokens >= sequence.prompt_tokens
            indexes.append(0 if is_last else -1)
        cached = output.scheduled_cached_reqs
        rows = zip(
            cached.req_ids,
            cached.num_computed_tokens,
            cached.num_output_tokens,
            cached.new_block_ids,
            strict=True,
        )
        continues = False
        for name, before, made, new_blocks in rows:
            sequence = self.requests[name]
            tokens = scheduled[name]
            if new_blocks:
                sequence.last_block = max(sequence.last_block, *new_blocks[0], 0)
            if tokens > 1 or before < sequence.prompt_tokens:
                prompts.append(Prompt(tokens, before))
            else:
                sequences += 1
                blocks += before // size + 1
                last_block = max(last_block, sequence.last_block)
            continues = continues or name in self._running
            ids.append(name)
            indexes.append(made if before + tokens >= sequence.prompt_tokens + made else -1)
        self._running = set(ids)
        if self.card.contiguous:
            # contiguous paged attention reads the cache up to the last block in use
            blocks = last_block + 1
        seconds, lines = self.pricer.price(prompts, sequences, blocks)
        for line in lines:
            logger.warning(line)
        due = self.clock.begin(seconds * self.faults.slowness(), len(ids), continues=continues)
        self._record()
        return PendingStep(due, ids, indexes)

    def _sequence(self, new: NewRequestData) -> Sequence_:
        """Return the record of a new request, with its answer."""
        params = new.sampling_params
        assert params is not None
        prompt = new.prompt_token_ids or []
        same = params.temperature == 0
        if params.seed is not None:
            salt = str(params.seed)
        elif same:
            salt = ""
        else:
            salt = new.req_id
        answer = self.text.answer(prompt, salt, params.eos_token_id, params.min_tokens)
        blocks = new.block_ids[0] if new.block_ids else []
        return Sequence_(
            new.prompt_len, answer, _asked_logprobs(params.logprobs), max(blocks, default=0)
        )

    def _sample(self, step: PendingStep, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        """Return the tokens of a step; a part of a prompt gives none."""
        rows: dict[str, Any] = {}
        if grammar is not None:
            names = grammar.structured_output_request_ids
            rows = {name: grammar.grammar_bitmask[at] for at, name in enumerate(names)}
        sampled: list[list[int]] = []
        most_logprobs = 0
        for name, index in zip(step.request_ids, step.indexes, strict=True):
            if index < 0:
                sampled.append([])
                continue
            sequence = self.requests[name]
            row = rows.get(name)
            if row is None:
                token = self.text.token(sequence.answer, index)
            else:
                token = self.text.allowed(sequence.answer, row.tolist(), index)
            sampled.append([token])
            most_logprobs = max(most_logprobs, sequence.logprobs)
        asked = any(self.requests[name].logprobs for name in step.request_ids)
        return ModelRunnerOutput(
            req_ids=step.request_ids,
            req_id_to_index={name: at for at, name in enumerate(step.request_ids)},
            sampled_token_ids=sampled,
            logprobs=self._logprobs(sampled, most_logprobs) if asked else None,
        )

    def _logprobs(self, sampled: list[list[int]], most: int) -> LogprobsLists:
        """Return made-up probabilities: the token, then others of the ring."""
        ids = np.zeros((len(sampled), most + 1), dtype=np.int32)
        values = np.full((len(sampled), most + 1), -10.0, dtype=np.float32)
        for at, tokens in enumerate(sampled):
            ids[at, 0] = tokens[0] if tokens else 0
            # the chosen token is also the most probable one
            others = [token for token in self.text.common if token != ids[at, 0]]
            shown = [int(ids[at, 0]), *others][:most]
            ids[at, 1 : 1 + len(shown)] = shown
            values[at, 0] = _LOGPROBS[0]
            for column in range(1, most + 1):
                values[at, column] = (
                    _LOGPROBS[column - 1] if column <= len(_LOGPROBS) else -3.0 - column / 4
                )
        return LogprobsLists(ids, values, np.zeros(len(sampled), dtype=np.int32))

    # The rest of the interface

    def collective_rpc(
        self,
        method: str | Callable[..., Any],
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        non_block: bool = False,
    ) -> Any:
        """Return one empty answer: there is no worker."""
        return _done([None]) if non_block else [None]

    def execute_dummy_batch(self) -> None:
        """Skip the step: other ranks of data parallelism need none of this one."""

    def take_draft_token_ids(self) -> None:
        return None

    def check_health(self) -> None:
        """Report nothing: simulated cards do not fail by themselves."""

    def shutdown(self) -> None:
        """Log and keep the record of the run."""
        self._record(now=True)
        record = self.clock.record()
        logger.info(
            "Simulated run: %d steps, %d late, %.2f s behind %.1f s of steps; real time: %s",
            record["steps"],
            record["late_steps"],
            record["behind_seconds"],
            record["busy_seconds"],
            "yes" if record["real_time"] else "NO",
        )

    @classmethod
    def supports_async_scheduling(cls) -> bool:
        return True

    def _record(self, *, now: bool = False) -> None:
        """Write the record of the run into the service's folder.

        At most every half second, unless ``now``.
        """
        folder = os.environ.get(_FOLDER)
        if not folder or (not now and time.monotonic() - self._recorded < _RECORD_SECONDS):
            return
        self._recorded = time.monotonic()
        # the rank is 0 in each copy of a dense model
        rank = self.parallel_config.data_parallel_index
        path = Path(folder) / f"simulated-{rank}.json"
        new = path.with_name(f"{path.name}.new")
        try:
            new.write_text(json.dumps(self.clock.record()), encoding="utf-8")
            new.replace(path)
        except OSError as error:
            logger.warning("The record of the run is not written: %s", error)


def _asked_logprobs(count: int | None) -> int:
    """Return the number of made-up probabilities per token; -1 means all of them."""
    if count is None:
        return 0
    return count if count >= 0 else MOST_LOGPROBS


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
