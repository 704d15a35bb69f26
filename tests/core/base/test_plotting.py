"""The style that all pictures share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gaudi_launch.core.base import plotting
from gaudi_launch.core.base.errors import ExitCode
from tests.support.plots import needs_matplotlib, size_of, texts
from tests.support.refusals import failing

pytestmark = pytest.mark.usefixtures("plain_english")


def drawn(ending: str) -> bytes:
    with plotting.sheet("Title of $5 and $6 < 7", "subtitle", size=(4, 3)) as made:
        plotting.dress(made.axes[0], "panel", "time (s)", "speed")
        made.axes[0].plot([1, 20, 3000], [1, 2, 3])
        made.axes[0].set_xscale("log")
        plotting.plain_numbers(made.axes[0].xaxis)
        return plotting.rendered(made, ending)


@needs_matplotlib
def test_words_are_text_and_numbers_are_plain() -> None:
    words = texts(drawn(".svg"))
    assert {"Title of $5 and $6 < 7", "subtitle", "panel", "time (s)", "speed"} <= set(words)
    assert {"1", "10", "100", "1,000"} <= set(words)


@needs_matplotlib
@pytest.mark.parametrize("ending", plotting.ENDINGS)
def test_the_same_picture_is_the_same_file(ending: str) -> None:
    assert drawn(ending) == drawn(ending)


@needs_matplotlib
def test_a_png_has_the_dots_of_its_inches() -> None:
    assert size_of(drawn(".png")) == (600, 450)


@pytest.mark.parametrize("name", ["x.gif", "x", "x.png.txt"])
def test_other_endings_are_refused(name: str) -> None:
    with failing("plot.ending", ExitCode.USAGE):
        plotting.check_picture(Path(name))


def test_a_missing_library_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with failing("plot.no_library", ExitCode.FAILED) as refused:
        plotting.check_picture(Path("x.SVG"))
    assert f"{sys.executable} -m pip install 'gaudi-launch[plot]'" in str(refused.value)


def test_nothing_imports_the_library_at_its_top() -> None:
    import subprocess

    modules = ("extensions.bench.plot", "commands.warmup.picture", "core.base.plotting")
    words = "; ".join(f"import gaudi_launch.{name}" for name in modules)
    program = f"{words}; import sys; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
