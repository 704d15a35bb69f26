"""Shapes that compiled while requests waited, from logs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.buckets.runtime_compiles import Compiled, compiled_at_run_time

LOG = """\
WARNING 11-20 10:00:00 [hpu_model_runner.py:1227] Configuration: (prompt, 1, 24064) was not warmed-up!
WARNING 11-20 10:00:01 [hpu_model_runner.py:1227] Configuration: ('decode', 9, 1, 640) was not warmed-up!
(VllmWorkerProcess pid=7) WARNING Configuration: ('decode', 9, 1, 640) was not warmed-up!
WARNING 11-20 10:00:02 [hpu_model_runner.py:1227] Configuration: ('decode', 9, 1, 640) was not warmed-up!
WARNING 11-20 10:00:03 [common.py:99] Prompt bucket for (2, 300, 0) was not prepared. Adding new bucket: (2, 384, 0)
INFO nothing of the kind
"""  # noqa: E501


def test_log() -> None:
    assert compiled_at_run_time(LOG.splitlines()) == [
        Compiled("decode", (9, 1, 640), 2),
        Compiled("prompt", (1, 24064), 1),
        Compiled("prompt", (2, 300, 0), 1),
    ]


@given(st.text())
def test_any_line(text: str) -> None:
    assert compiled_at_run_time(["Configuration: (prompt" + text, text]) is not None
