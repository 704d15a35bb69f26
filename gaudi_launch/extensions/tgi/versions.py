"""The images of TGI as versions of the lists of ``inspect``.

Dates and commits are those of the tags of huggingface/text-generation-inference.
"""

from __future__ import annotations

from gaudi_launch.core.engines.engine_version import Version
from gaudi_launch.extensions.tgi import options as words_of

_TAGS = {
    "3.2.3": ("a1f3ebe1", "2025-04-08"),
    "3.3.3": ("1754b79f", "2025-06-18"),
    "3.3.4": ("d4bd5cac", "2025-06-19"),
    "3.3.5": ("8d029d2f", "2025-09-02"),
    "3.3.6": ("efb94e0d", "2025-09-16"),
    "3.3.7": ("dfb3fbe7", "2025-12-18"),
}


def image_versions() -> tuple[Version, ...]:
    """Return every image, the oldest first.

    They have no list of classes: the engine itself answers by model types.
    """
    return tuple(_version(version) for version in words_of.VERSIONS)


def _version(version: str) -> Version:
    commit, date = _TAGS[version]
    methods = words_of.OPTIONS["--quantize"]
    return Version(
        engine="tgi",
        version=version,
        repository="huggingface/text-generation-inference",
        commit=commit,
        date=date,
        methods=tuple(methods) if words_of.paged(version) else (),
        read_from=words_of.TYPES_SOURCE[words_of.paged(version)],
    )
