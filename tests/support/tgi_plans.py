"""Models, plans and option tables of TGI on an 8-card Gaudi2 server."""

from __future__ import annotations

from gaudi_launch.core.host import simulated
from gaudi_launch.core.planning.container import Container
from gaudi_launch.core.planning.plan import Plan

HLS2 = simulated.make("hls2")


HERE = {"PWD": "/work", "HOME": "/home/me"}


LLAMA = "meta-llama/Meta-Llama-3.1-8B-Instruct"


LLAVA = "llava-hf/llava-v1.6-mistral-7b-hf"


def container(made: Plan) -> Container:
    assert made.container is not None
    return made.container


def options(made: Plan) -> dict[str, str | None]:
    """Return the arguments after the image, by option."""
    found: dict[str, str | None] = {}
    words = list(container(made).argv)
    while words:
        name = words.pop(0)
        assert name.startswith("--") and name not in found
        found[name] = words.pop(0) if words and not words[0].startswith("--") else None
    return found


def table(version: str) -> str:
    return f"tgi-launcher-v{'3.2.3' if version == '3.2.3' else '3.3.5'}"
