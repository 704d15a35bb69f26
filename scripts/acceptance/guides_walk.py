"""Walk the five public guides as their readers, from the BIOS to an answer.

`guides_walk.py [--lang en|zh] [--guide 000|001|002|003|004]`

The machine is a badly tuned Gaudi2 server in a folder. The package index, git, docker and the hub
are stand-ins on this machine; the engine that `setup` installs is a stand-in, too. The simulated
engine, the embedded engine and Ray are real and used where they are installed (`setup cpu`, `setup
ray`). Each row is a statement of a guide, the command for it, and what is still done by hand. The
exit status is 0 when every command ended as expected, in Chinese without an English sentence.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gaudi_launch.core.base.paths import engines_dir
from gaudi_launch.core.engines.install.demo import demo_dir
from gaudi_launch.core.host.simulated import write_tree
from tests.support.acceptance import Unexpected, check_shown
from tests.support.docker_daemon import Daemon
from tests.support.local_hub import Hub
from tests.support.model_files import FILES as DEEPSEEK
from tests.support.model_files import shard
from tests.support.places import SUPPORT
from tests.support.remedies import add_update_grub
from tests.support.serve import CONFIG
from tests.support.waiting import unused_port

LANGUAGES = {"en": "C.UTF-8", "zh": "zh_CN.UTF-8"}
GUIDES = ("002", "000", "001", "003", "004")
TGI_IMAGE = "ghcr.io/huggingface/text-generation-inference:3.2.3-gaudi"
# only its architecture and what the guide's options must fit are the model's
QWQ = {**CONFIG, "architectures": ["Qwen2ForCausalLM"], "max_position_embeddings": 131072}
QWQ_FILES = {
    "config.json": json.dumps(QWQ).encode(),
    "tokenizer.json": b"{}",
    "model.safetensors": shard(0.1),
}
# an English sentence on a Chinese screen: four plain terms in a row
SENTENCE = re.compile(r"(?:^|[^\w./'-])((?:[A-Za-z]{2,},? ){3}[a-z]{2,})(?![\w-]*[./=-])")
COMMANDS = ("#", "{", "curl", "$", "立即执行", "永久生效")
# answers of a model
ANSWERS_IN_ENGLISH = ("The capital of France is Paris", "This answer is simulated")
# python3 with Gaudi's PyTorch, and the environments that `setup` makes of it
PYTHON = """#!{python}
import json, os, pathlib, shutil, sys
place = pathlib.Path(sys.argv[0]).parent.parent
engine = place.parent.name.removesuffix(".current").partition("+")[0]
argv = sys.argv[1:]
if argv[:2] == ["-m", "venv"]:
    target = pathlib.Path(argv[-1]) / "bin" / "python"
    target.parent.mkdir(parents=True)
    shutil.copy2(sys.argv[0], target)
elif argv[:2] == ["-m", "pip"]:
    if argv[-1].startswith("ray["):
        (place / "ray").touch()
elif argv[:1] == ["-c"]:
    answers = json.loads({answers!r})
    answer = answers.get(engine, {{"packages": {{}}, "facts": {{}}}})
    if (place / "ray").exists():
        answer["packages"]["ray"] = "2.60.0"
    print("gaudi-launch-answer:" + json.dumps(answer))
else:
    os.execv(sys.executable, [sys.executable, {engine!r}, *argv])
"""
# a checkout of vLLM has this file of build requirements
GIT = """#!/bin/sh
for last; do :; done
[ "$1" = init ] && mkdir -p "$last/requirements/build" && touch "$last/requirements/build/cuda.txt"
exit 0
"""
BELOW = {f"habana-torch-{name}": "1.22.1.6" for name in ("plugin", "dataloader")}
ANSWERS = {
    "vllm-fork-1.21": {
        "packages": {**BELOW, "vllm": "0.8.5+gaudi121", "vllm-hpu-extension": "1.21.0"},
        "facts": {"extension_kind": "1.21"},
    },
    "vllm-gaudi": {
        "packages": {**BELOW, "vllm": "0.26.0", "vllm-gaudi": "0.26.0", "transformers": "4.57.0"},
        "facts": {},
    },
}


@dataclass
class Walk:
    """One reader: a server, a home and a language."""

    folder: Path
    lang: str
    hub: Hub
    curl: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root = self.folder / "server"
        write_tree("hls2+bad-tuning", self.root)
        self.menu = add_update_grub(self.root)
        self.home = self.folder / "home"
        data = self.home / ".local/share/gaudi-launch"
        for name in ("cpu", "cpu.current", "ray", "ray.current"):
            if (engines_dir() / name).exists():
                (data / "engines").mkdir(parents=True, exist_ok=True)
                (data / "engines" / name).symlink_to((engines_dir() / name).resolve())
        if demo_dir().exists():
            (data / "models").mkdir(parents=True)
            (data / "models/demo").symlink_to(demo_dir())
        self.docker = Daemon(self.folder / "docker", images={TGI_IMAGE})
        engine = str(SUPPORT / "trivial_engine.py")
        python = PYTHON.format(python=sys.executable, answers=json.dumps(ANSWERS), engine=engine)
        stub = f'#!/bin/sh\nexec {sys.executable} {SUPPORT / "docker_stub.py"} "$@"\n'
        apt = f"#!/bin/sh\ntouch {self.root}/usr/bin/habana-container-runtime\n"
        systemctl = f"#!/bin/sh\ngrep -q habana {self.root}/etc/docker/daemon.json\n"
        sudo = '#!/bin/sh\n[ "$1" = gaudi-launch ] && shift && set -- {} -m gaudi_launch "$@"\n'
        stand_ins = {
            "bin/python3": python,
            "bin/git": GIT,
            "bin/docker": stub,
            "bin/sudo": sudo.format(sys.executable) + 'exec "$@"\n',
            "bin/apt-get": apt,
            "usr/bin/systemctl": systemctl,
        }
        for path, text in stand_ins.items():
            (self.root / path).write_text(text)
            (self.root / path).chmod(0o755)
        self.values = {"port": str(unused_port()), "home": str(self.home), "self": str(self.folder)}

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables of this reader's login."""
        dropped = ("GAUDI_LAUNCH", "XDG_", "LC_", "HF_", "VLLM_", "HABANA_", "MODELSCOPE")
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith(dropped)},
            **self.hub.environment(),
            "HOME": str(self.home),
            "LANG": LANGUAGES[self.lang],
            "GAUDI_LAUNCH_ROOT": str(self.root),
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "STUB_DOCKER": str(self.docker.path),
        }

    def call(self, argv: Sequence[str]) -> tuple[int, str]:
        """Run a command of the guide's reader; return its exit code and what it showed."""
        words = [word.format_map(self.values) for word in argv]
        if words[0] == "gaudi-launch":
            words[:1] = [sys.executable, "-m", "gaudi_launch"]
        done = subprocess.run(
            words,
            env=self.environment,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=1200,
        )
        shown = done.stdout + done.stderr
        self.curl = [line.strip() for line in shown.splitlines() if " curl " in line] or self.curl
        return done.returncode, shown

    def stop(self) -> None:
        """End what is left of the services."""
        self.call(("gaudi-launch", "stop", "--all"))


Action = Callable[[Walk], str]


@dataclass(frozen=True)
class Step:
    """A statement of a guide, its command or action, and what that must show."""

    states: str
    do: str | Action
    shows: tuple[str, ...] = ()
    code: int = 0
    by_hand: str = ""


def reboot(walk: Walk) -> str:
    """Boot with GRUB's line; sysctl.d, limits.d and the BIOS menus are in force then."""
    root, tuned = walk.root, walk.folder / "tuned"
    write_tree("hls2", tuned)
    line = walk.menu.read_text()
    (root / "proc/cmdline").write_text(line)
    if "intel_idle.max_cstate=0" not in line:
        raise Unexpected(f"GRUB's line: {line}")
    kernel = ("sys/module/intel_idle/parameters/max_cstate", "proc/self/limits", "proc/meminfo")
    for path in kernel:
        shutil.copy2(tuned / path, root / path)
    for state in (*root.glob("sys/devices/system/cpu/cpu*/cpuidle/state[23]"),):
        shutil.rmtree(state)
    shutil.rmtree(tuned)
    return line


def first_request(walk: Walk) -> str:
    """Send the request that the last launch printed."""
    if not walk.curl:
        raise Unexpected("no launch printed a request")
    code, shown = walk.call(shlex.split(walk.curl[-1].replace("{", "{{").replace("}", "}}")))
    if code:
        raise Unexpected(shown)
    return shown


def prepared(words: str) -> Action:
    """Return the action that runs each command that `plan` names, until none is left."""

    def act(walk: Walk) -> str:
        run = []
        for _ in range(4):
            code, shown = walk.call(("gaudi-launch", "plan", *shlex.split(words), "--json"))
            plan = json.loads(shown[: shown.rindex("}") + 1])
            commands = [each["command"] for each in plan.get("todo", ()) if each["command"]]
            if not commands:
                break
            code, shown = walk.call(commands[0])
            run.append(shlex.join(commands[0]))
            check_shown(shown, code, 0, ())
        if plan["verdict"] == "refused" or commands:
            raise Unexpected(f"after {run}: {json.dumps(plan)[:700]}")
        return "; ".join(run)

    return act


def remedied(check: str) -> Action:
    """Return the action that runs the commands of a failed check's remedy."""

    def act(walk: Walk) -> str:
        _, shown = walk.call(("gaudi-launch", "doctor", "--only", check, "--json"))
        [finding] = json.loads(shown)["findings"]
        commands = finding["remedy"]["commands"]
        for command in commands:
            code, shown = walk.call(shlex.split(command))
            check_shown(shown, code, 0, ())
        return "; ".join(commands)

    return act


def chat_page(walk: Walk) -> str:
    """Open the chat page of the last service, which is on its port."""
    port = str(unused_port())
    url = f"http://127.0.0.1:{walk.values['port']}"
    words = [sys.executable, "-m", "gaudi_launch", "webui", url, "-p", port]
    process = subprocess.Popen(words, env=walk.environment, cwd=walk.home)
    try:
        for _ in range(120):
            code, shown = walk.call(("curl", "-s", "--noproxy", "*", f"http://127.0.0.1:{port}/"))
            if code == 0:
                return shown
            time.sleep(1)
        raise Unexpected("the page did not open")
    finally:
        process.terminate()
        process.wait(60)


QWQ_ANSWER = "--detach --name qwq -p {port} -c {home}/warmup_cache"
QWQ_OPTIONS = "-n 8 -b 24 -i 4,38912 -o 4,2048 -l 40960 -t 40960 -d bfloat16"
QWEN = "-n 4 -m 0,1,2,3 -b 128 -i 800,1024 -o 400,512 -l 8192 -t 8192 -d bfloat16"
DISTILL = (
    "-i 800,4096 -o 800,2048 -l 8192 -t 8192 -d bfloat16 -c {home}/cache --engine vllm-fork@1.21"
)
FORK = "--engine vllm-fork@1.21"
DISTILLED = "deepseek-ai/DeepSeek-R1-Distill"
LLAMA = "meta-llama/Llama-2"
LLAMA_13B = "NousResearch/Llama-2-13b-chat-hf"
TGI = "--engine tgi@3.2.3"
SERVER = (
    Step(
        "002 1.1.1 BIOS settings",
        "doctor --all",
        ("BIOS", "C6"),
        3,
        "BIOS menus (performance, P-states, C6)",
    ),
    Step(
        "002 1.1.2 GRUB, governor, NUMA balancing, huge pages",
        "doctor --fix --yes",
        ("update-grub", "nr_hugepages", "numa_balancing", "sudo reboot"),
        3,
    ),
    Step("002 1.1.2 reboot", reboot, by_hand="reboot"),
    Step("002 1.1.2 'cat scaling_governor'", "doctor --only cpu,kernel,memory", ("=performance",)),
    Step("000 container runtime", remedied("container.runtime"), ("apt-get", "doctor --fix")),
    Step("the server is ready for an engine", "doctor --skip engine --strict"),
)
STEPS: Mapping[str, tuple[Step, ...]] = {
    "002": (
        *SERVER,
        Step(
            "1.2.1 docker run", f"render docker Qwen/Qwen2-72B-Instruct {QWEN} {FORK}", ("habana",)
        ),
        Step(
            "1.3 git clone of ModelScope's weights",
            "pull Qwen/QwQ-32B --from modelscope",
            ("Qwen/QwQ-32B",),
        ),
        Step(
            "1.4 vLLM, mirror of pip, Pillow-SIMD",
            "setup vllm-fork@1.21 --index-url https://mirrors.aliyun.com/pypi/simple/ --vision",
            ("vllm-fork-1.21",),
        ),
        Step(
            "2.1 start_gaudi_vllm_server.sh",
            f'migrate "bash start_gaudi_vllm_server.sh -w /m/QwQ-32B {QWQ_OPTIONS} -r 8,24000"',
            ("gaudi-launch serve",),
        ),
        Step(
            "2.2 how long the warm-up is", f"warmup Qwen/Qwen2-72B-Instruct {QWEN} {FORK}", ("4",)
        ),
        Step("2.2 -r: fewer graphs", f"warmup QwQ-32B {QWQ_OPTIONS} -r 8,24000 {FORK}", ("24",)),
        Step("2.2 QwQ-32B", f"serve Qwen/QwQ-32B {QWQ_OPTIONS} {QWQ_ANSWER}", ("curl",)),
        Step("2.2 'startup complete'", "wait qwq", ("qwq",)),
        Step("3.1.2 curl", first_request, ("Paris",)),
        Step("the answers are right", "check qwq", ("Paris",)),
        Step("stop", "stop qwq", ("qwq",)),
        Step(
            "2.2 start again from the cache, -s -r",
            f"serve Qwen/QwQ-32B {QWQ_OPTIONS} {QWQ_ANSWER} -s -r 8,24000",
            ("curl",),
        ),
        Step("stop", "stop qwq", ("qwq",)),
        Step(
            "2.2 Qwen2-72B on vLLM's own server, simulated cards",
            f"serve Qwen/Qwen2-72B-Instruct {QWEN} --engine simulated --time-scale 30 --detach "
            "--name qwen -p {port}",
            ("curl",),
        ),
        Step("curl", first_request, ('"content"',)),
        Step("check", "check qwen", ("8,192",)),
        Step("stop", "stop qwen", ("qwen",)),
        Step(
            "3.1.1 weights of DeepSeek-R1",
            "pull deepseek-ai/DeepSeek-R1-0528 --from modelscope",
            ("DeepSeek-R1-0528",),
        ),
        Step(
            "3.1.1 convert_for_g2.py",
            "fp8 convert {home}/.local/share/gaudi-launch/models/deepseek-ai/DeepSeek-R1-0528 "
            "{home}/DeepSeek-R1-0528-G2",
            ("DeepSeek-R1-0528-G2",),
        ),
        Step(
            "3.1.2 measurements, start_vllm.sh -q",
            "plan deepseek-ai/DeepSeek-R1-0528 -n 8 -q -b 128 -l 16384 -p 8688 --trust-remote-code "
            "-c {home}/cache --machine simulated:hls2",
            ("ds-r1-0528-default-pile-g2-0529",),
        ),
        *(
            Step(f"3.2 {name}", f"plan {DISTILLED}-{name} {cards} {DISTILL}", (name,))
            for name, cards in (
                ("Llama-70B", "-n 4 -m 0,1,2,3 -b 128"),
                ("Qwen-32B", "-n 2 -m 0,1 -b 32"),
                ("Llama-8B", "-n 1 -m 0 -b 32"),
            )
        ),
    ),
    "000": (
        *SERVER,
        Step("hl-smi", "devices --all", ("HL-225", "7")),
        Step(
            "pip install ray, the engine, DeepSpeed",
            prepared(f"{LLAMA}-7b-chat-hf -n 1 --engine ray-serve"),
            ("setup vllm-gaudi", "ray[serve]"),
        ),
        Step(
            "serve run, one card",
            f"plan {LLAMA}-7b-chat-hf -n 1 --engine ray-serve",
            ("ray-serve",),
        ),
        Step(
            "the 70B model on eight cards",
            f"render ray-serve {LLAMA}-70b-chat-hf -n 8 --to {{home}}/serve.yaml",
        ),
        Step("its config", "render ray-serve --check {home}/serve.yaml"),
        Step(
            "serve run (real Ray, the embedded engine)",
            "serve demo --engine ray-serve --detach --name ray -p {port}",
            ("curl",),
        ),
        Step("the client", first_request, ("Paris",)),
        Step("the dashboard", "status ray", ("ray",)),
        Step("check", "check ray", ("Paris",)),
        Step("stop", "stop ray", ("ray",)),
    ),
    "001": (
        *SERVER,
        Step("hl-smi, apt list, pip list", "doctor --only driver,cards --all", ("hl-smi",)),
        Step("git clone, pip install -e .", prepared(f"{LLAMA}-7b-chat-hf -n 1"), ("setup",)),
        *(
            Step(f"{model} on {cards}", f"plan {model} -n {cards}", (model,))
            for model, cards in (
                (f"{LLAMA}-7b", 2),
                (f"{LLAMA}-70b-chat-hf", 8),
                ("mistralai/Mistral-7B-Instruct-v0.3", 2),
                ("mistralai/Mixtral-8x7B-Instruct-v0.1", 2),
            )
        ),
        Step(
            "out of memory: gpu_memory_utilization, --enforce-eager",
            f"plan {LLAMA}-7b-chat-hf -n 1 --memory-utilization 0.8 --all -- --enforce-eager",
            ("--enforce-eager", "0.8"),
        ),
        Step(
            "OpenAI-compatible server, simulated cards",
            f"serve {LLAMA}-7b-chat-hf -n 1 -b 128 -l 2048 --engine simulated --time-scale 20 "
            "--detach --name llama -p {port}",
            ("curl",),
        ),
        Step("curl", first_request, ('"content"',)),
        Step("stop", "stop llama", ("llama",)),
        Step(
            "a real answer of the embedded engine",
            "serve demo --detach --name demo -p {port}",
            ("curl",),
        ),
        Step("curl", first_request, ("Paris",)),
        Step("check", "check demo", ("Paris",)),
        Step("stop", "stop demo", ("demo",)),
    ),
    "003": (
        Step(
            "ray-service-llama2.yaml and gradio-app.py",
            f"render kubernetes {LLAMA_13B} --accelerator inf2.48xlarge --name llama2 --webui "
            "--to {home}/llama2.yaml",
            by_hand="the EKS cluster itself (install.sh, cleanup.sh: no Gaudi server)",
        ),
        Step(
            "kubectl get all: without a cluster",
            "kube status llama2",
            ("aws eks update-kubeconfig",),
            3,
        ),
        Step(
            "the same on Gaudi",
            f"render kubernetes {LLAMA_13B} -n 1 --accelerator gaudi2 --kind rayservice "
            "--replicas 1..4 --image site/vllm-gaudi-ray:1 --to {home}/gaudi.yaml",
        ),
        Step("a server for the page", "serve demo --detach --name page -p {port}", ("curl",)),
        Step("gradio-app.py", chat_page, ("gradio",)),
        Step("the question", first_request, ("Paris",)),
        Step("stop", "stop page", ("page",)),
    ),
    "004": (
        *SERVER,
        Step("docker pull", "setup tgi@3.2.3 --in docker", ("tgi",)),
        Step("model: a folder of the volume", "pull Qwen/QwQ-32B", ("QwQ-32B",)),
        Step(
            # the stand-in speaks /generate only, so check and bench are not walked here
            "docker run --model-id",
            f"serve Qwen/QwQ-32B -n 1 {TGI} -i 1024 -l 2048 -t 4096 -b 8 --detach --name tgi "
            "-p {port}",
            ("curl", "/generate"),
        ),
        Step("curl /generate", first_request, ("generated_text",)),
        Step("stop", "stop tgi", ("tgi",)),
        Step(
            "70B FP8 on eight cards",
            "plan meta-llama/Meta-Llama-3.1-70B-Instruct -n 8 -i 1024 -l 2048 -t 4096 -b 256 "
            f"--quant-config quantization_config/maxabs_quant.json {TGI} --machine simulated:hls2",
            ("QUANT_CONFIG",),
        ),
        Step("LLaVA", f"plan llava-hf/llava-v1.6-mistral-7b-hf {TGI} -b 4", ("llava",)),
    ),
}


def untranslated(shown: str) -> list[str]:
    """Return the English sentences of a Chinese screen."""
    found = []
    for line in shown.splitlines():
        if any(each in line for each in ANSWERS_IN_ENGLISH):
            continue
        match = SENTENCE.search(line)
        if match and not line.strip().startswith(COMMANDS):
            found.append(line.strip()[:160])
    return found


def take(walk: Walk, step: Step) -> str:
    """Take a step and return what it showed. Raises Unexpected."""
    if not isinstance(step.do, str):
        shown = step.do(walk)
        check_shown(shown, 0, 0, step.shows)
        return shown
    code, shown = walk.call(("gaudi-launch", *shlex.split(step.do)))
    check_shown(shown, code, step.code, step.shows)
    return shown


def walked(guide: str, lang: str, results: list[tuple[str, ...]]) -> None:
    """Walk one guide in one language, and add a row for each step."""
    small = dict(QWQ_FILES)
    for path in (*demo_dir().glob("tokenizer*"), *demo_dir().glob("chat*")):
        # a real engine reads it
        small[path.name] = path.read_bytes()
    files = {
        "Qwen/QwQ-32B": small,
        f"{LLAMA}-7b-chat-hf": small,
        "deepseek-ai/DeepSeek-R1-0528": DEEPSEEK,
    }
    with tempfile.TemporaryDirectory() as folder, Hub({}, others=files) as hub:
        (Path(folder) / "home").mkdir()
        walk = Walk(Path(folder), lang, hub)
        try:
            for step in STEPS[guide]:
                began, wrong = time.monotonic(), ""
                try:
                    shown = take(walk, step)
                    if lang == "zh" and isinstance(step.do, str):
                        wrong = "; ".join(untranslated(shown))
                except (Unexpected, ValueError, subprocess.TimeoutExpired) as error:
                    wrong = str(error)
                seconds = f"{time.monotonic() - began:.1f}"
                results.append((guide, step.states, lang, seconds, wrong, step.by_hand))
                print(f"{guide} {lang} {step.states}: {seconds} s {wrong or 'ok'}", file=sys.stderr)
        finally:
            walk.stop()
            walk.docker.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lang", choices=LANGUAGES, action="append")
    parser.add_argument("--guide", choices=GUIDES, action="append")
    given = parser.parse_args()
    results: list[tuple[str, ...]] = []
    for lang in given.lang or LANGUAGES:
        for guide in given.guide or GUIDES:
            walked(guide, lang, results)
    print("| guide | statement | language | seconds | result | still by hand |")
    print("|---|---|---|---|---|---|")
    for guide, states, lang, seconds, wrong, hand in results:
        print(f"| {guide} | {states} | {lang} | {seconds} | {wrong[:100] or 'ok'} | {hand} |")
    return int(any(row[4] for row in results))


if __name__ == "__main__":
    sys.exit(main())
