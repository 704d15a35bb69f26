"""Options of ``bench``: the server, the load and the tool."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from gaudi_launch.core.base.fields import OptionRecord, switch, text, value
from gaudi_launch.core.planning import parse, parse_ranges

# clients without a rate and a number of them
CONCURRENCY = 4
_INPUT, _OUTPUT = (256, 256), (64, 64)
_LOAD, _HOW = "Load", "How to ask"


def _rate(flag: str, text: str) -> float:
    return float(parse_ranges.fraction(flag, text, 0.0001, 1e6))


@dataclass(frozen=True)
class BenchOptions(OptionRecord):
    """The server, the load and the tool; ``form`` and ``tool`` may be ``auto``.

    ``seed`` names the workload, ``texts`` the texts of its requests. Lengths are in tokens.
    """

    trace: str = text(
        "--trace",
        help="Replay past requests at their recorded times: CSV or JSON lines.",
        panel=_LOAD,
        metavar="FILE",
    )
    rate: float | None = value(
        "--rate",
        help="Requests per second, independent of answers.",
        panel=_LOAD,
        metavar="RATE",
        read=_rate,
    )
    concurrency: int | None = value(
        "--concurrency",
        help="Maximum concurrent requests (default 4).",
        panel=_LOAD,
        metavar="N",
        read=partial(parse.number, most=10_000),
    )
    requests: int | None = value(
        "--requests",
        help="Number of requests (default 40; a trace: all).",
        panel=_LOAD,
        metavar="N",
        read=partial(parse.number, most=10**6),
    )
    seconds: float | None = value(
        "--seconds",
        help="Use only this first part of the trace: 90, 5m.",
        panel=_LOAD,
        metavar="TIME",
        read=partial(parse.seconds, least=0.0001, most=1e6),
    )
    input: tuple[int, int] | None = value(
        "-i",
        "--input",
        help="Input tokens: one length or MIN,MAX (default 256).",
        panel=_LOAD,
        metavar="RANGE",
        read=parse_ranges.pair,
    )
    output: tuple[int, int] | None = value(
        "-o",
        "--output",
        help="Output tokens: one length or MIN,MAX (default 64).",
        panel=_LOAD,
        metavar="RANGE",
        read=parse_ranges.pair,
    )
    seed: int | None = value(
        "--seed",
        help="Random seed of lengths and texts (default: new texts).",
        panel=_LOAD,
        metavar="N",
        read=partial(parse.number, least=0, most=10**6),
    )
    tool: str = text(
        "--tool",
        help="auto, builtin, vllm or inference-benchmarker (prints its docker command).",
        panel=_HOW,
        metavar="TOOL",
        default="auto",
    )
    form: str = text(
        "--form",
        help="auto, chat, completions or generate (TGI).",
        panel=_HOW,
        metavar="FORM",
        default="auto",
    )
    model: str | None = value(
        "--model", help="The model's name in requests.", panel=_HOW, metavar="NAME"
    )
    tokenizer: str | None = value(
        "--tokenizer", help="For other tools: folder or hub ID.", panel=_HOW, metavar="MODEL"
    )
    stop_early: bool = switch("--stop-early", help="Let the model end answers early.", panel=_HOW)
    timeout: float = text(
        "--timeout",
        help="Timeout without data of a request: 90, 5m.",
        panel=_HOW,
        metavar="TIME",
        default="600",
        read=parse.seconds,
    )
    save: str | None = value(
        "--save",
        help="File for the run (default: state folder).",
        panel="Output",
        metavar="FILE",
    )
    plan_file: str | None = value(
        "--plan",
        help="The load and the address of a plan that --save wrote.",
        panel=_LOAD,
        metavar="FILE",
    )
    # the texts of the requests are drawn by this number; `case.prepare` chooses it
    texts: int = 0

    @property
    def inputs(self) -> tuple[int, int]:
        """Return the least and the most input tokens of a request."""
        return self.input or _INPUT

    @property
    def outputs(self) -> tuple[int, int]:
        """Return the least and the most output tokens of a request."""
        return self.output or _OUTPUT

    @property
    def fixed_lengths(self) -> bool:
        """Report whether all requests have the same lengths."""
        return self.inputs[0] == self.inputs[1] and self.outputs[0] == self.outputs[1]

    @property
    def most_at_once(self) -> int | None:
        """Return the limit of concurrent requests; without a rate there is always one."""
        if self.rate is not None:
            return self.concurrency
        return self.concurrency or CONCURRENCY
