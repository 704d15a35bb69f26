"""Gaudi products, read from ``profiles/accelerators.yaml``.

The file names the source of each fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.yaml_reader import shipped
from gaudi_launch.core.host.hardware import Host

VENDOR = "1da3"


@dataclass(frozen=True)
class Accelerator:
    """One product.

    Memory in MiB, bandwidth in GB/s (``pair_gb_s``: between two cards, each way), peaks in TFLOPS,
    power in W, temperature in C; None: no source found.
    """

    id: str
    title: str
    names: tuple[str, ...]
    device_types: tuple[str, ...]
    pci_ids: tuple[str, ...]
    cards: int
    group_size: int
    memory_total_mib: int
    memory_usable_mib: int | None
    memory_idle_mib: int
    bandwidth_gb_s: float | None
    pair_gb_s: float | None
    peak_tflops_bf16: float | None
    peak_tflops_fp8: float | None
    power_w: int | None
    hot_c: int | None
    power_names: tuple[str, ...]
    sources: Mapping[str, str]

    @property
    def has_fp8(self) -> bool:
        """Return True for all products but the first Gaudi, which lacks 8-bit floats.

        Source: the sources of peak_tflops in profiles/accelerators.yaml.
        """
        return self.id != "gaudi1"

    @property
    def usable_bytes(self) -> int:
        """Return the bytes of one card that an engine can use."""
        return (self.memory_usable_mib or self.memory_total_mib) << 20

    def groups(self, modules: Iterable[int]) -> tuple[tuple[int, ...], ...]:
        """Return these modules by the group that joins them all to all, ascending."""
        found: dict[int, list[int]] = {}
        for module in sorted(modules):
            found.setdefault(module // self.group_size, []).append(module)
        return tuple(tuple(group) for _, group in sorted(found.items()))


@dataclass(frozen=True)
class Instance:
    """A cloud instance of another accelerator.

    ``core_gb`` is decimal GB of one NeuronCore.
    """

    id: str
    chips: int
    cores: int
    core_gb: int
    cpus: int
    memory_gib: int


@dataclass(frozen=True)
class PowerRange:
    """The power limits in W that a document states for a product, and that document."""

    least_w: int
    most_w: int
    source: str


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = shipped("accelerators.yaml")
    return document


@cache
def accelerators() -> Mapping[str, Accelerator]:
    """Return every known product by its ID (``gaudi2``)."""
    found = {}
    for word, facts in _document()["accelerators"].items():
        sizes = {f"memory_{name}": value for name, value in facts["memory"].items()}
        peaks = {f"peak_tflops_{name}": value for name, value in facts["peak_tflops"].items()}
        found[word] = codec.read(Accelerator, {"id": word, **facts, **sizes, **peaks})
    return found


@cache
def instances() -> Mapping[str, Instance]:
    """Return every known instance type by its name (``inf2.48xlarge``)."""
    return {name: Instance(name, **facts) for name, facts in _document()["instances"].items()}


def power_range(product: str) -> PowerRange | None:
    """Return the documented power limits of a product (``gaudi3``).

    Return None where no document states them.
    """
    facts = _document()["power_limits"].get(product)
    if facts is None:
        return None
    return PowerRange(**facts)


def memory_margin_mib() -> int:
    """Return how far a card's memory must be above its idle reading to count as used."""
    return int(_document()["memory_margin_mib"])


def temperature_hot_c(product: str | None) -> tuple[int, str]:
    """Return the temperature in C above which a card of ``product`` is called hot.

    Also return its source: "assumed" for products whose limit no public document names.
    """
    known = accelerators().get(product or "")
    if known is not None and known.hot_c is not None:
        return known.hot_c, known.sources["hot_c"]
    return int(_document()["temperature_hot_c"]), "assumed"


def identify(
    product: str | None = None, pci_id: str | None = None, device_type: str | None = None
) -> Accelerator | None:
    """Return the product by hl-smi's name, PCI device ID or the driver's device type.

    They are tried in this order, because the driver's type is the same for Gaudi2 and Gaudi2E.
    Return None if none of them is known.
    """
    known = accelerators().values()
    by_name = (a for a in known if product and product.upper().startswith(a.names))
    by_id = (a for a in known if pci_id and pci_id.lower().removeprefix("0x") in a.pci_ids)
    by_type = (a for a in known if device_type and device_type.upper() in a.device_types)
    return next(chain(by_name, by_id, by_type), None)


def accelerator_of(host: Host) -> Accelerator | None:
    """Return the product of a machine's cards.

    Return None where there is none that is known.
    """
    found = (identify(card.product, device_type=card.device_type) for card in host.cards)
    return next((product for product in found if product), None)


def product_of(host: Host) -> str:
    """Return the product's ID (``gaudi2``), "" if it is unknown."""
    product = accelerator_of(host)
    return product.id if product is not None else ""
