"""Lines of engine logs that several tests explain."""

from __future__ import annotations

PROMPT = (
    "INFO 11-21 03:03:01 [hpu_model_runner.py:2587] [Warmup][Prompt][2/4] batch_size:1 "
    "seq_len:256 free_mem:0 B\n"
)
