"""Fetch and convert what an engine needs: weights and measurements."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.base.errors import file_error
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.launch.model_needs import Provision, check_disk, incomplete
from gaudi_launch.core.launch.report import Reporter
from gaudi_launch.core.launch.setup_steps import SetupFacts
from gaudi_launch.core.models.fp8.convert import Conversion, convert_folder
from gaudi_launch.core.models.fp8.measurements import write_published
from gaudi_launch.core.models.hub import download
from gaudi_launch.core.models.hub.download import Pulled
from gaudi_launch.core.models.hub.local import folder_for
from gaudi_launch.core.planning.request import Request

# shards converted in parallel: each uses 16 MiB, the disk is the limit
_MOST_PROCESSES = 8


@dataclass(frozen=True)
class Wanted:
    """One repository to fetch.

    ``to`` None: the data folder. ``code``: also the model's Python files. ``verify``: files that
    were verified earlier are hashed again.
    """

    repo: str
    source: str = "auto"
    to: Path | None = None
    revision: str = ""
    repo_type: str = "model"
    everything: bool = False
    code: bool = False
    verify: bool = False


def bring(request: Request, provision: Provision, reporter: Reporter) -> None:
    """Run the remaining steps.

    Raises LaunchError; completed steps are kept, and another run continues from there.
    """
    check_disk(provision.facts)
    left = [step for step in provision.steps if not step.done and step.name != "disk"]
    for number, step in enumerate(left, 1):
        reporter.say(text("prepare.step", number=number, count=len(left), what=step.what.render()))
        if step.name == "pull":
            facts = provision.facts
            fetch(
                Wanted(facts.repo, to=facts.target, code=bool(request.trust_remote_code)), reporter
            )
        elif step.name == "convert":
            _convert(provision.facts, reporter)
        elif step.name == "measurements":
            _measurements(provision, reporter)


def fetch(wanted: Wanted, reporter: Reporter) -> Pulled:
    """Fetch a repository.

    Raises LaunchError; a later call continues where this one stopped.
    """
    repo, revision, repo_type = wanted.repo, wanted.revision, wanted.repo_type
    if wanted.source == "auto":
        listing = download.find(repo, revision, repo_type)
    else:
        listing = download.list_files(repo, wanted.source, revision, repo_type)
    if wanted.to is not None:
        folder = wanted.to
    else:
        folder = folder_for(repo, revision, repo_type)
    reporter.say(text("pull.begin", repo=repo, source=listing.source, folder=str(folder)))
    if wanted.verify:
        download.forget(listing, folder)
    try:
        done = download.pull(
            listing,
            folder,
            everything=wanted.everything,
            code=wanted.code,
            report=reporter.downloading,
        )
    finally:
        reporter.downloaded()
    if done.cleared:
        reporter.say(text("pull.cleared", count=len(done.cleared)))
    return done


def convert(
    source: Path, out: Path, processes: int, reporter: Reporter, *, force: bool = False
) -> Conversion:
    """Convert an fp8 checkpoint for Gaudi2. Raises LaunchError."""
    try:
        return convert_folder(source, out, processes, force, reporter.converted)
    except OSError as error:
        raise file_error("fp8.io", error, error.filename or out) from None


def _convert(facts: SetupFacts, reporter: Reporter) -> None:
    import os

    source = facts.folder or facts.target
    convert(source, facts.converted_target, min(_MOST_PROCESSES, os.cpu_count() or 1), reporter)


def _measurements(provision: Provision, reporter: Reporter) -> None:
    published = provision.published
    assert published is not None
    folder = provision.facts.measurements_target
    fetch(Wanted(published.repo, to=folder, everything=True), reporter)
    try:
        found = write_published(published, provision.generation)
    except OSError as error:
        raise file_error("pull.folder", error, folder) from None
    if found.missing:
        raise incomplete(found, published.repo, published.cards)
