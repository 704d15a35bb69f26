"""The command lines at the end of each help.

tests/cli/test_examples.py runs every one of them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """A command line to copy, and what it does, in English."""

    command: str
    text: str


# path of a command without the program's name -> its examples
_EXAMPLES: dict[str, tuple[Example, ...]] = {
    "": (
        Example("gaudi-launch serve demo", "Serve a small model; no card is needed"),
        Example(
            "gaudi-launch plan Qwen/Qwen3-8B --machine simulated:hls2",
            "Show what would be started on a server with eight Gaudi2 cards",
        ),
        Example("gaudi-launch help", "Find the command for a question"),
    ),
    "docs": (
        Example("gaudi-launch docs", "Show the index of the documentation"),
        Example("gaudi-launch docs install", "Show one page"),
        Example("gaudi-launch docs --list", "List the topics"),
    ),
    "help": (
        Example("gaudi-launch help", "List questions with the commands that answer them"),
        Example("gaudi-launch help cache prune", "Show the help of one command"),
    ),
    "serve": (
        Example("gaudi-launch serve demo", "Serve a small model; no card is needed"),
        Example(
            "gaudi-launch serve Qwen/Qwen3-8B -n 1 -l 16k --detach --name qwen",
            "Serve a model on one card, in the background",
        ),
        Example(
            "gaudi-launch serve Qwen/Qwen3-32B -n 2 -i 64,4k -o 1,1k -- --seed 1",
            "State the lengths of your requests; what follows -- goes to the engine",
        ),
    ),
    "stack": (
        Example(
            (
                "gaudi-launch stack init Qwen/Qwen3-8B Qwen/Qwen3-8B BAAI/bge-m3 --machine "
                "simulated:hls2"
            ),
            "Write stack.yaml: two copies of one model, and another model",
        ),
        Example("gaudi-launch stack up stack.yaml", "Start the gateway and all models of the file"),
        Example("gaudi-launch stack down stack.yaml", "Stop them"),
    ),
    "stack init": (
        Example(
            "gaudi-launch stack init demo demo --to demo.yaml", "Write a stack that needs no card"
        ),
        Example(
            "gaudi-launch stack init Qwen/Qwen3-8B --machine simulated:hls2 -p 8080",
            "Write stack.yaml for a server with eight Gaudi2 cards",
        ),
    ),
    "stack plan": (
        Example(
            "gaudi-launch stack plan stack.yaml", "Show cards, memory and start time of all models"
        ),
        Example(
            "gaudi-launch stack plan stack.yaml --machine simulated:gaudi3-oam --json",
            "For another machine",
        ),
    ),
    "stack up": (
        Example(
            "gaudi-launch stack up stack.yaml",
            "Start what does not run, wait until all models answer",
        ),
        Example("gaudi-launch stack up stack.yaml --no-wait", "Do not wait until they answer"),
    ),
    "stack apply": (
        Example(
            "gaudi-launch stack apply stack.yaml",
            "Change what differs from the file; models continue to answer",
        ),
        Example(
            "gaudi-launch stack apply stack.yaml --yes",
            "Also where a model does not answer meanwhile",
        ),
    ),
    "stack restart": (
        Example("gaudi-launch stack restart chat", "Restart the replicas of a model in turns"),
        Example("gaudi-launch stack restart gateway", "Restart the gateway"),
    ),
    "stack logs": (
        Example("gaudi-launch stack logs -f", "Follow the logs of all services"),
        Example("gaudi-launch stack logs gateway -n 20", "The last lines of the gateway's log"),
    ),
    "stack down": (
        Example("gaudi-launch stack down stack.yaml", "Finish running requests, then stop all"),
        Example(
            "gaudi-launch stack down stack.yaml --drain 0", "Stop all without waiting for requests"
        ),
    ),
    "stack ps": (
        Example("gaudi-launch stack ps", "List the models of all started stacks"),
        Example("gaudi-launch stack ps --json", "The same for a script"),
    ),
    "ps": (
        Example("gaudi-launch ps", "Show what is running"),
        Example("gaudi-launch ps -a", "Also show services that stopped or failed"),
    ),
    "top": (
        Example(
            "gaudi-launch top --machine simulated:hls2+busy=0,1+hot=2 --once",
            "Print one sample of a machine",
        ),
        Example("gaudi-launch top --once --json", "The same of this machine, for a script"),
        Example(
            "gaudi-launch top --hosts a=simulated:hls2,b=simulated:gaudi3-oam --once",
            "Watch several hosts; without =simulated they are reached over ssh",
        ),
    ),
    "status": (
        Example("gaudi-launch status demo", "Show phases, memory and the last error"),
        Example("gaudi-launch status demo --json", "The same for a script"),
    ),
    "logs": (
        Example("gaudi-launch logs demo -n 20", "Show the last 20 lines of the engine"),
        Example("gaudi-launch logs demo -f", "Follow the log until the service ends"),
        Example("gaudi-launch logs demo --launcher --json", "The launcher's log as a JSON object"),
    ),
    "stop": (
        Example("gaudi-launch stop demo", "Finish running requests, then stop"),
        Example(
            "gaudi-launch stop --all --drain 0", "Stop all services without waiting for requests"
        ),
    ),
    "restart": (
        Example("gaudi-launch restart demo", "Start a service again with the same settings"),
        Example("gaudi-launch restart demo --no-wait", "Return immediately"),
    ),
    "wait": (
        Example("gaudi-launch wait demo", "Wait until the service is ready"),
        Example(
            "gaudi-launch wait demo --timeout 30m && gaudi-launch check demo",
            "Test the service as soon as it is ready",
        ),
    ),
    "why": (
        Example("gaudi-launch why", "Explain the last failure on this machine"),
        Example("gaudi-launch why engine.log", "Explain a log from elsewhere"),
    ),
    "check": (
        Example("gaudi-launch check demo", "Test a service of this machine"),
        Example(
            "gaudi-launch check http://10.0.0.5:8000 --json", "Test any server; the result as JSON"
        ),
    ),
    "chat": (
        Example("gaudi-launch chat demo", "Chat in the terminal"),
        Example("echo 'What is HBM?' | gaudi-launch chat demo", "Ask one question"),
    ),
    "webui": (
        Example("gaudi-launch webui demo", "Open a chat page on this machine"),
        Example("gaudi-launch webui demo -u 0.0.0.0 -p 7860", "Let other machines open it"),
    ),
    "bench": (
        Example(
            "gaudi-launch bench demo --requests 40 -i 256 -o 64",
            "Send 40 requests of 256 input and 64 output tokens",
        ),
        Example(
            "gaudi-launch bench demo --trace trace.csv --save after.json",
            "Replay past requests at their recorded times",
        ),
        Example("gaudi-launch bench compare before.json after.json", "Compare two saved runs"),
    ),
    "plan": (
        Example(
            "gaudi-launch plan Qwen/Qwen3-8B --machine simulated:hls2",
            "Plan for a server with eight Gaudi2 cards, on any machine",
        ),
        Example(
            "gaudi-launch plan Qwen/Qwen3-32B -n 2 -i 64,8k -o 1,1k --machine simulated:hls2",
            "State cards and the lengths of your requests",
        ),
        Example(
            "gaudi-launch plan Qwen/Qwen3-8B --machine simulated:gaudi3-oam --json",
            "The plan of a Gaudi3 server for a script",
        ),
    ),
    "warmup": (
        Example(
            "gaudi-launch warmup Qwen/Qwen3-8B -i 64,4k -o 1,1k --machine simulated:hls2",
            "Compare the engine's bucket strategies with a planned list",
        ),
        Example(
            "gaudi-launch warmup Qwen/Qwen3-8B --trace trace.csv --machine simulated:hls2",
            "Plan buckets for recorded requests",
        ),
    ),
    "recommend": (
        Example(
            (
                "gaudi-launch recommend Qwen/Qwen3-8B --for throughput --accelerator gaudi2 -i "
                "1024 -o 128"
            ),
            "Find the fastest way to serve a model on eight Gaudi2 cards",
        ),
        Example(
            (
                "gaudi-launch recommend Qwen/Qwen3-8B --rate 20/s --ttft 1s --tpot 50ms -i "
                "100,1k -o 20,100 -n 1"
            ),
            "Find the fewest cards for a rate within latency targets",
        ),
    ),
    "estimate": (
        Example(
            "gaudi-launch estimate Qwen/Qwen3-8B --accelerator gaudi2 -i 1024 -o 256",
            "Predict the speed on one Gaudi2 card",
        ),
        Example(
            "gaudi-launch estimate Qwen/Qwen3-32B -n 2 --accelerator gaudi3 --rate 2/s",
            "Predict latencies for two requests per second",
        ),
    ),
    "learn": (
        Example(
            "gaudi-launch learn run.json",
            "Correct the predictions by a saved bench run",
        ),
        Example(
            "gaudi-launch learn --show",
            "Show the constants that were learned",
        ),
    ),
    "tune": (
        Example(
            (
                "gaudi-launch tune Qwen/Qwen3-8B --minutes 60 --concurrency 64 -i 1024 -o 256 "
                "--save best.yaml"
            ),
            "Start and measure plans for this load for an hour; save the best",
        ),
        Example(
            "gaudi-launch tune Qwen/Qwen3-8B --minutes 60 --concurrency 64 -i 1024 -o 256 --resume",
            "Continue that search",
        ),
    ),
    "capacity": (
        Example(
            "gaudi-launch capacity Qwen/Qwen3-8B --rate 10/s -i 64,1k -o 64,256 --ttft 1s -n 1 "
            "--accelerator gaudi2",
            "Cards for ten requests per second with a first token within a second",
        ),
        Example(
            (
                "gaudi-launch capacity Qwen/Qwen3-8B --rate 10/s --trace trace.csv --ttft 1s -n 1 "
                "--accelerator gaudi2"
            ),
            "The same for recorded request lengths",
        ),
    ),
    "migrate": (
        Example(
            'gaudi-launch migrate "bash start_gaudi_vllm_server.sh -w /models/QwQ-32B -n 8"'
            " --machine simulated:hls2",
            "Convert a start-script command, for a server with eight cards",
        ),
        Example(
            "gaudi-launch migrate --machine simulated:hls2 -- -w /models/QwQ-32B -n 8",
            "Give only its options",
        ),
    ),
    "doctor": (
        Example("gaudi-launch doctor", "Check this machine; nothing is changed"),
        Example("gaudi-launch doctor --only cpu,kernel", "Run some of the checks"),
        Example(
            "gaudi-launch doctor --machine simulated:hls2+bad-tuning",
            "See the findings on a badly tuned server",
        ),
    ),
    "devices": (
        Example("gaudi-launch devices", "Show the cards and who uses them"),
        Example(
            "gaudi-launch devices pick -n 4 --format modules",
            "Print the module IDs of four free cards",
        ),
        Example(
            "gaudi-launch devices --machine simulated:hls2+busy=0,1",
            "Show a simulated server with two busy cards",
        ),
    ),
    "devices pick": (
        Example("gaudi-launch devices pick -n 4", "Show the four cards that serve would select"),
        Example("gaudi-launch devices pick -n 2 --format modules", "Print only their module IDs"),
    ),
    "snapshot": (
        Example("gaudi-launch snapshot server.json", "Write this machine to a file"),
        Example(
            "gaudi-launch snapshot hls2.json --machine simulated:hls2", "Write a simulated machine"
        ),
        Example("gaudi-launch snapshot -", "Print it"),
    ),
    "power": (
        Example("gaudi-launch power", "Show the measured power and the energy of each day"),
        Example(
            "gaudi-launch power --cap 600 -m 0,1 --dry-run --machine simulated:gaudi3-oam",
            "Print the commands that set a power limit",
        ),
    ),
    "exporter": (
        Example("gaudi-launch exporter --once", "Print the metrics once"),
        Example(
            "gaudi-launch exporter --once --machine simulated:hls2",
            "Print the metrics of a simulated machine",
        ),
    ),
    "pull": (
        Example("gaudi-launch pull Qwen/Qwen3-8B", "Download from the faster hub"),
        Example(
            "gaudi-launch pull Qwen/Qwen3-8B --from hf --to models/qwen",
            "Download from Hugging Face to a folder",
        ),
    ),
    "inspect": (
        Example("gaudi-launch inspect models/Qwen3-8B", "Read a folder"),
        Example(
            "gaudi-launch inspect Qwen/Qwen3-8B", "Read a model on the hub without downloading it"
        ),
    ),
    "fit": (
        Example(
            "gaudi-launch fit Qwen/Qwen3-32B --accelerator gaudi2",
            "Compute the cards that a model needs",
        ),
        Example(
            "gaudi-launch fit Qwen/Qwen3-32B -n 1,2 -l 32k --dtype fp8 --accelerator gaudi3",
            "Try one and two cards with fp8 and a context of 32,000 tokens",
        ),
    ),
    "support": (
        Example("gaudi-launch support Qwen/Qwen3-8B", "Show which engine versions run a model"),
        Example("gaudi-launch support --list", "Show the engine versions with facts"),
    ),
    "convert": (
        Example(
            "gaudi-launch convert models/DeepSeek-R1 models/DeepSeek-R1-G2",
            "Convert fp8 weights for Gaudi2",
        ),
        Example(
            "gaudi-launch convert models/DeepSeek-R1 models/DeepSeek-R1-G2 --processes 4",
            "Convert four shards in parallel",
        ),
    ),
    "calibrate": (
        Example("gaudi-launch calibrate models/Qwen3-8B -n 2", "Calibrate for two cards"),
        Example("gaudi-launch calibrate models/Qwen3-8B -n 2 --samples 256", "Use 256 prompts"),
    ),
    "render": (
        Example(
            "gaudi-launch render docker Qwen/Qwen3-8B --machine simulated:hls2",
            "Write a 'docker run' script",
        ),
        Example(
            (
                "gaudi-launch render systemd Qwen/Qwen3-8B --machine simulated:hls2 --python "
                "/usr/bin/python3 --to out"
            ),
            "Write a systemd service",
        ),
        Example(
            (
                "gaudi-launch render kubernetes -w /models/q8 --machine simulated:hls2 --image "
                "reg/vllm:1"
            ),
            "Write a Deployment",
        ),
    ),
    "render kubernetes": (
        Example(
            (
                "gaudi-launch render kubernetes -w /models/q8 --machine simulated:hls2 --image "
                "reg/vllm:1"
            ),
            "Write a Deployment",
        ),
        Example(
            (
                "gaudi-launch render kubernetes -w /models/q8 --machine simulated:hls2 --image "
                "reg/vllm:1 --helm chart"
            ),
            "Write a Helm chart to a folder",
        ),
    ),
    "render monitoring": (
        Example(
            "gaudi-launch render monitoring --to monitoring",
            "Write rules, a dashboard and a scrape config",
        ),
        Example(
            "gaudi-launch render monitoring --target h1:9640,h2:9640 --json",
            "For the exporters of two hosts",
        ),
    ),
    "render script": (
        Example(
            "gaudi-launch render script Qwen/Qwen3-8B --machine simulated:hls2 --to start.sh",
            "Write a script that runs without gaudi-launch",
        ),
        Example(
            "gaudi-launch render script Qwen/Qwen3-8B -n 2 -l 16k --machine simulated:hls2",
            "Print it",
        ),
    ),
    "render env": (
        Example(
            "gaudi-launch render env Qwen/Qwen3-8B --machine simulated:hls2 --to settings",
            "Write env.sh and config.yml to a folder",
        ),
        Example(
            (
                "gaudi-launch render env Qwen/Qwen3-32B -n 2 -l 16k --machine simulated:hls2 --to "
                "settings"
            ),
            "The same for two cards and a context of 16,000 tokens",
        ),
    ),
    "render docker": (
        Example(
            "gaudi-launch render docker Qwen/Qwen3-8B --machine simulated:hls2 --to run.sh",
            "Write a script to a file",
        ),
        Example(
            "gaudi-launch render docker Qwen/Qwen3-8B --machine simulated:hls2 --image reg/vllm:1",
            "Use your own image",
        ),
    ),
    "render compose": (
        Example(
            "gaudi-launch render compose Qwen/Qwen3-8B --machine simulated:hls2 --to compose.yaml",
            "Write a compose file",
        ),
        Example(
            (
                "gaudi-launch render compose Qwen/Qwen3-8B --machine simulated:hls2 --image "
                "reg/vllm:1 --to out"
            ),
            "Use your own image",
        ),
        Example(
            "gaudi-launch render compose --stack stack.yaml --machine simulated:hls2 --to out",
            "Write all models of a stack and their gateway",
        ),
    ),
    "render ray-serve": (
        Example(
            "gaudi-launch render ray-serve --stack stack.yaml --machine simulated:hls2 --to out",
            "Write one application for all models of a stack",
        ),
        Example(
            "gaudi-launch render ray-serve --stack stack.yaml --machine simulated:hls2 --json",
            "The same for a script",
        ),
    ),
    "render quadlet": (
        Example(
            (
                "gaudi-launch render quadlet Qwen/Qwen3-8B --machine simulated:hls2 --image "
                "reg/vllm:1 --to out"
            ),
            "Write a Quadlet unit to a folder",
        ),
        Example(
            (
                "gaudi-launch render quadlet Qwen/Qwen3-8B -n 2 --machine simulated:hls2 --image "
                "reg/vllm:1 --to out"
            ),
            "The same for two cards",
        ),
    ),
    "render systemd": (
        Example(
            (
                "gaudi-launch render systemd Qwen/Qwen3-8B --machine simulated:hls2 --python "
                "/usr/bin/python3 --to out"
            ),
            "Write a system unit to a folder",
        ),
        Example(
            (
                "gaudi-launch render systemd Qwen/Qwen3-8B -n 1 --user --python /usr/bin/python3 "
                "--to out"
            ),
            "Write a unit for 'systemctl --user' on this machine",
        ),
    ),
    "kube": (
        Example("gaudi-launch kube status", "Show all deployments of gaudi-launch"),
        Example("gaudi-launch kube logs qwen3-8b -f", "Follow the engine's log"),
    ),
    "kube status": (
        Example("gaudi-launch kube status", "Show all deployments of gaudi-launch"),
        Example("gaudi-launch kube status qwen3-8b -N llm", "Show one, in a namespace"),
    ),
    "kube logs": (
        Example("gaudi-launch kube logs qwen3-8b --tail 50", "Show the last 50 lines"),
        Example("gaudi-launch kube logs qwen3-8b -f", "Follow the engine's log"),
    ),
    "kube delete": (
        Example("gaudi-launch kube delete qwen3-8b", "Delete after listing and a confirmation"),
        Example(
            "gaudi-launch kube delete qwen3-8b --volumes --yes",
            "Also delete its PVCs, without confirmation",
        ),
    ),
    "cluster": (
        Example(
            "gaudi-launch cluster plan deepseek-ai/DeepSeek-R1 --inventory hosts.yaml",
            "Check the hosts and show the layout",
        ),
        Example(
            "gaudi-launch cluster up deepseek-ai/DeepSeek-R1 --inventory hosts.yaml --dry-run",
            "Print the commands that would run",
        ),
    ),
    "cluster plan": (
        Example(
            "gaudi-launch cluster plan deepseek-ai/DeepSeek-R1 --inventory hosts.yaml",
            "Check the hosts and show the layout",
        ),
        Example(
            "gaudi-launch cluster plan deepseek-ai/DeepSeek-R1 --hosts a=hls2.json,b=hls2.json",
            "Plan from snapshots, without a connection",
        ),
    ),
    "cluster up": (
        Example(
            "gaudi-launch cluster up deepseek-ai/DeepSeek-R1 --inventory hosts.yaml --dry-run",
            "Print the commands that would run",
        ),
        Example(
            (
                "gaudi-launch cluster up deepseek-ai/DeepSeek-R1 --hosts a=hls2.json,b=hls2.json "
                "--dry-run"
            ),
            "The same for hosts with snapshots",
        ),
    ),
    "cluster status": (
        Example("gaudi-launch cluster status", "Show the cluster of this user"),
        Example("gaudi-launch cluster status --json", "The same for a script"),
    ),
    "cluster down": (
        Example("gaudi-launch cluster down --dry-run", "Print the commands that would stop it"),
        Example(
            "gaudi-launch cluster down --hosts a,b --dry-run",
            "Print those for a cluster that another machine started",
        ),
    ),
    "ray": (
        Example(
            "gaudi-launch ray config Qwen/Qwen3-8B --machine simulated:hls2 --out serve.yaml",
            "Write a Serve config",
        ),
        Example("gaudi-launch ray check serve.yaml", "Check a Serve config"),
    ),
    "ray config": (
        Example(
            "gaudi-launch ray config Qwen/Qwen3-8B --machine simulated:hls2",
            "Print a Serve config",
        ),
        Example(
            (
                "gaudi-launch ray config Qwen/Qwen3-8B --replicas 2 --machine simulated:hls2 --out "
                "serve.yaml"
            ),
            "Write a config with two replicas",
        ),
    ),
    "ray check": (
        Example("gaudi-launch ray check serve.yaml", "Check a Serve config"),
        Example("gaudi-launch ray check serve.yaml --json", "The findings as JSON"),
    ),
    "ray status": (
        Example("gaudi-launch ray status", "Show the running deployment"),
        Example("gaudi-launch ray status demo --json", "The state of one service as JSON"),
    ),
    "setup": (
        Example(
            "gaudi-launch setup cpu --dry-run", "Show how the embedded CPU engine is installed"
        ),
        Example(
            "gaudi-launch setup vllm-gaudi --dry-run",
            "Show how the engine for Gaudi cards is installed",
        ),
        Example(
            "gaudi-launch setup vllm-gaudi --in docker --dry-run",
            "Show how its container image is built",
        ),
    ),
    "offline": (
        Example(
            "gaudi-launch offline pack --engine cpu --model demo -o demo.tar",
            "Pack the embedded engine and the demo model",
        ),
        Example("gaudi-launch offline show demo.tar", "List what a pack contains"),
        Example("gaudi-launch offline install demo.tar", "Install it on the other host"),
    ),
    "offline pack": (
        Example(
            "gaudi-launch offline pack --engine cpu --model demo -o demo.tar",
            "Pack the embedded engine and the demo model",
        ),
        Example(
            "gaudi-launch offline pack --engine vllm-gaudi --model Qwen/Qwen3-8B -o qwen3.tar",
            "Pack an engine for cards and a model as one file",
        ),
    ),
    "offline show": (
        Example("gaudi-launch offline show demo.tar", "List what a pack contains"),
        Example(
            "gaudi-launch offline show demo.tar --json", "The same for a script, with every file"
        ),
    ),
    "offline install": (
        Example(
            "gaudi-launch offline install demo.tar", "Install a pack on a host without a network"
        ),
        Example("gaudi-launch offline install demo.tar --json", "The same for a script"),
    ),
    "engines": (
        Example("gaudi-launch engines", "List engines and what is installed"),
        Example("gaudi-launch engines --json", "The same for a script"),
    ),
    "engines diff": (
        Example(
            "gaudi-launch engines diff vllm-gaudi@0.24 vllm-gaudi@0.26",
            "Show what an upgrade changes",
        ),
        Example(
            (
                "gaudi-launch engines diff vllm-fork@1.22 vllm-gaudi@0.26 Qwen/Qwen3-8B -n 1 "
                "--machine simulated:hls2"
            ),
            "Show what it changes for one plan: settings, buckets, memory",
        ),
    ),
    "cache": (
        Example("gaudi-launch cache list -c recipes", "List the compiled graphs of a cache folder"),
        Example(
            "gaudi-launch cache prune --older 30d -c recipes",
            "Show what has not been used for 30 days",
        ),
    ),
    "cache list": (
        Example("gaudi-launch cache list", "List the compiled graphs of this user"),
        Example(
            "gaudi-launch cache list -c recipes --machine simulated:hls2",
            "Show which keys fit another machine",
        ),
    ),
    "cache show": (
        Example("gaudi-launch cache show ffd155d6 -c recipes", "Show one key by its first digits"),
        Example("gaudi-launch cache show ffd155d6 -c recipes --json", "The same for a script"),
    ),
    "cache verify": (
        Example("gaudi-launch cache verify -c recipes", "Compare every file with the index"),
        Example(
            "gaudi-launch cache verify ffd155d6 --quick -c recipes",
            "Compare names and sizes of one key",
        ),
    ),
    "cache prune": (
        Example(
            "gaudi-launch cache prune --older 30d -c recipes",
            "Show what has not been used for 30 days",
        ),
        Example(
            "gaudi-launch cache prune --max-size 50G --yes -c recipes",
            "Remove the oldest keys above 50 GiB",
        ),
    ),
    "cache export": (
        Example(
            "gaudi-launch cache export ffd155d6 key.tar.zst -c recipes", "Write one key to a file"
        ),
        Example(
            "gaudi-launch cache export ffd155d6 key.tar.zst -c recipes --json",
            "The same for a script",
        ),
    ),
    "cache import": (
        Example(
            "gaudi-launch cache import key.tar.zst -c other --machine simulated:hls2",
            "Import a key for a simulated machine",
        ),
        Example(
            "gaudi-launch cache import key.tar.zst -c other --force",
            "Import although it was compiled for another machine",
        ),
    ),
    "cache sync": (
        Example(
            "gaudi-launch cache sync ffd155d6 me@host -c recipes",
            "Print the rsync command for another machine",
        ),
        Example(
            "gaudi-launch cache sync ffd155d6 me@host:/data/recipes -c recipes",
            "Name the folder there",
        ),
    ),
    "cache adopt": (
        Example(
            "gaudi-launch cache adopt Qwen/Qwen3-8B -n 1 -c old-recipes --machine simulated:hls2",
            "Write an index for a start script's cache",
        ),
        Example(
            (
                "gaudi-launch cache adopt Qwen/Qwen3-8B -n 2 -l 16k -c old-recipes --machine "
                "simulated:hls2"
            ),
            "Give the options that it was filled with",
        ),
    ),
    "profiles": (
        Example("gaudi-launch profiles list", "List the models with known settings"),
        Example(
            "gaudi-launch profiles show qwen3-8b", "Show one profile with the source of each value"
        ),
    ),
    "profiles list": (
        Example("gaudi-launch profiles list", "List the models with known settings"),
        Example("gaudi-launch profiles list --json", "The same for a script"),
    ),
    "profiles show": (
        Example(
            "gaudi-launch profiles show qwen3-8b", "Show one profile with the source of each value"
        ),
        Example("gaudi-launch profiles show Qwen/Qwen3-8B", "Find it by the model's ID"),
    ),
    "profiles check": (
        Example("gaudi-launch profiles check", "Check all profiles"),
        Example("gaudi-launch profiles check mine.yaml", "Check one of your profiles"),
    ),
}


def examples_of(path: str) -> tuple[Example, ...]:
    """Return the examples of a command, by its path without the program's name."""
    return _EXAMPLES.get(path, ())
