"""What one run has for itself, how its workers share the tests, and what hypothesis may hold
against a test.

Modules with real engines wait a lot, so they start beside the others, at most two at a time.
"""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import signal
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

from gaudi_launch.core.base import messages
from gaudi_launch.core.services import addresses
from tests.support import durations
from tests.support.every_case import EVERY_CASE, examples
from tests.support.huge_pages import use_huge_pages
from tests.support.processes import free_port, pids, trivial_python, write_quick_python
from tests.support.turns import alone
from tests.support.users import current_folder, no_programs, own_folders, plain_english
from tests.support.waiting import PORTS

__all__ = [
    "current_folder",
    "free_port",
    "no_programs",
    "own_folders",
    "pids",
    "plain_english",
    "trivial_python",
]

# A busy machine makes any example slow, and that is no fault of the test. The same tree gets the
# same verdict each time; HYPOTHESIS_PROFILE=search looks for examples that nobody has seen.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "same", settings.get_profile("search"), derandomize=True, max_examples=examples(40, 100)
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
# the commands that the tests start need not read our sources anew each time
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# of pytest-xdist; a pipe with it is folded
os.environ.pop("COLUMNS", None)
# of who runs the tests: the sentences that they expect are English
for _name in ("GAUDI_LAUNCH_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
    os.environ.pop(_name, None)
# a name that no profile lists is asked of the hubs: only tests with a stand-in of them do
os.environ["HF_HUB_OFFLINE"] = "1"
# a background job of a shell starts with Ctrl-C ignored, one of nohup with SIGHUP, and so do its
# children: the tests send both
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# a worker has a million objects that stay: the usual thresholds look at them again and again
gc.set_threshold(100_000, 50, 50)

TESTS = Path(__file__).parent
# the folder of this run; its workers inherit the name
_OWN_FOLDER = "GAUDI_LAUNCH_TEST_FOLDER"
_MADE = pytest.StashKey[Path]()
_TAKEN: defaultdict[str, float] = defaultdict(float)
_STANDS_FOR = "cases that this one stands for"
# what an engine with its workers may need
_ENGINE_BYTES = 8 << 30
_MOST_ENGINES = 2
_MEMORY, _LEAST_ROOM = "/dev/shm", 8 << 30
# the first of them installs vLLM: 150 s on an idle machine, 900 s have been seen on a busy one
_ENGINE_SECONDS = 1500
_READ_BY_ALL = ("HF_HUB_OFFLINE", "HF_TOKEN", "HOME", "TMPDIR", "PATH", "GAUDI_LAUNCH_ROOT")
_LIBC = ctypes.CDLL(None)
# linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36


class _Complete(dict[str, str]):
    """A catalogue that fails where the product would show an id in place of a sentence."""

    def get(self, id: str, default: str | None = None) -> str | None:  # type: ignore[override]
        # the areas of 3,000 sentences are read for an id without one only: each sentence comes here
        if default is None and id not in self:
            areas = {each.partition(".")[0] for each in self}
            assert id.partition(".")[0] not in areas, f"no sentence has the id {id}"
        return super().get(id, default)


@pytest.fixture(autouse=True, scope="session")
def every_id_has_a_sentence() -> Iterator[None]:
    """Let each test fail that would print an id."""
    complete = {name: _Complete(messages.catalogue(name)) for name in messages.LANGUAGES}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(messages, "catalogue", complete.__getitem__)
        yield


@pytest.fixture(autouse=True, scope="session")
def the_usual_ports_are_free() -> Iterator[None]:
    """Let no plan of a test depend on what else this machine serves; other ports are tried."""
    real = addresses.check_port

    def check(url: str) -> None:
        if addresses.address(url)[1] in PORTS:
            real(url)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(addresses, "check_port", check)
        yield


@pytest.fixture(autouse=True)
def the_environment_is_left_as_it_was() -> Iterator[None]:
    """Let each test fail that changes what the next one reads, such as whether a hub is asked.

    The language that it chose ends with it.
    """
    before = {name: os.environ.get(name) for name in _READ_BY_ALL}
    yield
    messages.set_language(None)
    assert before == {name: os.environ.get(name) for name in _READ_BY_ALL}


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give this run a home and a temporary folder of its own.

    What takes minutes to make (the CPU engine, Ray) is kept where this user has it, and pip keeps
    this user's package index.
    """
    if _OWN_FOLDER in os.environ:
        return
    folder = config.stash[_MADE] = Path(tempfile.mkdtemp(prefix="gl-", dir=_in_memory()))
    # some tests of root are run by another user
    folder.chmod(0o755)
    kept = {"XDG_DATA_HOME": Path.home() / ".local/share", "XDG_CACHE_HOME": Path.home() / ".cache"}
    for name, path in kept.items():
        os.environ.setdefault(name, str(path))
    pip = Path.home() / ".config/pip/pip.conf"
    if pip.exists():
        os.environ.setdefault("PIP_CONFIG_FILE", str(pip))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        os.environ.pop(name, None)
    # short: the path of a socket has at most 107 bytes
    config.option.basetemp = config.option.basetemp or str(folder / "t")
    own = {_OWN_FOLDER: folder, "HOME": folder / "home", "TMPDIR": folder}
    for name, path in own.items():
        path.mkdir(exist_ok=True)
        os.environ[name] = str(path)
    programs = folder / "bin"
    programs.mkdir()
    write_quick_python(programs)
    os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
    tempfile.tempdir = None


def _in_memory() -> str | None:
    """Return a folder in memory with room for a run, or None for the usual one.

    A run makes 260,000 files: where the disk discards each freed block, their removal takes longer
    than the tests.
    """
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK):
        return None
    room = min(shutil.disk_usage(_MEMORY).free, psutil.virtual_memory().available)
    runs_programs = not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC
    return _MEMORY if runs_programs and room > _LEAST_ROOM else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count the seconds of a test, with those of its fixtures, and of the cases left out.

    One that is skipped, as those of root for other users, is as slow as it was.
    """
    if report.skipped:
        _TAKEN[report.nodeid.partition("[")[0]] = durations.of(report.nodeid)
        return
    stands_for = dict(report.user_properties).get(_STANDS_FOR, 1.0)
    assert isinstance(stands_for, float)
    _TAKEN[report.nodeid] += report.duration * stands_for


def pytest_collection_finish() -> None:
    """Leave what was collected out of the search for garbage: it stays until the end."""
    gc.freeze()
    use_huge_pages()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remove what a run without failures has left; the folder of a failed one is kept.

    A worker, and a run inside of another as scripts/mutation.py has them, made none.
    """
    if "WRITE_DURATIONS" in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
        durations.write(_TAKEN)
    folder = session.config.stash.get(_MADE, None)
    if exitstatus == 0 and folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the modules alone that the short selection would only deselect."""
    if config.option.markexpr != "quick" or not collection_path.is_relative_to(TESTS):
        return None
    inside = collection_path.relative_to(TESTS).as_posix()
    return True if inside in durations.SLOW_MODULES or inside == "e2e" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests as `quick` or `slow`; give those with real engines the time to install one.

    Leave out cases of long tables, but those of a module that the command names.
    """
    if not EVERY_CASE and not any(".py" in each for each in config.args):
        _leave_out(config, items)
    for item in items:
        if os.geteuid() != 0 and item.get_closest_marker("root") is not None:
            item.add_marker(pytest.mark.skip(reason="needs root"))
        if item.get_closest_marker("e2e") is not None:
            item.add_marker(pytest.mark.timeout(_ENGINE_SECONDS))
        elif _module(item) in durations.SLOW_MODULES or durations.of(item.nodeid):
            item.add_marker("slow")
        else:
            item.add_marker("quick")
    if "PYTEST_XDIST_WORKER" in os.environ:
        items[:] = _shared_out(items)


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out cases of long tables."""
    drawn = durations.drawn_cases(
        item.nodeid.removeprefix("tests/")
        for item in items
        if item.get_closest_marker("complete") is None
    )
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        cases = drawn.get(name.partition("[")[0], {name: 1.0})
        (kept if name in cases else left).append(item)
        item.user_properties.append((_STANDS_FOR, cases.get(name, 0.0)))
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def _shared_out(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests in the order in which the workers take their modules.

    Modules with real engines are spread among the slow ones, so that few of them wait for their
    turn. The quick ones come last: they are short, so all workers end at the same time.
    """
    modules: dict[str, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(_module(item), []).append(item)
    with_engine: list[str] = []
    slow: list[str] = []
    quick: list[str] = []
    for name, tests in modules.items():
        if any(test.get_closest_marker("e2e") is not None for test in tests):
            with_engine.append(name)
        elif name in durations.SLOW_MODULES:
            slow.append(name)
        else:
            quick.append(name)
    order: list[str] = []
    for number, name in enumerate(with_engine):
        order += [name, *slow[number :: len(with_engine)]]
    if not with_engine:
        order = slow
    return [test for name in (*order, *quick) for test in modules[name]]


def _module(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).as_posix()


@pytest.fixture(scope="module")
def real_engine_turn() -> Iterator[None]:
    """Let the modules with real engines take turns: at most two at a time, if memory holds them.

    An engine has one of its processes at work for most of its start, and waits for the rest.
    """
    more = psutil.virtual_memory().available // _ENGINE_BYTES
    most = _MOST_ENGINES if (os.cpu_count() or 1) > 1 else 1
    with alone("e2e", min(most, 1 + more)):
        yield


@pytest.fixture(autouse=True)
def few_real_engines_at_a_time(request: pytest.FixtureRequest) -> None:
    """Wait for the turn of this module: until its end, for its tests may share an engine."""
    marker = request.node.get_closest_marker("e2e")
    if marker is not None and marker.kwargs.get("engine", True):
        request.getfixturevalue("real_engine_turn")


@pytest.fixture(autouse=True)
def orphans_are_reaped() -> Iterator[None]:
    """Leave orphans of a test to init: a launcher inside this process has become their parent."""
    yield
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture
def only_orphans() -> Iterator[None]:
    """``stop --orphans --yes`` ends all of this machine: whoever runs it, or has some to look
    at, asks for this."""
    with alone("orphans"):
        yield
