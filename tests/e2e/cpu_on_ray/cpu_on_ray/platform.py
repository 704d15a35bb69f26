"""vLLM's CPU platform with the Ray resource that the Gaudi fork uses."""

from __future__ import annotations

from vllm.platforms.cpu import CpuPlatform


class CpuOnRay(CpuPlatform):  # type: ignore[misc]
    """``ray_device_key`` as in HabanaAI/vllm-fork@aice/v1.22.0:vllm/platforms/hpu.py."""

    ray_device_key: str = "HPU"
    device_control_env_var: str = "HABANA_VISIBLE_MODULES"
