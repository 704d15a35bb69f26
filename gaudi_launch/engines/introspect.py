"""Query an installed engine for its buckets, in a process of its interpreter.

Its own code computes them.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from gaudi_launch import interrupt
from gaudi_launch.buckets.bucket_list import Bucket, Buckets
from gaudi_launch.messages import Message, message

_log = logging.getLogger(__name__)

SECONDS = 30.0
"""Seconds for the engine's answer; its bucket code is quadratic in places, its import reads some
hundred files.
"""


@dataclass(frozen=True)
class IntrospectedBuckets:
    """The answer of an installed engine.

    ``buckets`` None: it did not answer, ``why`` is the reason as a sentence. ``algorithm``: its
    effective algorithm, as in `engine_buckets` (``linear-limit`` has the padding limit).
    ``failed``: it reports that it cannot start with this configuration; ``why`` is its text.
    """

    buckets: Buckets | None
    algorithm: str | None = None
    why: Message | None = None
    failed: bool = False


def ask_engine(
    python: str | Path,
    package: str,
    env: Mapping[str, str],
    args: Mapping[str, Any],
    *,
    seconds: float = SECONDS,
) -> IntrospectedBuckets:
    """Return the buckets that this installed package makes of ``env`` and ``args``.

    ``args`` are those of `engine_buckets`. Never raises for what the interpreter does: an engine
    that is absent, slow or broken gives a reason instead. Our variables that engines read are not
    passed on; ``env`` is all it gets.
    """
    complete = {"max_num_prefill_seqs": args.get("max_num_seqs"), **args}
    question = json.dumps({"package": package, "args": complete})
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("VLLM_", "PT_HPU_"))
    }
    script = (
        files("gaudi_launch.engines.runtime").joinpath("ask_buckets.py").read_text(encoding="utf-8")
    )
    with tempfile.TemporaryDirectory(prefix="gaudi-launch-ask-") as folder:
        try:
            done = interrupt.run(
                [str(python), "-c", script],
                streams=interrupt.Streams(text_in=question),
                env={**inherited, **{name: str(value) for name, value in env.items()}},
                cwd=folder,
                seconds=seconds,
            )
        except subprocess.TimeoutExpired as error:
            _log.debug("the engine's interpreter took too long: %s", error)
            return IntrospectedBuckets(
                None,
                why=message("warmup_engine.ask_timeout", python=python, seconds=f"{seconds:g}"),
            )
        except (OSError, ValueError) as error:
            return IntrospectedBuckets(
                None, why=message("warmup_engine.ask_no_interpreter", python=python, error=error)
            )
    return _read(done.stdout, done.stderr, python, package)


def _read(stdout: str, stderr: str, python: str | Path, package: str) -> IntrospectedBuckets:
    try:
        reply = json.loads(stdout)
        if "missing" in reply:
            why = message(
                "warmup_engine.ask_not_installed",
                package=package,
                python=python,
                error=reply["missing"],
            )
            return IntrospectedBuckets(None, why=why)
        if "error" in reply:
            return IntrospectedBuckets(
                None, why=message("warmup_engine.ask_refused", error=reply["error"]), failed=True
            )
        return IntrospectedBuckets(
            Buckets(_triples(reply["prompt"]), _triples(reply["decode"])), str(reply["algorithm"])
        )
    except (ValueError, KeyError, TypeError):
        last = (stderr.strip().splitlines() or ["no output"])[-1]
        return IntrospectedBuckets(
            None, why=message("warmup_engine.ask_failed", python=python, error=last)
        )


def _triples(some: Any) -> list[Bucket]:
    return [[int(batch), int(query), int(context)] for batch, query, context in some]
