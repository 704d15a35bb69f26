"""What serve brings before it starts an engine, with its progress: weights, their conversion, measurements."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gaudi_launch.models.prepare import Facts
    from gaudi_launch.planning.request import Request
    from gaudi_launch.services.provision import Provision

# shards converted at once: each keeps 16 MiB at a time, the disk is the limit
_MOST_PROCESSES = 8


def bring(request: Request, provision: Provision) -> None:
    """Do the steps that are left. Raises LaunchError; what was done stays, and another run goes on from there."""
    from gaudi_launch.messages import text
    from gaudi_launch.services.provision import check_disk

    check_disk(provision.facts)
    left = [step for step in provision.steps if not step.done and step.name != "disk"]
    for number, step in enumerate(left, 1):
        _say(text("prepare.step", number=number, count=len(left), what=step.what.render()))
        if step.name == "pull":
            from gaudi_launch.cli.pull import fetch

            fetch(provision.facts.repo, to=provision.facts.target, code=bool(request.trust_remote_code))
        elif step.name == "convert":
            _convert(provision.facts)
        elif step.name == "measurements":
            _measurements(provision)


def _convert(facts: Facts) -> None:
    import os

    from gaudi_launch.cli.convert import run

    source = facts.folder or facts.target
    run(source, facts.converted_target, min(_MOST_PROCESSES, os.cpu_count() or 1))


def _measurements(provision: Provision) -> None:
    from gaudi_launch.cli.pull import fetch
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.models.measurements import write_published
    from gaudi_launch.services.provision import incomplete

    published = provision.published
    assert published is not None
    folder = provision.facts.measurements_target
    fetch(published.repo, to=folder, everything=True)
    try:
        found = write_published(published, provision.generation)
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError("pull.folder", ExitCode.FAILED, path=str(folder), why=why) from None
    if found.missing:
        raise incomplete(found, published.repo, published.cards)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
