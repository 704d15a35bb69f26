"""Runs inside the engine's interpreter: measure a card, or this CPU.

The first argument is a JSON object: test, device, seconds, shapes, tensor_mib, fill. Writes one
line, MARK and a JSON object: value (the judged figure) and details.

Method (stas00/ml-engineering mamf-finder; docs.habana.ai, mark_step): the same shapes are run
first, so that nothing is compiled in the timed part; then rounds of operations, each one graph,
with one wait at the end of a round; a result is read once after the timing.
"""

import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

MARK = "gaudi-launch-answer:"
_ROUND_SECONDS = 0.2
_FASTEST = 5
_WARM = 3


class Device:
    """The card, or the CPU in its place."""

    def __init__(self, name: str) -> None:
        import torch

        # without a name: where torch puts a tensor by itself
        self.torch, self.name = torch, name or str(torch.empty(0).device)
        self.core: Any = None
        # graphs that were compiled in a timed part
        self.late = 0
        if name == "hpu":
            import habana_frameworks.torch.core as core

            self.core = core

    def mark(self) -> None:
        """End a graph: without it operations are collected, and may be merged."""
        if self.core is not None:
            self.core.mark_step()

    def wait(self) -> None:
        if self.core is not None:
            self.torch.hpu.synchronize()

    def compiled(self) -> tuple[int, float]:
        """Return the number and the total time, as reported, of compilations so far."""
        if self.core is None:
            return 0, 0.0
        from habana_frameworks.torch.hpu.metrics import metric_global

        found = dict(metric_global("graph_compilation").stats())
        return int(found.get("TotalNumber", 0)), float(found.get("TotalTime", 0))

    def timed(self, operation: Callable[[], object], seconds: float) -> list[float]:
        """Return the seconds of one operation in each round, after warm runs."""

        def run(count: int) -> float:
            began = time.perf_counter()
            for _ in range(count):
                operation()
                self.mark()
            self.wait()
            return (time.perf_counter() - began) / count

        run(_WARM)
        count = max(1, int(_ROUND_SECONDS / max(run(1), 1e-6)))
        rounds: list[float] = []
        end, before = time.perf_counter() + seconds, self.compiled()[0]
        while not rounds or time.perf_counter() < end:
            rounds.append(run(count))
        self.late += self.compiled()[0] - before
        return rounds


def burst(rounds: list[float]) -> float:
    """Return the median of the fastest rounds, in seconds."""
    return statistics.median(sorted(rounds)[:_FASTEST])


def matrix(device: Device, job: dict[str, Any]) -> dict[str, Any]:
    """Return TFLOPS: the best shape, burst and sustained."""
    torch, fp8 = device.torch, job["test"] == "matrix_fp8"
    checks = hashlib.sha256()
    rates: dict[str, dict[str, float]] = {"burst": {}, "sustained": {}}
    for m, n, k in job["shapes"]:
        torch.manual_seed(m + n + k)
        # random data: with constant data cards run cooler and faster
        kind = torch.float8_e4m3fn if fp8 else torch.bfloat16
        a, b = (torch.randn(rows, k).to(kind).to(device.name) for rows in (m, n))
        if fp8:
            one = torch.tensor(1.0).to(device.name)
            operation = partial(torch._scaled_mm, a, b.t(), one, one, out_dtype=torch.bfloat16)
        else:
            out = torch.empty(m, n, dtype=torch.bfloat16).to(device.name)
            operation = partial(torch.mm, a, b.t(), out=out)
        operation()
        rounds = device.timed(operation, job["seconds"] / len(job["shapes"]))
        name, work = f"{m}x{n}x{k}", 2 * m * n * k / 1e12
        rates["burst"][name] = work / burst(rounds)
        rates["sustained"][name] = work / statistics.mean(rounds)
        result = operation()
        device.mark()
        checks.update(result[: min(64, m)].float().cpu().numpy().tobytes())
    kept = rates["sustained" if job["test"] in ("sustained", "heat") else "burst"]
    return {
        "value": max(kept.values()),
        **rates,
        "shape": max(rates["burst"], key=lambda shape: rates["burst"][shape]),
        # equal on every sound card: the same operations on the same numbers
        "digest": checks.hexdigest()[:16],
    }


def memory_rate(device: Device, job: dict[str, Any]) -> dict[str, Any]:
    """Return GB/s of reading a weight (as decoding does), and of a copy."""
    torch = device.torch
    count = (job["tensor_mib"] << 20) // 2
    weight = torch.randn(count // 4096, 4096).bfloat16().to(device.name)
    vector = torch.randn(4096, 1).bfloat16().to(device.name)
    out = torch.empty(count // 4096, 1, dtype=torch.bfloat16).to(device.name)
    read = device.timed(lambda: torch.mm(weight, vector, out=out), job["seconds"] / 2)
    other = torch.empty_like(weight)
    copied = device.timed(lambda: other.copy_(weight), job["seconds"] / 2)
    size = weight.numel() * 2 / 1e9
    used = float(out.float().sum().cpu())
    return {"value": size / burst(read), "copy": 2 * size / burst(copied), "sum": used}


def host_to_card(device: Device, job: dict[str, Any]) -> dict[str, Any]:
    """Return GB/s of copies from pinned memory to the card, and back."""
    torch = device.torch
    here = torch.ones((job["tensor_mib"] << 20) // 4)
    if device.name == "hpu":
        here = here.pin_memory(device="hpu")
    there = torch.empty_like(here, device=device.name)
    up = device.timed(lambda: there.copy_(here, non_blocking=True), job["seconds"] / 2)
    down = device.timed(lambda: here.copy_(there, non_blocking=True), job["seconds"] / 2)
    size = here.numel() * 4 / 1e9
    return {"value": size / burst(up), "down": size / burst(down)}


def memory_fill(device: Device, job: dict[str, Any]) -> dict[str, Any]:
    """Return the GiB that were filled with patterns, and the values read wrong."""
    torch, part = device.torch, 1 << 26
    bad, parts = 0, []
    free = torch.hpu.mem_get_info()[0] if device.core is not None else 1 << 34
    for number in range(max(1, int(free * job["fill"]) // (4 * part))):
        parts.append(torch.full((part,), number % 251, dtype=torch.int32, device=device.name))
        device.mark()
    device.wait()
    for number, each in enumerate(parts):
        bad += int((each != number % 251).sum().cpu())
    return {"value": len(parts) * part * 4 / (1 << 30), "wrong_values": bad}


def compile_time(device: Device, job: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of the first run of a known graph, and of the second."""
    torch = device.torch
    torch.manual_seed(7)
    x = torch.randn(128, 1024).bfloat16().to(device.name)
    layers = [torch.randn(1024, 1024).bfloat16().to(device.name) for _ in range(8)]
    device.wait()

    def run() -> tuple[float, float]:
        began, y = time.perf_counter(), x
        for weight in layers:
            y = torch.softmax(torch.relu(y @ weight), dim=-1) + x
        device.mark()
        used = float(y.float().sum().cpu())
        return time.perf_counter() - began, used

    before = device.compiled()
    first, used = run()
    after = device.compiled()
    second, _ = run()
    compiled = {"graphs": after[0] - before[0], "reported_time": after[1] - before[1]}
    return {"value": first - second, "first": first, "second": second, "sum": used, **compiled}


# the others are matrix rates
TESTS: dict[str, Callable[[Device, dict[str, Any]], dict[str, Any]]] = {
    "memory_rate": memory_rate,
    "host_to_card": host_to_card,
    "memory_fill": memory_fill,
    "compile": compile_time,
}


def main() -> None:
    job = json.loads(sys.argv[1])
    device = Device(job["device"])
    answer = TESTS.get(job["test"], matrix)(device, job)
    answer["torch"], answer["compiled_late"] = str(device.torch.__version__), device.late
    print(MARK + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
