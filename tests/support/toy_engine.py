"""An engine of another package, in one module: rules for a plan, and a server.

`test_toy_engine.py` registers `create` as ``toy`` and takes it through the commands. TOY_DO=oom:
the server dies of a card's memory.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.engines.base import options_of, sent_variables
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import MemoryRules
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import Context, Engine, Limits, Proposal
from gaudi_launch.core.planning.plan import Command, EngineIdentity, Setting
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.predict.limits import CoverageQuestion, as_limits

NAME = "toy"
BLOCK = 128


@dataclass(frozen=True)
class Toy(Engine):
    """A server without an interpreter, on cards, with powers of two for buckets."""

    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> EngineIdentity:
        return EngineIdentity(NAME, "1.0", None, self.facts)

    @property
    def needs_interpreter(self) -> bool:
        return False

    def limits(self, request: Request, host: Host, model: Model) -> Limits:
        length = request.max_model_len or 1024
        seqs = request.max_num_seqs or 4
        return Limits(
            input_min=1,
            input_max=length,
            output_min=1,
            output_max=length,
            max_model_len=length,
            max_num_batched_tokens=length,
            max_num_seqs=seqs,
            max_num_prefill_seqs=1,
        )

    def propose(self, context: Context) -> Proposal:
        request = context.request
        decisions = Decisions(request.environment)
        reason = message("plan.flag", flag="--engine toy")
        decisions.option("--host", request.host or "127.0.0.1", reason)
        decisions.option("--port", str(request.port or 30001), reason)
        decisions.option("--model", request.model, reason)
        decisions.option("--max-num-seqs", str(context.limits.max_num_seqs), reason)
        modules = ",".join(str(module) for module in context.placement.modules)
        decisions.env("HABANA_VISIBLE_MODULES", modules, reason)
        return Proposal(decisions.settings(), tuple(decisions.warnings))

    def command(self, settings: Sequence[Setting], context: Context) -> Command:
        placement = context.placement
        return Command(
            argv=(sys.executable, __file__, *options_of(settings), *context.request.extra),
            env=sent_variables(settings),
            cpus=placement.cpus,
            memory_node=placement.memory_node,
        )

    def memory_rules(self, variables: Mapping[str, str]) -> MemoryRules:
        return MemoryRules(fixed_share=0.5)

    @property
    def bucket_family(self) -> str:
        return ""

    def buckets(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> tuple[str, Buckets] | None:
        limits = context.limits
        rows = _doubling(1, limits.max_num_seqs)
        lengths = _doubling(BLOCK, limits.max_model_len)
        each = -(-limits.max_model_len // BLOCK)
        prompt = [[1, length, 0] for length in lengths]
        return "doubling", Buckets(prompt, [[row, 1, row * each] for row in rows])

    def question(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> CoverageQuestion | None:
        blocks = context.limits.max_num_seqs * -(-context.limits.max_model_len // BLOCK)
        return CoverageQuestion("", as_limits({**asdict(context.limits), "num_blocks": blocks}))


def _doubling(first: int, last: int) -> list[int]:
    values = [first]
    while values[-1] < last:
        values.append(min(values[-1] * 2, last))
    return values


def create(name: str, python: str | None, facts: Mapping[str, str]) -> Engine:
    """Return the engine, for the registry."""
    return Toy(facts)


class Handler(BaseHTTPRequestHandler):
    """/health, /v1/models and /v1/completions."""

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, document: object, status: int = 200) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer({})
        elif self.path == "/v1/models":
            self._answer({"data": [{"id": _argument("--model")}]})
        else:
            self._answer({}, 404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self._answer({"choices": [{"text": "Paris", "finish_reason": "stop"}]})


def _argument(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


def main() -> None:
    """Serve until a signal ends the process."""
    print(f"toy engine on cards {os.environ['HABANA_VISIBLE_MODULES']}", flush=True)
    if os.environ.get("TOY_DO") == "oom":
        sys.exit("FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::123456 (0.1)MB")
    ThreadingHTTPServer((_argument("--host"), int(_argument("--port"))), Handler).serve_forever()


if __name__ == "__main__":
    main()
