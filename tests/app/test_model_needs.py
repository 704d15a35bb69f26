"""The needs of a model: places, conversion, measurements, code, disk space; nothing is changed."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.app import model_needs
from gaudi_launch.app.model_needs import (
    Provision,
    check_disk,
    clear_old_scales,
    generation_of,
    incomplete,
    look,
)
from gaudi_launch.engines.detect import Installed
from gaudi_launch.engines.registry import find
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.hardware import Host
from gaudi_launch.host.simulated import make
from gaudi_launch.models.fp8 import convert, measurements
from gaudi_launch.models.fp8.measurements import Published
from gaudi_launch.models.fp8.quant_config import QuantFile
from gaudi_launch.models.hub.file_choice import Fetched, write_record
from gaudi_launch.models.hub.local import folder_for
from gaudi_launch.models.model import Model
from gaudi_launch.models.setup_steps import Room, SetupFacts
from gaudi_launch.planning.request import Request
from gaudi_launch.profiles import known_model
from tests.support.model_files import CONFIG
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

R1 = "deepseek-ai/DeepSeek-R1"
HLS2 = make("hls2")
GAUDI3 = make("gaudi3-oam")
FORK = find("deepseek_r1")
HERE = Installed("/p", "deepseek_r1")
GIB = 1 << 30
Usage = namedtuple("Usage", "total used free")


def request(**changes: Any) -> Request:
    return Request(**{"model": R1, "cards": 8, "engine": "deepseek_r1", **changes})


def fetched(repo: str = R1) -> Path:
    """Write a complete copy of a model, as a download leaves it."""
    folder = folder_for(repo)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "configuration_deepseek.py").write_text("")
    (folder / "model.safetensors").write_bytes(b"weights")
    write_record(folder, Fetched(repo, "hf", "c0ffee", True, {}))
    return folder


# --- what is looked for --------------------------------------------------------------------------


def test_a_model_of_a_hub_that_is_not_here_needs_everything(tmp_path: Path) -> None:
    found = look(request(), replace(HLS2, origin="live"), FORK, HERE)
    facts = found.facts
    assert (facts.model, facts.repo, facts.folder, facts.engine, facts.installed) == (
        R1,
        R1,
        None,
        "deepseek_r1",
        True,
    )
    assert (facts.target, facts.converted_target) == (folder_for(R1), folder_for(f"{R1}-G2"))
    assert (facts.converts, facts.converted) == (True, False)
    assert facts.there == ((facts.target, 0), (facts.converted_target, 0))
    assert [(step.name, step.done) for step in found.steps] == [
        ("disk", facts.rooms[0].enough),
        ("pull", False),
        ("convert", False),
        ("engine", True),
    ]
    # the guide of this model names the space
    assert facts.disk_bytes is not None and facts.rooms[0].needed == facts.disk_bytes
    # its profile knows that it has code
    assert found.code is not None
    assert (found.code.id, found.code.exit_code) == ("plan.remote_code", ExitCode.MODEL)
    assert found.notes == (found.code.text,)
    consent = look(request(trust_remote_code=True), HLS2, FORK, HERE)
    assert (consent.code, consent.notes) == (None, ())


def test_the_disks_of_another_machine_are_unknown() -> None:
    facts = look(request(), HLS2, FORK, None).facts
    [room] = facts.rooms
    assert (room.path, room.free) == (facts.target, None)
    assert (facts.engine, facts.installed) == ("", False)
    wrong = look(request(), HLS2, FORK, Installed("/p", "vllm-fork@1.21")).facts
    assert (wrong.engine, wrong.installed) == ("deepseek_r1", False)


def test_a_copy_on_this_machine_is_used_and_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fetched()
    monkeypatch.setattr(convert, "wants_conversion", lambda path: path == folder)
    monkeypatch.setattr(convert, "is_converted", lambda path: path == folder_for(f"{R1}-G2"))
    found = look(request(trust_remote_code=True), HLS2, FORK, HERE)
    facts = found.facts
    assert (facts.folder, facts.converts, facts.converted) == (folder, True, True)
    # the last part of a cache's folder is no name
    assert found.known.name == "DeepSeek-R1"
    assert dict(facts.there)[folder] == sum(
        p.stat().st_size for p in folder.rglob("*") if p.is_file()
    )
    served = found.request_for(request())
    assert (served.model, served.served_name) == (str(folder_for(f"{R1}-G2")), R1)
    named = found.request_for(request(served_name="r1"))
    assert named.served_name == "r1"
    monkeypatch.setattr(convert, "wants_conversion", lambda path: False)
    plain = look(request(trust_remote_code=True), HLS2, FORK, HERE)
    assert (plain.facts.converts, plain.request_for(request()).model) == (False, str(folder))
    # Gaudi3 has the range of the weights
    monkeypatch.setattr(convert, "wants_conversion", lambda path: True)
    assert not look(request(), GAUDI3, FORK, HERE).facts.converts


def test_a_folder_of_the_user_is_converted_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "own"
    gone = look(request(model=str(folder)), HLS2, FORK, HERE)
    assert (gone.facts.converts, gone.steps, gone.facts.final) == (False, (), None)
    assert gone.request_for(request(model=str(folder))).model == str(folder)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.setattr(convert, "wants_conversion", lambda path: True)
    found = look(request(model=str(folder)), HLS2, FORK, HERE)
    target = tmp_path / "own-G2"
    assert (found.facts.repo, found.facts.folder, found.facts.converted_target) == (
        "",
        None,
        target,
    )
    assert found.facts.there == ((target, 0),)
    assert found.request_for(request(model=str(folder))) == request(
        model=str(target), served_name=str(folder)
    )


def test_a_plan_keeps_the_name_of_what_is_not_here() -> None:
    small = look(Request("Qwen/Qwen3-8B", cards=1), HLS2, find("vllm-gaudi"), None)
    asked = Request("Qwen/Qwen3-8B")
    assert small.request_for(asked) == asked
    assert small.planned(asked).path == "Qwen/Qwen3-8B"
    quant = QuantFile("/q.json", "flag")
    assert replace(small, quant=quant).request_for(asked).quant_file == quant


def test_simulated_cards_need_no_weights_and_no_code() -> None:
    found = look(request(), HLS2, find("simulated"), None)
    assert (found.steps, found.code, found.quant, found.notes) == ((), None, None, ())


@pytest.mark.parametrize(
    ("machine", "generation"), [("hls2", "g2"), ("gaudi2e-8", "g2"), ("gaudi3-oam", "g3")]
)
def test_measurements_are_of_a_generation(machine: str, generation: str) -> None:
    assert generation_of(make(machine)) == generation
    assert generation_of(Host()) == "g2"


@pytest.mark.parametrize(
    ("model", "size"),
    [
        (Model("", "", weight_bytes=7), 7),
        (Model("", "", parameters=10), 20),
        (Model("", "", parameters=10, dtype="float32"), 40),
        (Model("", "", parameters=10, dtype="float32", quantization="fp8"), 10),
        (Model("", "", parameters=10, dtype="strange"), None),
        (Model("", ""), None),
    ],
)
def test_weights_have_a_size_by_their_number_and_type(model: Model, size: int | None) -> None:
    assert model_needs._weight_bytes(model) == size


def test_the_size_of_a_folder_is_that_of_its_files(tmp_path: Path) -> None:
    assert model_needs._size(tmp_path / "gone") == 0
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_bytes(b"12345")
    (tmp_path / "b").write_bytes(b"123")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    assert model_needs._size(tmp_path) == 8


# --- measurements --------------------------------------------------------------------------------


class Wanted:
    """Keeps the question for measurements, and answers it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: QuantFile | None) -> None:
        self.asked: list[measurements.MeasurementQuery] = []
        self.answer = answer
        monkeypatch.setattr(measurements, "find", self.find)
        monkeypatch.setattr(measurements, "calibrated_for", lambda *words: [1, 4])

    def find(self, wanted: measurements.MeasurementQuery) -> QuantFile | None:
        self.asked.append(wanted)
        return self.answer


FP8 = Request(
    "/m/Small",
    cards=2,
    engine="vllm-fork@1.21",
    dtype="fp8",
    quant_config="/named.json",
    environment={"QUANT_CONFIG": "/exported.json", measurements.PREFIX: "/prefix"},
)
SMALL = Model("/m/Small", "Small", "config.json", model_type="llama", moe=False, layers=2)


def quant(
    asked: Request = FP8, model: Model = SMALL, facts: dict[str, str] | None = None
) -> tuple[QuantFile | None, Published | None, LaunchError | None]:
    engine = find("vllm-fork@1.21")
    installed = Installed("/p", "vllm-fork@1.21", {}, facts or {})
    return model_needs._quant(asked, model, None, "g2", engine, installed)


def test_measurements_are_searched_by_all_that_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Wanted(monkeypatch, QuantFile("/q.json", "flag"))
    calibration = find("vllm-fork@1.21").calibration
    assert calibration is not None
    assert quant(facts={"source": "/src"}) == (QuantFile("/q.json", "flag"), None, None)
    assert wanted.asked == [
        measurements.MeasurementQuery(
            model="Small",
            cards=2,
            generation="g2",
            named="/named.json",
            exported="/exported.json",
            prefix="/prefix",
            profile_file=None,
            published=None,
            checkout="/src",
            family=calibration.family,
        )
    ]
    modules = replace(FP8, cards=None, modules=(1, 2, 3))
    quant(modules)
    assert wanted.asked[-1].cards == 3
    # bfloat16 needs none
    assert quant(replace(FP8, dtype=None, quant_config=None, environment={})) == (None, None, None)
    assert len(wanted.asked) == 2


def test_missing_measurements_are_an_error_with_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = Wanted(monkeypatch, None)
    found, published, lacks = quant()
    assert (found, published) == (None, None) and lacks is not None
    folder = measurements.calibrated_folder("Small", "g2", 2, wanted.asked[0].family)
    assert (lacks.id, lacks.exit_code, dict(lacks.text.values)) == (
        "quant.none",
        ExitCode.MODEL,
        {"model": "/m/Small", "name": "Small", "cards": 2, "folder": str(folder), "others": "1, 4"},
    )
    monkeypatch.setattr(measurements, "calibrated_for", lambda *words: [])
    assert quant()[2].text.values["others"] == "-"  # type: ignore[union-attr]
    wanted.answer = QuantFile("/q.json", "flag", missing=("a", "b"))
    found, published, lacks = quant()
    assert (found, published) == (wanted.answer, None) and lacks is not None
    with refused(
        "quant.measurements_missing",
        ExitCode.MODEL,
        path="/q.json",
        model="/m/Small",
        cards=2,
        count=2,
        first="a",
    ):
        raise lacks
    assert incomplete(wanted.answer, "x", 4).text.values["cards"] == 4


def test_published_measurements_are_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    published = Published("org/measured", 8, "stem")
    monkeypatch.setattr(
        "gaudi_launch.profiles.published_for",
        lambda profile, name, generation, cards: (
            published if (name, cards) == ("Small", 2) else None
        ),
    )
    wanted = Wanted(monkeypatch, QuantFile("/q.json", "downloaded", missing=("a",)))
    assert quant() == (wanted.answer, published, None)
    assert wanted.asked[0].published == published
    asked = replace(FP8, model="org/Small")
    engine = find("vllm-fork@1.21")
    needs = look(asked, HLS2, engine, None)
    assert (needs.facts.measured, needs.facts.measurements, needs.published) == (
        False,
        "org/measured",
        published,
    )
    wanted.answer = QuantFile("/q.json", "downloaded")
    assert look(asked, HLS2, engine, None).facts.measured
    wanted.answer = None
    assert not look(asked, HLS2, engine, None).facts.measured
    # one that is here already is no step
    wanted.answer = QuantFile("/q.json", "calibrated")
    assert quant() == (wanted.answer, None, None)


# --- checks before a launch ----------------------------------------------------------------------


def test_the_scales_of_other_measurements_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    cleared: list[QuantFile] = []
    monkeypatch.setattr(model_needs, "clear_stale", cleared.append)
    ready = Provision(SetupFacts("x"))
    clear_old_scales(ready)
    assert cleared == []
    file = QuantFile("/q.json", "flag")
    clear_old_scales(replace(ready, quant=file))
    assert cleared == [file]


def test_what_is_written_to_one_disk_is_added_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = SetupFacts(
        "org/m",
        repo="org/m",
        target=tmp_path / "a" / "b",
        weight_bytes=10 * GIB,
        converts=True,
        converted_target=tmp_path / "c",
    )
    free = {"bytes": 22 * GIB}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, free["bytes"]))
    # the weights twice, and a GiB for other files of each
    assert model_needs._rooms(facts, here=True) == (Room(tmp_path, 22 * GIB, 22 * GIB),)
    assert model_needs._rooms(facts, here=False) == (Room(facts.target, 22 * GIB, None),)
    assert model_needs._rooms(SetupFacts("m"), here=False) == ()
    check_disk(facts)
    free["bytes"] -= 1
    with refused(
        "prepare.disk", ExitCode.MACHINE, model="org/m", path=str(tmp_path), free=23.6, needed=23.6
    ):
        check_disk(facts)


def test_a_known_model_has_the_sizes_of_its_profile() -> None:
    found = look(request(), HLS2, FORK, None)
    assert found.facts.weight_bytes == model_needs._weight_bytes(known_model(R1, False))
    assert found.generation == "g2"
