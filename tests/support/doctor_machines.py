"""Facts of simulated machines with single things changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from gaudi_launch.core.doctor.findings import (
    DoctorFacts,
    EngineFacts,
    GatewayFacts,
    Pins,
    Wants,
    Weights,
)
from gaudi_launch.core.host import host_config, machine, simulated
from gaudi_launch.core.host.hardware import Card, Host
from gaudi_launch.core.host.host_config import HostConfig

Change = Callable[[DoctorFacts], DoctorFacts]

GOOD_ENGINE = EngineFacts(
    python="/opt/engine/bin/python",
    name="vllm-fork-1.22",
    vllm="0.9.0.1+Gaudi-1.22.0",
    torch="2.7.1+hpu",
    torch_plugin="1.22.1.6",
    extension="vllm-hpu-extension (1.22)",
    bucket_limit=True,
    pins=Pins("vllm-fork-1.22.txt"),
    packages=frozenset(
        {
            "habana-torch-plugin",
            "habana-torch-dataloader",
            "habana-pyhlml",
            "habana-media-loader",
            "neural-compressor-pt",
        }
    ),
)
GOOD_WEIGHTS = Weights("/models/m", bytes=16 << 30, has_config=True, files=4)
GOOD_PACKAGES = {
    f"habanalabs-{name}": "1.22.1-6"
    for name in (
        "container-runtime",
        "dkms",
        "firmware",
        "firmware-tools",
        "graph",
        "rdma-core",
        "thunk",
    )
}
GOOD_IMAGE = "gaudi-docker/1.22.1/ubuntu24.04/habanalabs/pytorch-installer-2.7.1:latest"


@cache
def _loaded(name: str) -> tuple[Host, HostConfig]:
    config = host_config.load_config(f"simulated:{name}")
    # not the folders of whoever runs the tests
    disks = {
        use: replace(disk, path=f"/home/me/{use}/gaudi-launch")
        for use, disk in config.disks.items()
    }
    return machine.load(f"simulated:{name}"), replace(config, disks=disks)


def facts(name: str = "hls2") -> DoctorFacts:
    """Return a complete machine: engine, weights, image, port and packages."""
    host, settings = _loaded(name)
    settings = replace(settings, packages=GOOD_PACKAGES)
    built = simulated.build(name)
    return DoctorFacts(
        host,
        settings,
        Wants(port=8000, image=GOOD_IMAGE),
        GOOD_ENGINE,
        GOOD_WEIGHTS,
        ask=built.ask if built.hl_smi is not None else None,
        files=built.view,
    )


def settings(**values: Any) -> Change:
    return lambda f: replace(f, config=replace(f.config, **values))


def host(**values: Any) -> Change:
    return lambda f: replace(f, host=replace(f.host, **values))


def wants(**values: Any) -> Change:
    return lambda f: replace(f, wants=replace(f.wants, **values))


def engine(**values: Any) -> Change:
    return lambda f: replace(f, engine=replace(f.engine or GOOD_ENGINE, **values))


def gateway(found: str) -> Change:
    """Return an installed gateway whose program shows this version."""
    return lambda f: replace(f, gateway=GatewayFacts("/engines/gateway", "2.8.25", found))


def without_packages(*names: str) -> Change:
    """Return the packages of a good machine without these."""
    left = {name: version for name, version in GOOD_PACKAGES.items() if name not in names}
    return settings(packages=left)


def weights(**values: Any) -> Change:
    return lambda f: replace(f, weights=replace(f.weights or GOOD_WEIGHTS, **values))


def cards(**values: Any) -> Change:
    """Return the first card (module 3) changed."""

    def change(f: DoctorFacts) -> DoctorFacts:
        first, *rest = f.host.cards
        return replace(f, host=replace(f.host, cards=(replace(first, **values), *rest)))

    return change


def every_card(**values: Any) -> Change:
    def one(card: Card) -> Card:
        return replace(card, **values)

    return lambda f: replace(f, host=replace(f.host, cards=tuple(map(one, f.host.cards))))


def both(*changes: Change) -> Change:
    def change(f: DoctorFacts) -> DoctorFacts:
        for one in changes:
            f = one(f)
        return f

    return change
