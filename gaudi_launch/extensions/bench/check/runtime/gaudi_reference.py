"""Score token sequences with transformers on the CPU, in float32.

Run by the engine's interpreter. Reads {"model", "dtype", "rows": [{"prompt", "answer"}]} from
stdin, writes as the last line, for each row, the logprob of each token of its answer, and that of
the likeliest one there; with a data type of 16 bits also the logprobs that are computed with it,
as "rounded".
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> None:
    import torch
    from transformers import AutoModelForCausalLM

    given = json.load(sys.stdin)
    model = AutoModelForCausalLM.from_pretrained(given["model"]).to("cpu", torch.float32).eval()
    rows = [score(model, row) for row in given["rows"]]
    if given["dtype"] in ("bfloat16", "float16"):
        model.to(getattr(torch, given["dtype"]))
        for row, found in zip(given["rows"], rows, strict=True):
            found["rounded"] = score(model, row)["logprobs"]
    print(json.dumps(rows), flush=True)


def score(model: Any, row: dict[str, list[int]]) -> dict[str, list[float]]:
    """Return the logprobs of an answer's tokens, and of the likeliest tokens there."""
    import torch

    tokens = torch.tensor([row["prompt"] + row["answer"]])
    with torch.no_grad():
        logits = model(tokens).logits[0, len(row["prompt"]) - 1 : -1]
    found = torch.log_softmax(logits.float(), dim=-1)
    chosen = found.gather(1, torch.tensor(row["answer"])[:, None])[:, 0]
    return {"logprobs": chosen.tolist(), "best": found.max(dim=1).values.tolist()}


if __name__ == "__main__":
    main()
