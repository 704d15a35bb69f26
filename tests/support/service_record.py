"""Write the records of a running service, locked as its launcher does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gaudi_launch.core.services.state import registry, store


@contextmanager
def service(name: str, url: str, *, phase: str = "ready", **plan: object) -> Iterator[Path]:
    """Yield the folder of a recorded service, locked as its launcher does."""
    with registry.hold(name):
        folder = store.service_dir(name)
        store.write(
            folder, "state.json", {"name": name, "url": url, "phase": phase, "model": "/models/m"}
        )
        store.write(folder, "plan.json", {"url": url, **plan})
        yield folder
