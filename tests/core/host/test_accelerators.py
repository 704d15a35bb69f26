"""The product table: complete, sourced, and found by every name that a machine may give."""

from __future__ import annotations

from gaudi_launch.core.host.accelerators import accelerators


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
