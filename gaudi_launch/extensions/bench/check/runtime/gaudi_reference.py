"""Score token sequences with transformers on the CPU, in float32.

Run by the engine's interpreter. Reads {"model", "rows": [{"prompt", "answer"}]} from stdin, writes
as the last line, for each row, the logprob of each token of its answer, and that of the likeliest
one there.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    import torch
    from transformers import AutoModelForCausalLM

    given = json.load(sys.stdin)
    model = AutoModelForCausalLM.from_pretrained(given["model"]).to("cpu", torch.float32).eval()
    rows = []
    for row in given["rows"]:
        tokens = torch.tensor([row["prompt"] + row["answer"]])
        with torch.no_grad():
            logits = model(tokens).logits[0, len(row["prompt"]) - 1 : -1]
        found = torch.log_softmax(logits.float(), dim=-1)
        chosen = found.gather(1, torch.tensor(row["answer"])[:, None])[:, 0]
        rows.append({"logprobs": chosen.tolist(), "best": found.max(dim=1).values.tolist()})
    print(json.dumps(rows), flush=True)


if __name__ == "__main__":
    main()
