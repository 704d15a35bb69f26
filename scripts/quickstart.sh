#!/usr/bin/env bash
# The main job on any Linux machine with Python 3.11 or newer, cards or not:
# an environment, this machine's cards, a plan for an 8-card Gaudi2 server, then a real model that answers.
# Run it as often as you like; what is there already is used again.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

python=${PYTHON:-python3}
if [ ! -x .venv/bin/python ]; then
    say "Making the environment .venv"
    "$python" -m venv .venv
fi
say "Installing gaudi-launch"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable .
gaudi=.venv/bin/gaudi-launch

say "This machine (gaudi-launch doctor)"
# a machine without cards is no failure here: the rest runs on the CPU
"$gaudi" doctor || true

say "A plan for an 8-card Gaudi2 server (gaudi-launch plan --machine simulated:hls2)"
"$gaudi" plan -w /models/Qwen2-72B-Instruct -n 4 -b 128 -i 800,1024 -o 400,512 -l 8192 -t 8192 \
    --engine vllm-fork@1.21 --machine simulated:hls2

say "A real model on the CPU engine (gaudi-launch serve -w demo)"
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
log=$(mktemp)
"$gaudi" serve -w demo -p "$port" --quiet >"$log" &
serve=$!
trap 'kill "$serve" 2>/dev/null || true; wait "$serve" 2>/dev/null || true; rm -f "$log"' EXIT
until grep -q . "$log"; do
    kill -0 "$serve" 2>/dev/null || { wait "$serve"; exit 1; }
    sleep 0.5
done
cat "$log"

question='What is the capital of France?'
say "Asking: $question"
"$python" - "$port" "$question" <<'PYTHON'
import json
import sys
from urllib.request import ProxyHandler, Request, build_opener

port, question = sys.argv[1:]
body = {"model": "demo", "temperature": 0, "messages": [{"role": "user", "content": question}]}
request = Request(
    f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
)
with build_opener(ProxyHandler({})).open(request, timeout=120) as response:
    print(json.load(response)["choices"][0]["message"]["content"])
PYTHON

say "Stopping"
kill -INT "$serve"
status=0
wait "$serve" || status=$?
trap - EXIT
rm -f "$log"
[ "$status" -eq 130 ] || { echo "serve ended with $status"; exit 1; }
say "Done. Next: $gaudi --help"
