"""Pictures for reports, drawn by matplotlib (the extra ``plot``): PNG or SVG.

The file's ending decides.

matplotlib is imported only inside functions that draw. Labels are Chinese where the language is and
the machine has a font for it, else English.
"""

from __future__ import annotations

import io
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.messages import language, text

ENDINGS = (".png", ".svg")
BLUE, ORANGE, GREEN, GREY = "#1f5fbf", "#d66414", "#2e7d32", "#9e9e9e"

_DOTS_PER_INCH = 150
_PLAIN = "DejaVu Sans"  # matplotlib brings it
# fonts with simplified Chinese, as Linux distributions, Windows and macOS call them
_CHINESE = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Noto Sans CJK JP",
    "Droid Sans Fallback",
    "Microsoft YaHei",
    "SimHei",
    "PingFang SC",
)


def check_picture(path: Path) -> None:
    """Check a picture's name and the library before the work that it shows.

    Raises LaunchError (USAGE, FAILED).
    """
    if path.suffix.lower() not in ENDINGS:
        raise LaunchError("plot.ending", ExitCode.USAGE, path=str(path))
    check_library()


def check_library() -> None:
    """Raise LaunchError (FAILED), with the install command, without matplotlib."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise LaunchError("plot.no_library", ExitCode.FAILED, python=sys.executable)


def write_picture(path: Path, content: bytes) -> None:
    """Write a picture. Raises LaunchError (USAGE)."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise file_error("plot.not_written", error, path, ExitCode.USAGE) from None


def label(id: str, **values: Any) -> str:
    """Return a text in the language of pictures."""
    has_chinese = language() == "zh" and chinese_font() is not None
    return text(id, "zh" if has_chinese else "en", **values)


def rendered(figure: Any, ending: str) -> bytes:
    """Return a figure as a file's content; ``ending`` is one of `ENDINGS`."""
    content = io.BytesIO()
    # a name may have letters that no font here has; they are drawn as boxes
    with _style(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figure.savefig(
            content,
            format=ending.lstrip("."),
            dpi=_DOTS_PER_INCH,
            metadata={_DATE[ending]: None},
        )
    return content.getvalue()


# the same picture is the same file: no time of its making in it
_DATE = {".png": "Software", ".svg": "Date"}


@contextmanager
def sheet(
    title: str,
    subtitle: str = "",
    *,
    rows: int = 1,
    columns: int = 1,
    size: tuple[float, float] = (10, 5),
) -> Iterator[Any]:
    """Yield an empty figure of ``rows`` by ``columns`` axes, ``size`` in inches.

    Raises LaunchError (FAILED).
    """
    check_library()
    from matplotlib.figure import Figure

    with _style(), warnings.catch_warnings():
        # of axes without an extent and the like: nothing that a user could change
        warnings.simplefilter("ignore")
        figure = Figure(figsize=size, layout="constrained")
        figure.subplots(rows, columns, squeeze=False)
        heading = f"{title}\n{subtitle}" if subtitle else title
        figure.suptitle(heading, fontsize=12)
        yield figure


def dress(axis: Any, title: str, x: str, y: str) -> None:
    """Give axes a title, labels with their units and a light grid."""
    axis.set_title(title, fontsize=11)
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.grid(visible=True, color="#e3e3e3", linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def plain_numbers(axis: Any) -> None:
    """Write the ticks of an axis as plain numbers, on a logarithmic scale, too."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if axis.get_scale() == "log":
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(
        FuncFormatter(lambda value, place: f"{value:,.0f}" if value >= 100 else f"{value:g}")
    )


def chinese_font() -> str | None:
    """Return the name of an installed font with Chinese letters; None without one."""
    from matplotlib import font_manager

    known = {font.name for font in font_manager.fontManager.ttflist}
    return next((name for name in _CHINESE if name in known), None)


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib

    # its notes about cache folders are not for our users
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    chinese = chinese_font()
    settings: dict[str, Any] = {
        "font.family": [_PLAIN, *([chinese] if chinese else [])],
        "font.size": 10,
        "svg.fonttype": "none",
        "svg.hashsalt": "gaudi-launch",
        # a model's name is not a formula
        "text.parse_math": False,
        "axes.unicode_minus": False,
    }
    with matplotlib.rc_context(settings):
        yield
