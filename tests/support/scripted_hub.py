"""A process in place of the hub's child, whose answers are in a file.

SCRIPTED_HUB names the file: answers by ``list hf``, ``fetch modelscope``. A transfer
(``{"done": PATH}``) writes as many bytes as the request states, and a wait (``{"wait": ENDING}``)
lasts until a file of the same name with this ending exists. Requests are appended to the one with
the ending ``.asked``.
"""

import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    script = Path(os.environ["SCRIPTED_HUB"])
    request = json.loads(sys.stdin.readline())
    with script.with_suffix(".asked").open("a", encoding="utf-8") as asked:
        asked.write(f"{json.dumps(request)}\n")
    sizes = {each["path"]: each["size"] for each in request.get("files", ())}
    answers = json.loads(script.read_text(encoding="utf-8"))
    for answer in answers[f"{request['do']} {request['source']}"]:
        while "wait" in answer and not script.with_suffix(answer["wait"]).exists():
            time.sleep(0.005)
        if answer.get("done") in sizes:
            path = Path(request["target"], answer["done"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * sizes[answer["done"]])
            answer["mtime"] = path.stat().st_mtime_ns
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
