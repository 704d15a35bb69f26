"""Every command about a model of a hub: it answers as about the same model in a folder."""

from __future__ import annotations

import json
import re
import shlex
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from tests.support.local_hub import Hub
from tests.support.places import TESTS

CONFIGS = json.loads((TESTS / "data" / "models" / "published.json").read_text(encoding="utf-8"))[
    "configs"
]


@dataclass(frozen=True)
class Kind:
    """A published config.json with as many weights, in a type of safetensors."""

    like: str
    parameters: int
    dtype: str = "BF16"
    cards: str = "8"

    @property
    def size(self) -> int:
        return self.parameters * (2 if self.dtype == "BF16" else 1)

    def header(self) -> bytes:
        tensors = {"model.w": (self.dtype, self.parameters, self.size)}
        if self.dtype != "BF16":
            tensors["model.w_scale_inv"] = ("F32", 1, 4)
        header, at = {}, 0
        for name, (dtype, count, size) in tensors.items():
            header[name] = {"dtype": dtype, "shape": [count], "data_offsets": [at, at + size]}
            at += size
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text

    @property
    def config(self) -> bytes:
        return json.dumps(CONFIGS[self.like]).encode()


KINDS = {
    "dense": Kind("Qwen/Qwen3-8B", 8_190_735_360, cards="1"),
    "mixture": Kind("Qwen/Qwen3-30B-A3B", 30_532_122_624, cards="2"),
    "mla": Kind("deepseek-ai/DeepSeek-R1", 671_026_419_200, "F8_E4M3"),
    "hybrid": Kind("Qwen/Qwen3.5-35B-A3B", 35_951_822_704, cards="2"),
}
# the model is the word MODEL, its cards CARDS
COMMANDS = {
    "inspect": "inspect MODEL --accelerator gaudi2 --json",
    "plan": "plan MODEL --machine simulated:hls2 --json",
    "plan with cards": "plan MODEL -n CARDS --machine simulated:hls2 --json",
    "warmup": "warmup -w MODEL -n CARDS --machine simulated:hls2 --json",
    "estimate": "estimate MODEL -n CARDS --accelerator gaudi2 --json",
    "recommend": "recommend MODEL -n CARDS --machine simulated:hls2 --json",
    "cluster": "cluster plan MODEL --hosts a=simulated:hls2,b=simulated:hls2 --json",
    "render": "render script MODEL --machine simulated:hls2",
    "kube": "render kubernetes MODEL -n CARDS --machine simulated:hls2",
    "migrate": "migrate 'bash start_gaudi_vllm_server.sh -w MODEL -n CARDS' --engine vllm-gaudi "
    "--machine simulated:hls2 --json",
    "stack": "stack init MODEL --machine simulated:hls2 --json",
}
OF_EACH_KIND = ("inspect", "plan", "warmup", "estimate", "migrate")
# what tells of the place of the model, and what follows from it
_OF_THE_PLACE = "source path warnings steps assumptions notes name verdict todo"
# the weights of the folder are zeros, which need no conversion to Gaudi2's range
_OF_THE_CONVERSION = ("argv", "settings")
_KEY = re.compile(r"\b[0-9a-f]{16}\b")


@pytest.fixture
def place(
    current_folder: Path, monkeypatch: pytest.MonkeyPatch, plain_english: None, tmp_path: Path
) -> Path:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, place: Path) -> Iterator[Hub]:
    with Hub({}, repo="me/none") as made:
        made.others = {
            f"me/{name}": {"config.json": kind.config, "model.safetensors": kind.header()}
            for name, kind in KINDS.items()
        }
        for name, value in made.environment().items():
            monkeypatch.setenv(name, value)
        yield made


def folder(name: str, place: Path) -> str:
    """Return a folder with the files of a kind; its weights are a hole in the file."""
    kind, path = KINDS[name], place / name
    path.mkdir()
    (path / "config.json").write_bytes(kind.config)
    (path / "tokenizer.json").write_text("{}")
    with (path / "model.safetensors").open("wb") as file:
        file.write(kind.header())
        file.truncate(len(kind.header()) + kind.size + (4 if kind.dtype != "BF16" else 0))
    return str(path)


def words_of(command: str, model: str, cards: str = "4") -> list[str]:
    return shlex.split(command.replace("CARDS", cards).replace("MODEL", model))


def answer(
    command: str, model: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> tuple[int, Any]:
    """Return exit code and output, without what tells of the place of the model."""
    code = run(words_of(command, model, KINDS[kind].cards))
    shown = capsys.readouterr().out
    Path("stack.yaml").unlink(missing_ok=True)
    if "kubernetes" in command:
        # a pod fetches a hub's model, and mounts a folder
        return code, re.findall(r"a pod has [^;]*", shown)
    return code, facts(json.loads(shown) if "--json" in command else shown.splitlines(), kind)


def facts(found: Any, kind: str) -> Any:
    if isinstance(found, dict):
        left_out = (*_OF_THE_PLACE.split(), *(_OF_THE_CONVERSION if kind == "mla" else ()))
        return {name: facts(each, kind) for name, each in found.items() if name not in left_out}
    if isinstance(found, list):
        return [facts(each, kind) for each in found]
    if isinstance(found, str):
        # the folder of a conversion is beside the model's, or among the downloads
        return _KEY.sub("KEY", re.sub(rf"[^\s'=]*\b{kind}(?=-G2|\b)", "MODEL", found))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_hub_id_gets_the_answers_of_its_folder(
    kind: str, hub: Hub, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = folder(kind, place)
    for name, command in COMMANDS.items():
        # the others differ from these by no line about the model
        if kind == "dense" or name in OF_EACH_KIND:
            found = answer(command, f"me/{kind}", kind, capsys)
            assert (name, found) == (name, answer(command, here, kind, capsys))
            assert found[0] == 0
    # read once for all of them
    assert {path for path, _ in hub.asked} == {"config.json", "model.safetensors"}
    assert len(hub.asked) == 2


@pytest.mark.parametrize("weights", [True, False])
def test_no_screen_has_a_value_that_is_not_known(
    weights: bool, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without safetensors the parameters are counted by config.json."""
    if not weights:
        del hub.others["me/mixture"]["model.safetensors"]
    for command in COMMANDS.values():
        if "--json" in command:
            assert run(words_of(command.removesuffix(" --json"), "me/mixture")) == 0, command
            out, err = capsys.readouterr()
            assert "None" not in out + err, command


# what a hub that cannot tell the sizes says of a model, and the reason that every command gives
REASONS = {
    "gated": ("me/dense", "gated", "requires permission to download me/dense"),
    "refused token": ("me/dense", "token", "refused the token"),
    "absent": ("me/absent", "", "There is no model me/absent"),
    "slow": ("me/dense", "hang", "cannot be reached to read me/dense (timed out)"),
    "offline": ("me/dense", "offline", "cannot be reached to read me/dense (Connection refused)"),
}
WITHOUT_CARDS = (
    "plan MODEL --machine simulated:hls2",
    "warmup -w MODEL --machine simulated:hls2",
    "render script MODEL --machine simulated:hls2",
    "estimate MODEL -n 1 --accelerator gaudi2",
    "recommend MODEL --machine simulated:hls2",
    "inspect MODEL",
    "serve MODEL --engine simulated --machine simulated:hls2",
)


@pytest.mark.parametrize("reason", REASONS)
def test_a_hub_that_does_not_tell_the_sizes_is_named_by_every_command(
    reason: str, hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, hub.trouble, sentence = REASONS[reason]
    if reason == "offline":
        for name in ("HF_ENDPOINT", "MODELSCOPE_ENDPOINT"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
    begin = time.monotonic()
    for command in WITHOUT_CARDS:
        code = run(words_of(command, model))
        out, err = capsys.readouterr()
        assert (command, code, out) == (command, 5, "")
        assert sentence in " ".join(err.split()), command
    for command in (COMMANDS["migrate"], COMMANDS["plan with cards"]):
        assert run(words_of(command.removesuffix(" --json"), model, "2")) == 0
        shown = capsys.readouterr().out
        assert sentence in " ".join(shown.split()) and "None" not in shown
    assert shown.splitlines()[0].endswith("on 2 cards: its sizes and its memory are unknown.")
    # ten seconds at most for all of them, and for each hub one connection
    assert time.monotonic() - begin < 60
    assert reason != "slow" or len(hub.asked) == 1
