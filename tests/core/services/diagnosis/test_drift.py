"""The packages that import and attribute errors concern."""

from __future__ import annotations

from gaudi_launch.core.doctor.findings import Deviation
from gaudi_launch.core.services.diagnosis.drift import drift_errors

FASTAPI = Deviation("fastapi", "0.137.1", "0.116.1", ("fastapi",))
UVICORN = Deviation("uvicorn", "1.0", "0.30", ("uvicorn",))
TRANSFORMERS = Deviation("transformers", "5.9", "4.57", ("transformers",))
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
