"""The product table: complete, sourced, and found by every name that a machine may give."""

from __future__ import annotations

import pytest

from gaudi_launch.host.accelerators import accelerators, identify


@pytest.mark.parametrize(
    ("product", "pci_id", "device_type", "word"),
    [
        ("HL-205", None, None, "gaudi1"),
        ("HL-225", None, None, "gaudi2"),
        ("HL-225D", None, None, "gaudi2"),
        ("HL-288E", None, None, "gaudi2e"),
        ("HL-325L", None, None, "gaudi3"),
        ("hl-338", None, None, "gaudi3-pcie"),
        (None, "0x1020", None, "gaudi2"),
        (None, "1021", "GAUDI2", "gaudi2e"),
        (None, "1063", None, "gaudi3-pcie"),
        (None, None, "GAUDI2C", "gaudi2"),
        (None, "ffff", "GAUDI3 HL-338", "gaudi3-pcie"),
        (None, None, "GAUDI3", "gaudi3"),
        # hl-smi's name is exact, the driver's type is not
        ("HL-288", "1020", "GAUDI2", "gaudi2e"),
    ],
)
def test_identify(
    product: str | None, pci_id: str | None, device_type: str | None, word: str
) -> None:
    found = identify(product, pci_id, device_type)
    assert found is not None and found.id == word


def test_unknown_products_are_not_guessed() -> None:
    assert identify("HL-999") is None
    assert identify(pci_id="ffff", device_type="GAUDI9") is None
    assert identify() is None


def test_groups() -> None:
    assert accelerators()["gaudi2e"].groups((5, 0, 1, 4)) == ((0, 1), (4, 5))
    assert accelerators()["gaudi3"].groups(range(8)) == (tuple(range(8)),)


def test_every_fact_has_a_source() -> None:
    for accelerator in accelerators().values():
        wanted = {"names", "pci_ids", "group_size", "memory", "power_w"}
        if accelerator.bandwidth_gb_s is not None:
            wanted.add("bandwidth_gb_s")
        if accelerator.peak_tflops_bf16 is not None:
            wanted.add("peak_tflops")
        assert wanted <= set(accelerator.sources), accelerator.id
        assert accelerator.memory_idle_mib < (
            accelerator.memory_usable_mib or accelerator.memory_total_mib
        )
        assert (accelerator.memory_usable_mib or 0) <= accelerator.memory_total_mib
