"""Write the records of a running service, held as its launcher holds it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gaudi_launch.services.state import registry, store


@contextmanager
def service(name: str, url: str, *, phase: str = "ready", **plan: object) -> Iterator[Path]:
    """What serve writes down of a service, held as its launcher holds it; its folder."""
    with registry.hold(name):
        folder = store.service_dir(name)
        store.write(folder, "state.json", {"name": name, "url": url, "phase": phase, "model": "/models/m"})
        store.write(folder, "plan.json", {"url": url, **plan})
        yield folder
