"""Long checks that use the cards, on request only.

Vendor tools run once each, under a time limit. Commands: HabanaAI/hccl_demo README; hl_qual as in
the Gaudi2E 1.23.0 manual (``-mb -memOnly``, ``-p -b``).
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.doctor.cards import QUAL, qual_kind
from gaudi_launch.core.doctor.findings import DoctorFacts, Remedy, Verdict, check

_log = logging.getLogger(__name__)

_SECONDS = 300.0
_deep = partial(check, needs=("cards",), level="deep", seconds=_SECONDS + 10)
_DEMO_FOLDERS = ("opt/hccl_demo", "opt/habanalabs/hccl_demo", "root/hccl_demo")


def _blocked(facts: DoctorFacts) -> Verdict | None:
    """Return why the cards may not be used for a test now."""
    if not facts.live:
        return Verdict.skip("doctor.deep.not_live")
    if any(card.busy is not False for card in facts.host.cards):
        return Verdict.skip("doctor.deep.busy")
    return None


def _demo(root: Path) -> Path | None:
    demo_home = os.environ.get("HCCL_DEMO_HOME")
    if demo_home:
        places = [Path(demo_home)]
    else:
        places = [root / folder for folder in _DEMO_FOLDERS]
    return next((place for place in places if (place / "run_hccl_demo.py").is_file()), None)


@_deep("deep.all_reduce", "HabanaAI/hccl_demo README")
def _all_reduce(facts: DoctorFacts) -> Verdict:
    if blocked := _blocked(facts):
        return blocked
    folder = _demo(Path(facts.config.root))
    if folder is None:
        return Verdict.skip("doctor.deep.no_demo")
    ranks = str(len(facts.host.cards))
    words = [sys.executable, "run_hccl_demo.py", "--nranks", ranks, "--node_id", "0"]
    words += ["--ranks_per_node", ranks]
    words += ["--size", "32m", "--test", "all_reduce", "--loop", "10000"]
    text, code = _run(words, folder, {"HCCL_COMM_ID": "127.0.0.1:5555"})
    rate = re.search(r"(?:NW Bandwidth|Algo Bandwidth)\s*:?\s*([\d.]+\s*[KMGT]?B/s)", text)
    return _judge(text, code, code == 0 and rate is not None, rate[1] if rate else "-")


def _qual(facts: DoctorFacts, options: Sequence[str]) -> Verdict:
    if blocked := _blocked(facts):
        return blocked
    kind = qual_kind(facts.host)
    folder = Path(facts.config.root) / QUAL / kind / "bin"
    if not (folder / "hl_qual").is_file():
        return Verdict.skip("doctor.deep.no_qual")
    if not facts.config.root_user:
        return Verdict.skip("doctor.deep.root")
    words = [str(folder / "hl_qual"), f"-{kind}", "-c", "all", "-rmod", "parallel"]
    words += [*options, "-dis_mon"]
    text, code = _run(words, folder, {"__python_cmd": "python3"})
    rates = re.findall(r"[\d.]+\s*[GT]B/s", text)
    good = code == 0 and "PASSED" in text and "FAILED" not in text
    return _judge(text, code, good, ", ".join(rates[:4]) or "PASSED")


@_deep("deep.memory_bandwidth", "Gaudi2E 1.23.0 manual (hl_qual)")
def _memory_bandwidth(facts: DoctorFacts) -> Verdict:
    return _qual(facts, ("-mb", "-memOnly"))


@_deep("deep.pcie_bandwidth", "Gaudi2E 1.23.0 manual (hl_qual)")
def _pcie_bandwidth(facts: DoctorFacts) -> Verdict:
    if facts.host.virtual_machine:
        return Verdict.skip("doctor.deep.virtual")
    return _qual(facts, ("-t", "20", "-p", "-b"))


def _judge(text: str, code: int | None, good: bool, found: str) -> Verdict:
    if code is None:
        return Verdict.unknown("doctor.timeout", seconds=f"{_SECONDS:g}")
    if good:
        return Verdict.ok(found)
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    remedy = Remedy(message("doctor.cards.support"))
    return Verdict.fail("doctor.deep.fail", f"exit {code}: {last[:160]}", "PASSED", remedy)


def _run(
    words: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> tuple[str, int | None]:
    """Return output and exit code, None after the time limit.

    No process that it started is left.
    """
    environment = {**os.environ, **environment}
    try:
        done = interrupt.run(
            words, cwd=folder, env=environment, streams=interrupt.MIXED, seconds=_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        _log.debug("a test took too long: %s", error)
        return "", None
    except OSError as error:
        return str(error), 127
    return done.stdout, done.returncode
