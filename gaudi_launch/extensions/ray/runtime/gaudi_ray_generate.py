"""Plain Hugging Face generation, for models that the serving engine lacks.

One request at a time per replica: `generate` batches nothing by itself. On a card optimum-habana
adapts the model class and HPU graphs are on
(ray-project/ray@0e1bad6b:doc/source/serve/doc_code/intel_gaudi_inference_serve.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from gaudi_ray_engine import VISIBLE, environment_of
from gaudi_ray_slots import claim, folder

_END = object()


class BadRequest(Exception):
    """An invalid request; its text goes to the client with 400."""


@dataclass
class GenerationJob:
    """One request in progress: ``pieces`` of text, then `_END` or an exception."""

    prompt: str
    options: dict[str, Any]
    stops: tuple[str, ...]
    special: bool
    pieces: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    loop: asyncio.AbstractEventLoop | None = None
    gone: threading.Event = field(default_factory=threading.Event)
    prompt_tokens: int = 0
    tokens: int = 0
    reason: str = "stop"

    def put(self, piece: Any) -> None:
        """Pass a piece from the generating thread to the event loop."""
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self.pieces.put_nowait, piece)

    async def text(self) -> AsyncIterator[str]:
        """Yield the pieces as they arrive. A reader that stops ends the generation."""
        try:
            while True:
                piece = await self.pieces.get()
                if piece is _END:
                    return
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            self.gone.set()


def cut(text: str, stops: tuple[str, ...]) -> tuple[str, str, bool]:
    """Return the text to send, the text to keep back, and if a stop text was met.

    Text that may be the beginning of a stop text is kept back.
    """
    first = min((at for at in (text.find(word) for word in stops) if at >= 0), default=-1)
    if first >= 0:
        return text[:first], "", True
    for size in range(min(max(map(len, stops), default=1) - 1, len(text)), 0, -1):
        if any(word.startswith(text[-size:]) for word in stops):
            return text[:-size], text[-size:], False
    return text, "", False


class Generation:
    """A model on one card (or the CPU) and the thread that generates."""

    def __init__(self, args: dict[str, Any]) -> None:
        self._slot = claim(folder(), args["sets"])
        self._jobs: queue.Queue[GenerationJob] = queue.Queue()
        try:
            self._load(args)
        except BaseException as error:
            self._log(f"{type(error).__name__}: {error}")
            self._slot.fail(str(error))
            raise
        threading.Thread(target=self._work, daemon=True).start()
        self._log("Application startup complete.")

    def _log(self, line: str) -> None:
        with self._slot.log.open("a", encoding="utf-8") as log:
            log.write(f"{line}\n")

    def _load(self, args: dict[str, Any]) -> None:
        self._log("Starting to load model")
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, set(self._slot.cpus) & allowed or allowed)
        if self._slot.modules:
            # read when the card's software is first imported
            os.environ[VISIBLE] = environment_of(self._slot, dict(os.environ))[VISIBLE]
            self._graphs = self._adapt()
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

        self._torch, self._seed = torch, set_seed
        # Ray gives an actor without CPUs one thread
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        code = bool(args.get("trust_remote_code"))
        self.tokenizer = AutoTokenizer.from_pretrained(args["model"], trust_remote_code=code)
        dtype = getattr(torch, args["dtype"])
        model = AutoModelForCausalLM.from_pretrained(
            args["model"], torch_dtype=dtype, trust_remote_code=code
        )
        model = model.eval()
        if self._slot.modules:
            model = model.to("hpu")
            if self._graphs:
                from habana_frameworks.torch.hpu import wrap_in_hpu_graph

                model = wrap_in_hpu_graph(model)
        self._model = model
        limit = getattr(model.config, "max_position_embeddings", None) or 2048
        self.longest = int(args.get("max_model_len") or limit)

    def _adapt(self) -> bool:
        """Let optimum-habana adapt the model classes, where it is installed.

        Return True for HPU graphs.
        """
        import habana_frameworks.torch  # noqa: F401 - makes the device known

        try:
            from optimum.habana.transformers.modeling_utils import adapt_transformers_to_gaudi
        except ImportError:
            self._log("optimum-habana is not installed: plain transformers, without HPU graphs")
            return False
        adapt_transformers_to_gaudi()
        return True

    def add(self, job: GenerationJob) -> None:
        """Put a job at the end of the queue. Called in the event loop that waits for it."""
        job.loop = asyncio.get_running_loop()
        self._jobs.put(job)

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job.gone.is_set():
                continue
            try:
                self._generate(job)
                job.put(_END)
            except Exception as error:
                # a loop that has ended, or a full disk: the next request is served
                with contextlib.suppress(RuntimeError, OSError):
                    job.put(error)
                    self._log(f"request failed: {type(error).__name__}: {error}")

    def _generate(self, job: GenerationJob) -> None:
        """Run one job; its pieces go into its queue while it runs."""
        from transformers import StoppingCriteriaList

        tokens = self.tokenizer(job.prompt, return_tensors="pt", add_special_tokens=job.special)
        job.prompt_tokens = int(tokens["input_ids"].shape[1])
        room = self.longest - job.prompt_tokens
        if room < 1:
            raise BadRequest(
                f"the prompt has {job.prompt_tokens} tokens; the longest is {self.longest - 1}"
            )
        options = dict(job.options)
        options["max_new_tokens"] = min(options["max_new_tokens"] or room, room)
        seed = options.pop("seed", None)
        if seed is not None:
            self._seed(seed)
        if self._slot.modules:
            tokens = tokens.to("hpu")
            if self._graphs:
                options |= {"hpu_graphs": True, "lazy_mode": True}
        pieces = Pieces(job)
        stream = streamer(self.tokenizer, pieces)
        criteria = StoppingCriteriaList([as_criterion(self._torch, pieces.ended)])
        with self._torch.no_grad():
            self._model.generate(**tokens, **options, streamer=stream, stopping_criteria=criteria)
        if not pieces.met and job.tokens >= options["max_new_tokens"]:
            job.reason = "length"


class Pieces:
    """The text of one job, cut at the first stop string."""

    def __init__(self, job: GenerationJob) -> None:
        self.job = job
        self.met = False
        self._held = ""

    def ended(self) -> bool:
        """Return True when nothing further is read."""
        return self.met or self.job.gone.is_set()

    def add(self, text: str, last: bool) -> None:
        """Put text into the job's queue, without a possible start of a stop string."""
        if self.met:
            return
        ready, self._held, self.met = cut(self._held + text, self.job.stops)
        if last and not self.met:
            ready, self._held = ready + self._held, ""
        if ready:
            self.job.put(ready)


def streamer(tokenizer: Any, pieces: Pieces) -> Any:
    """Return a streamer that counts a job's tokens and passes on its text."""
    from transformers.generation.streamers import TextStreamer

    class Stream(TextStreamer):  # type: ignore[misc]
        def put(self, value: Any) -> None:
            first = self.next_tokens_are_prompt
            super().put(value)
            if not first:
                pieces.job.tokens += 1

        def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
            pieces.add(text, stream_end)

    return Stream(tokenizer, skip_prompt=True, skip_special_tokens=True)


def as_criterion(torch: Any, ended: Any) -> Any:
    """Return a stopping criterion for transformers 4 and 5.

    They expect one truth value per sequence.
    """

    def criterion(input_ids: Any, scores: Any, **_: Any) -> Any:
        return torch.full(
            (input_ids.shape[0],), bool(ended()), dtype=torch.bool, device=input_ids.device
        )

    return criterion
