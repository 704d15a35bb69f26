"""The packages that import and attribute errors concern."""

from __future__ import annotations

from gaudi_launch.engines.pins import Deviation
from gaudi_launch.services.diagnosis.drift import drift_errors

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
