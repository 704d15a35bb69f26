"""Steps before a model can be served, with a hub and a converter that are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import model_setup
from gaudi_launch.app.model_needs import Provision
from gaudi_launch.app.model_setup import Wanted, convert, fetch
from gaudi_launch.app.report import Silent
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import text
from gaudi_launch.models.fp8 import convert as converter
from gaudi_launch.models.fp8 import measurements
from gaudi_launch.models.fp8.measurements import Published
from gaudi_launch.models.fp8.quant_config import QuantFile
from gaudi_launch.models.hub import download
from gaudi_launch.models.hub.local import folder_for
from gaudi_launch.models.setup_steps import SetupFacts
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

REPO = "org/m"


class Events(Silent):
    """Keeps what is said and reported, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def say(self, line: str) -> None:
        self.events.append(("say", line))

    def downloaded(self) -> None:
        self.events.append(("downloaded",))

    def converted(self, shard: str) -> None:
        self.events.append(("converted", shard))


# --- fetch ---------------------------------------------------------------------------------------


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Record the calls of the hub's client, which fetches nothing."""
    calls: list[tuple[Any, ...]] = []
    listing = SimpleNamespace(source="hf")

    def find(*words: str) -> Any:
        calls.append(("find", *words))
        return listing

    def list_files(repo: str, source: str, *words: str) -> Any:
        calls.append(("list", repo, source, *words))
        return SimpleNamespace(source=source)

    def pull(found: Any, folder: Path, **how: Any) -> Any:
        calls.append(("pull", found.source, folder, how))
        if folder.name == "full":
            raise LaunchError("services.drain", ExitCode.FAILED, found=1)
        return SimpleNamespace(folder=folder, cleared=("a", "b") if folder.name == "old" else ())

    monkeypatch.setattr(download, "find", find)
    monkeypatch.setattr(download, "list_files", list_files)
    monkeypatch.setattr(download, "pull", pull)
    monkeypatch.setattr(
        download, "forget", lambda found, folder: calls.append(("forget", found.source, folder))
    )
    return calls


def how(reporter: Any, **changes: Any) -> dict[str, Any]:
    base = {"everything": False, "code": False, "repo_type": "model"}
    return {**base, **changes, "report": reporter.downloading}


def test_source_revision_and_kind_are_passed_on(hub: list[Any], tmp_path: Path) -> None:
    reporter = Events()
    wanted = Wanted(REPO, "ms", None, "v2", "dataset", everything=True, code=True, verify=True)
    folder = folder_for(REPO, "v2", "dataset")
    fetch(wanted, reporter)
    full = how(reporter, everything=True, code=True, repo_type="dataset")
    assert hub == [
        ("list", REPO, "ms", "v2", "dataset"),
        ("forget", "ms", folder),
        ("pull", "ms", folder, full),
    ]
    old = tmp_path / "old"
    fetch(replace(wanted, to=old, verify=False), reporter)
    assert hub[-1] == ("pull", "ms", old, full)
    assert reporter.events[-1] == ("say", text("pull.cleared", count=2))


# --- convert -------------------------------------------------------------------------------------


def test_a_conversion_reports_its_shards_and_names_the_file_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[Any] = []
    error: list[OSError] = []

    def convert_folder(source: Path, out: Path, processes: int, force: bool, report: Any) -> str:
        calls.append((source, out, processes, force))
        report("shard-1")
        if error:
            raise error[0]
        return "done"

    monkeypatch.setattr(converter, "convert_folder", convert_folder)
    reporter = Events()
    source, out = tmp_path / "a", tmp_path / "b"
    converted: Any = convert(source, out, 3, reporter, force=True)
    assert (converted, calls) == ("done", [(source, out, 3, True)])
    assert reporter.events == [("converted", "shard-1")]
    error.append(OSError(28, "No space left on device", "/full/x"))
    with refused("fp8.io", ExitCode.FAILED, path="/full/x", why="No space left on device"):
        convert(source, out, 3, reporter)
    error[0] = OSError(28, "No space left on device")
    with refused("fp8.io", ExitCode.FAILED, path=str(out), why="No space left on device"):
        convert(source, out, 3, reporter)
    assert calls[-1][3] is False


# --- all steps -----------------------------------------------------------------------------------


def test_published_measurements_are_fetched_and_written_for_the_cards(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[Any] = []
    answers: list[Any] = [
        QuantFile("/q.json", "downloaded"),
        QuantFile("/q.json", "downloaded", missing=("a", "b")),
        OSError(13, "Permission denied"),
    ]

    def write_published(published: Published, generation: str) -> QuantFile:
        calls.append((published, generation))
        found = answers.pop(0)
        if isinstance(found, OSError):
            raise found
        return found  # type: ignore[no-any-return]

    monkeypatch.setattr(model_setup, "fetch", lambda wanted, reporter: calls.append(wanted))
    monkeypatch.setattr(measurements, "write_published", write_published)
    published = Published("org/measured", 8, "stem")
    facts = SetupFacts("m", measurements_target=tmp_path / "t")
    provision = Provision(facts, published=published, generation="g3")
    model_setup._measurements(provision, Silent())
    wanted = Wanted("org/measured", to=tmp_path / "t", everything=True)
    assert calls == [wanted, (published, "g3")]
    missing = {"path": "/q.json", "model": "org/measured", "cards": 8, "count": 2, "first": "a"}
    with refused("quant.measurements_missing", ExitCode.MODEL, **missing):
        model_setup._measurements(provision, Silent())
    where = {"path": str(tmp_path / "t"), "why": "Permission denied"}
    with refused("pull.folder", ExitCode.FAILED, **where):
        model_setup._measurements(provision, Silent())
