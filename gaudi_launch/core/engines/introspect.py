"""Query an installed engine for its buckets, in a process of its interpreter.

Its own code computes them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.messages import Message, message, text
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.buckets.bucket_list import Bucket, BucketError, Buckets
from gaudi_launch.core.planning.engine import BucketQuestion

_log = logging.getLogger(__name__)

SECONDS = 30.0
"""Seconds for the engine's answer; its bucket code is quadratic in places, its import reads some
hundred files.
"""
# of them, for the answer after the parser's time is over
_END_SECONDS = 2.0


@dataclass(frozen=True)
class BucketAnswers:
    """The JSON answers, none where the interpreter failed, and its last line.

    ``parser`` are the options and parsers of the server's parser, None where it was not executed.
    """

    replies: tuple[Any, ...]
    last_line: str = ""
    parser: Mapping[str, Any] | None = None


def ask_engine(
    python: str | Path,
    package: str,
    env: Mapping[str, str],
    args: Mapping[str, Any],
    *,
    seconds: float = SECONDS,
) -> tuple[str, Buckets] | None:
    """Return the algorithm and list that an installed package makes of these values.

    The algorithm is one of `engine_buckets` (``linear-limit`` has the padding limit), as ``args``
    are. None for an engine that is absent, slow or broken; the log has the reason. Our variables
    that engines read are not passed on; ``env`` is all it gets. Raises BucketError where it reports
    that it cannot start with this configuration.
    """
    complete = {"max_num_prefill_seqs": args.get("max_num_seqs"), **args}
    case = {"env": {name: str(value) for name, value in env.items()}, "args": complete}
    try:
        found = ask_buckets(python, package, [case], seconds=seconds)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        _log.debug("the installed engine gives no buckets: %s", type(error).__name__)
        return None
    try:
        reply = found.replies[0]
        if "error" not in reply:
            buckets = Buckets(_triples(reply["prompt"]), _triples(reply["decode"]))
            return str(reply["algorithm"]), buckets
    except (ValueError, KeyError, TypeError, IndexError):
        _log.debug("the installed engine gives no buckets: %s", found.last_line)
        return None
    raise BucketError(text("warmup_engine.ask_refused", error=reply["error"]))


class InstalledBuckets:
    """The lists of an installed engine, each made once.

    ``difference`` is the sentence for the last list, None where our arithmetic
    gives the same.
    """

    def __init__(self, python: str) -> None:
        self._python = python
        self._known: dict[str, tuple[str, Buckets] | None] = {}
        self.difference: Message | None = None

    def __call__(self, asked: BucketQuestion) -> tuple[str, Buckets] | None:
        """Return its strategy and list. Raises BucketError where it cannot start."""
        key = json.dumps([asked.package, dict(asked.environment), dict(asked.arguments)])
        if key not in self._known:
            self._known[key] = ask_engine(
                self._python, asked.package, asked.environment, asked.arguments
            )
        found = self._known[key]
        self.difference = None
        if found is not None:
            self.difference = _difference(asked, found[1])
        return found


def _difference(asked: BucketQuestion, theirs: Buckets) -> Message | None:
    """Return the sentence for a list that is not that of our arithmetic."""
    ours = 0
    with contextlib.suppress(BucketError):
        mine = asked.ours()
        if mine == theirs:
            return None
        ours = mine.graphs
    return message("plan.engine_buckets", ours=ours, theirs=theirs.graphs)


def ask_buckets(
    python: str | Path,
    package: str,
    cases: Sequence[Mapping[str, Any]],
    *,
    search: Sequence[str] = (),
    vllm: Path | None = None,
    seconds: float = SECONDS,
) -> BucketAnswers:
    """Return the answers of a package's bucket code, imported by this interpreter.

    A case has ``env``, ``args`` and, for look-ups, ``shapes``. ``search`` are folders to import
    from before all others; of ``vllm``, a folder with it, the server's parser is executed in the
    same time. Raises OSError, ValueError or TimeoutExpired.
    """
    programs = files("gaudi_launch.core.engines.runtime")
    asked: dict[str, Any] = {"package": package, "cases": list(cases)}
    if vllm is not None:
        parser = programs.joinpath("ask_options.py").read_text(encoding="utf-8")
        asked["parser"] = (["-c", parser, str(vllm)], seconds - _END_SECONDS)
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("VLLM_", "PT_HPU_"))
    }
    script = programs.joinpath("ask_buckets.py").read_text(encoding="utf-8")
    if search:
        inherited["PYTHONPATH"] = os.pathsep.join(search)
    with tempfile.TemporaryDirectory(prefix="gaudi-launch-ask-") as folder:
        done = interrupt.run(
            [str(python), "-c", script],
            streams=interrupt.Streams(text_in=json.dumps(asked)),
            env=inherited,
            cwd=folder,
            seconds=seconds,
            ending=interrupt.Ending(folder=folder),
        )
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    try:
        found = parse_json(done.stdout)
    except ValueError:
        return BucketAnswers((), last)
    answers = BucketAnswers(tuple(found["answers"]), last)
    with contextlib.suppress(ValueError, IndexError):
        return replace(answers, parser=parse_json(found["parser"].splitlines()[-1]))
    return answers


def _triples(some: Any) -> list[Bucket]:
    return [[int(batch), int(query), int(context)] for batch, query, context in some]
