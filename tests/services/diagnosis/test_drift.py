"""The packages that import and attribute errors concern."""

from __future__ import annotations

import pytest

from gaudi_launch.engines.pins import Deviation
from gaudi_launch.services.diagnosis.drift import DriftError, drift_errors, is_mismatch
from gaudi_launch.services.diagnosis.exceptions import LogError

FASTAPI = Deviation("fastapi", "0.137.1", ("0.116.1",), ("fastapi",))
UVICORN = Deviation("uvicorn", "1.0", ("0.30",), ("uvicorn",))
TRANSFORMERS = Deviation("transformers", "5.9", ("4.57",), ("transformers",))
ROUTES = """Traceback (most recent call last):
  File "/e/lib/python3.11/site-packages/fastapi/applications.py", line 1, in __call__
    await super().__call__()
  File "/e/lib/python3.11/site-packages/starlette/routing.py", line 2, in app
    x
AttributeError: '_IncludedRouter' object has no attribute 'path'"""


def test_an_attribute_error_concerns_the_packages_of_its_traceback() -> None:
    (error,) = drift_errors(ROUTES)
    assert (error.number, error.passed) == (6, ("starlette", "fastapi"))
    assert error.blamed((UVICORN, FASTAPI, TRANSFORMERS)) == (FASTAPI,)


def test_the_module_that_an_import_error_names_comes_before_its_traceback() -> None:
    text = ROUTES.replace(
        "AttributeError: '_IncludedRouter' object has no attribute 'path'",
        "ImportError: cannot import name 'X' from 'transformers.utils' (/e/transformers/utils.py)",
    )
    (error,) = drift_errors(text)
    assert error.blamed((FASTAPI, TRANSFORMERS)) == (TRANSFORMERS,)
    assert error.blamed((UVICORN,)) == ()


def test_other_errors_concern_no_package() -> None:
    assert drift_errors(ROUTES.replace("AttributeError", "ValueError")) == []


def test_the_frames_of_an_earlier_traceback_do_not_count() -> None:
    first = ROUTES.replace("AttributeError", "ValueError")
    (error,) = drift_errors(f"{first}\nTraceback (most recent call last):\nAttributeError: no")
    assert error.blamed((FASTAPI,)) == ()


def test_the_errors_of_a_log_are_read_whole_and_in_its_order() -> None:
    text = "\n".join(
        [
            "\x1b[31mModuleNotFoundError: No module named 'a.b'\x1b[0m",
            '  File "/e/dist-packages/one/x.py", line 1, in f',
            '  File "/e/site-packages/two/x.py", line 1, in f',
            '  File "/e/site-packages/one/y.py", line 2, in g',
            '  File "/e/lib/three/y.py", line 2, in g',
            "ImportError: cannot import name 'X' from 'c' (/e/c.py)",
            "odd.AttributeError: module 'd.e' has no attribute 'f'",
            "ImportError without words",
        ]
    )
    assert drift_errors(text) == [
        DriftError(1, "ModuleNotFoundError: No module named 'a.b'", ("a",), ()),
        DriftError(
            6,
            "ImportError: cannot import name 'X' from 'c' (/e/c.py)",
            ("c",),
            # the deepest frame first
            ("one", "two"),
        ),
        DriftError(7, "odd.AttributeError: module 'd.e' has no attribute 'f'", ("d",), ()),
    ]


def test_three_hundred_characters_of_an_error_are_kept() -> None:
    line = f"ImportError: {'x' * 400}"
    assert drift_errors(line) == [DriftError(1, line[:300])]


def test_at_most_three_packages_are_blamed_each_once() -> None:
    letters = "abcd"
    found = tuple(Deviation(each, "2", ("1",), (each, f"{each}_x")) for each in letters)
    error = DriftError(1, "", named=("a", "a_x", "zlib", "d", "c", "b"))
    assert error.blamed(found) == (found[0], found[3], found[2])
    assert DriftError(1, "", passed=("b_x", "b")).blamed(found) == (found[1],)


@pytest.mark.parametrize("named", [("unknown",), ()])
def test_a_traceback_counts_where_the_sentence_names_no_deviating_package(
    named: tuple[str, ...],
) -> None:
    error = DriftError(1, "", named, ("uvicorn", "fastapi"))
    assert error.blamed((FASTAPI, UVICORN)) == (UVICORN, FASTAPI)
    assert error.blamed(()) == ()


MISSING = "AttributeError: 'Runner' object has no attribute 'x'"


@pytest.mark.parametrize(
    ("text", "frames", "engine", "mismatch"),
    [
        (MISSING, ("/e/dist-packages/vllm/v1/core.py",), "", True),
        (MISSING, ("/home/x/vllm-gaudi/vllm_gaudi/ops/a.py",), "", True),
        (
            MISSING,
            ("/x/torch/a.py", "/e/site-packages/torch/b.py", "/root/vllm/vllm/c.py"),
            "",
            True,
        ),
        (MISSING, ("/e/vllm-0.7.2+gaudi000-py3.10.egg/vllm/engine.py",), "", True),
        # deeper in a package that is none of the pair
        (MISSING, ("/e/site-packages/transformers/a.py", "/e/site-packages/vllm/b.py"), "", False),
        (MISSING, ("/home/user/app.py",), "vllm-gaudi", False),
        # without a frame the log decides
        (MISSING, (), "vllm-gaudi", True),
        (MISSING, (), "tgi", False),
        (MISSING, ("/e/dist-packages/vllm/v1/core.py",), "other", False),
        ("TypeError: f() got an unexpected keyword argument 'x'", (), "vllm-fork", True),
        (
            "TypeError: f() takes from 4 to 9 positional arguments but 12 were given",
            (),
            "vllm",
            True,
        ),
        ("TypeError: f() missing 1 required positional argument: 'x'", (), "vllm", True),
        ("TypeError: unsupported operand type(s) for +: 'NoneType' and 'str'", (), "vllm", False),
        ("AttributeError: 'NoneType' object has no attribute 'x'", (), "vllm", False),
        ("AttributeError: 'dict' object has no attribute 'x'", (), "vllm", False),
        ("AttributeError: 'Qwen3Config' object has no attribute 'x'", (), "vllm", False),
        ("AttributeError: module 'torch' has no attribute 'hpu'", (), "vllm", False),
        ("ValueError: odd", (), "vllm", False),
    ],
)
def test_which_errors_are_a_mismatch_of_plugin_and_vllm(
    text: str, frames: tuple[str, ...], engine: str, mismatch: bool
) -> None:
    assert is_mismatch(LogError(1, text, frames=frames), engine) is mismatch
