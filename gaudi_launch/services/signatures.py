"""What failures look like in a log: one row a cause, each with where it was seen. Titles and remedies are in the
message catalogues (``diagnose.ID``, ``diagnose.ID_fix``)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Signature:
    """Any of ``patterns`` in a line is evidence. Of several causes the deepest (``rank``) comes first; lines that
    only follow from others rank low.

    ``permanent``: starting again without a change fails again. ``commands`` are for a shell, never run by us.
    """

    id: str
    patterns: tuple[str, ...]
    rank: int
    permanent: bool
    source: str
    commands: tuple[str, ...] = ()


SIGNATURES: tuple[Signature, ...] = (
    Signature(
        "device_busy",
        (
            r"Device already acquired",
            r"synStatus[= ]+20 ",
            r"Resource temporarily unavailable.*accel",
        ),
        90,
        False,
        "huggingface/tgi-gaudi#54, #93; HabanaAI/vllm-fork#344",
        ("gaudi-launch devices",),
    ),
    Signature(
        "device_not_found",
        (
            r"synStatus[= ]+8 \[Device not found\]",
            r"Device not found\] Device acquire failed",
        ),
        90,
        False,
        "vllm-project/vllm-gaudi@091bbadd:docs/dev_guide/ci-failures.md",
        ("gaudi-launch devices", "gaudi-launch doctor --only driver,cards"),
    ),
    Signature(
        "acquire_failed",
        (r"synStatus[= ]+26 \[Generic failure\] Device acquire failed",),
        80,
        False,
        "HabanaAI/vllm-fork#344, huggingface/optimum-habana#1611",
        ("gaudi-launch doctor --only driver,cards",),
    ),
    Signature(
        "compile_failed",
        (r"Graph compile failed",),
        60,
        False,
        "HabanaAI/vllm-fork#484, #232; vllm-project/vllm-gaudi#1734",
        (),
    ),
    Signature(
        "device_oom",
        (
            r"PT_DEVMEM.*Allocation failed",
            r"Allocation failed for size::",
            r"synStatus[= ]+4 ",
        ),
        95,
        True,
        "huggingface/tgi-gaudi#216, huggingface/optimum-habana#1469",
        ("gaudi-launch fit MODEL",),
    ),
    Signature(
        "no_kv_blocks",
        (r"No available memory for the cache blocks",),
        95,
        True,
        "HabanaAI/vllm-fork@aice/v1.22.0:vllm/worker/hpu_worker.py",
        ("gaudi-launch fit MODEL",),
    ),
    Signature(
        "kv_too_small",
        (
            r"max seq len \(\d+\) is larger than the maximum number of tokens",
            r"To serve at least one request with the model.s max seq len",
            r"estimated maximum model length",
        ),
        95,
        True,
        "HabanaAI/vllm-fork@aice/v1.22.0:vllm/worker/hpu_worker.py",
        ("gaudi-launch fit MODEL",),
    ),
    Signature(
        "host_oom",
        (
            r"synStatus[= ]+3 ",
            r"Cannot allocate memory",
            r"\bMemoryError\b",
            r"DefaultCPUAllocator: can't allocate memory",
        ),
        90,
        False,
        "HabanaAI/SynapseAI_Core@d4d7f5c:external_includes/synapse_common_types.h",
        ("free -h",),
    ),
    Signature(
        "oom_killer",
        (
            r"Out of memory: Killed process",
            r"oom-kill:",
            r"Memory cgroup out of memory",
        ),
        99,
        False,
        "Linux mm/oom_kill.c",
        ("dmesg | tail",),
    ),
    Signature(
        "not_enough_devices",
        (
            r"There is not enough devices available",
            r"synStatus[= ]+16 ",
        ),
        90,
        True,
        "HabanaAI/gaudi-pytorch-bridge@5a56187",
        ("gaudi-launch devices",),
    ),
    Signature(
        "bad_visible_modules",
        (r"Invalid HABANA_VISIBLE_MODULES",),
        95,
        True,
        "vllm-project/vllm-gaudi#946",
        ("gaudi-launch devices",),
    ),
    Signature(
        "device_type",
        (r"Failed to infer device type",),
        90,
        True,
        "HabanaAI/vllm-fork#666",
        ("gaudi-launch engines", "gaudi-launch doctor --only driver,container"),
    ),
    Signature(
        "docker_runtime",
        (
            r"Unknown runtime specified habana",
            r"unknown or invalid runtime name: habana",
        ),
        95,
        True,
        "docs: Installation, container runtime",
        ("gaudi-launch doctor --only container",),
    ),
    Signature(
        "no_driver",
        (
            r"no AIPs available",
            r"habanalabs driver is not loaded",
        ),
        95,
        True,
        "apptainer end-to-end test; HLML",
        ("gaudi-launch doctor --only driver", "lspci -d 1da3:"),
    ),
    Signature(
        "firmware",
        (
            r"CPU-CP timeout",
            r"Device is NOT usable",
        ),
        99,
        True,
        "HabanaAI/Setup_and_Install#1",
        ("dmesg | tail",),
    ),
    Signature(
        "hccl_interface",
        (r"No network interfaces found in HCCL_SOCKET_IFNAME",),
        95,
        True,
        "HabanaAI/HCL@54fed3a",
        ("ip -br addr",),
    ),
    Signature(
        "scale_out",
        (r"Scale-out is not available and communicator requires scale-out",),
        95,
        True,
        "HabanaAI/HCL@54fed3a",
        ("gaudi-launch doctor --only network",),
    ),
    Signature(
        "hccl_comm_id",
        (
            r"HCCL_COMM_ID env var is",
            r"Invalid unique_id length",
        ),
        90,
        True,
        "HabanaAI/HCL@54fed3a",
        (),
    ),
    Signature(
        "hccl",
        (
            r"hcclCommInitRank",
            r"HCCL (?:error|failure)",
            r"hcclResult",
        ),
        50,
        False,
        "HabanaAI/HCL@54fed3a",
        ("gaudi-launch doctor --deep --only network",),
    ),
    Signature(
        "scale_patching",
        (r"not supported for runtime scale patching",),
        95,
        True,
        "vllm-project/vllm-gaudi@091bbadd:docs/general/troubleshooting.md",
        ("export RUNTIME_SCALE_PATCHING=0",),
    ),
    Signature(
        "sparse_attention",
        (r"Sparse Attention is not supported on HPU",),
        95,
        True,
        "vllm-project/vllm-gaudi#1549",
        (),
    ),
    Signature(
        "node_create",
        (r"synNodeCreateWithId failed for node",),
        80,
        True,
        "hiyouga/LLaMA-Factory#7275",
        (),
    ),
    Signature(
        "version_mismatch",
        (
            r"has been validated for SynapseAI",
            r"this could lead to undefined behavior",
            r"driver version .* does not match",
        ),
        40,
        True,
        "huggingface/optimum-habana; opea-project/GenAIExamples#366",
        ("gaudi-launch doctor --only driver",),
    ),
    Signature(
        "gaudi1",
        (r"ValidateSyncInputTensors tensor_data is empty",),
        90,
        True,
        "HabanaAI/vllm-fork#776",
        (),
    ),
    Signature(
        "port_in_use",
        (
            r"Address already in use",
            r"error while attempting to bind on address",
        ),
        95,
        False,
        "sample fakehpu-v1.21.0-port-in-use",
        (),
    ),
    Signature(
        "wrong_path",
        (
            r"Invalid repository ID or local directory specified",
            r"is not a local folder and is not a valid model identifier",
            r"does not appear to have a file named config\.json",
            r"Can't load the configuration of",
        ),
        95,
        True,
        "sample fakehpu-v1.21.0-wrong-model-path",
        ("gaudi-launch inspect MODEL",),
    ),
    Signature(
        "tokenizer",
        (
            r"TokenizersBackend",
            r"Tokenizer class \S+ does not exist",
            r"Can't load tokenizer",
            r"Couldn't instantiate the backend tokenizer",
            r"Unable to load vocabulary",
        ),
        90,
        True,
        "facts: vLLM's CPU build with a tokenizer of transformers 5",
        (),
    ),
    Signature(
        "remote_code",
        (
            r"trust_remote_code=True",
            r"requires you to execute the (?:configuration|modeling) file",
            r"contains custom code which must be executed",
        ),
        95,
        True,
        "transformers dynamic_module_utils.py",
        ("gaudi-launch serve ... --trust-remote-code",),
    ),
    Signature(
        "shards",
        (
            r"SafetensorError",
            r"InvalidHeaderDeserialization",
            r"MetadataIncompleteBuffer",
            r"incomplete metadata, file not fully covered",
        ),
        95,
        True,
        "safetensors error names",
        ("gaudi-launch inspect MODEL",),
    ),
    Signature(
        "quant_config",
        (
            r"INC QUANT_CONFIG file not found",
            r"No such file or directory: .*(?:maxabs|quant|measure|inc_output)",
            r"(?:maxabs|measure)\S*\.(?:json|npz).*(?:No such file|not found)",
        ),
        95,
        True,
        "HabanaAI/vllm-fork@aice/v1.22.0:vllm/config.py",
        ("ls -l $QUANT_CONFIG",),
    ),
    Signature(
        "bucket_limit",
        (
            r"_BUCKET_LIMIT: exception during construction",
            r"BUCKET_\w+: exception during construction",
        ),
        97,
        True,
        "vllm-hpu-extension@aice/v1.22.0:config.py; executed",
        (),
    ),
    Signature(
        "bucket_config",
        (
            r"Min\. batch size cannot be greater than max",
            r"Generated 0 prompt buckets",
            r"too many values to unpack \(expected 3\)",
            r"math domain error",
            r"cannot be greater than max\. batch",
            r"bucketing configuration",
        ),
        95,
        True,
        "vllm-hpu-extension bucketing; executed",
        ("env | grep BUCKET", "gaudi-launch warmup"),
    ),
    Signature(
        "bucket_hang",
        (
            r"^\(Pdb\)",
            r"> .*exponential\.py\(\d+\)",
        ),
        97,
        False,
        "vllm-hpu-extension@aice/v1.21.0:bucketing/exponential.py",
        (),
    ),
    Signature(
        "merged_prefill",
        (r"Merged prefill is not compatible with padding aware scheduling",),
        97,
        True,
        "HabanaAI/vllm-fork@aice/v1.21.0:vllm/worker/hpu_model_runner.py",
        ("unset VLLM_MERGED_PREFILL",),
    ),
    Signature(
        "contiguous_pa",
        (
            r"Contiguous PA doesn't support APC",
            r"not supported with contiguous PA",
        ),
        97,
        True,
        "HabanaAI/vllm-fork@aice/v1.21.0:vllm/worker/hpu_model_runner.py",
        ("export VLLM_CONTIGUOUS_PA=false",),
    ),
    Signature(
        "prefill_seqs",
        (r"max_num_prefill_seqs can be only",),
        97,
        True,
        "HabanaAI/vllm-fork@aice/v1.21.0:vllm/config.py",
        (),
    ),
    Signature(
        "arguments",
        (
            r"error: (?:unrecognized arguments|the following arguments are required)",
            r"error: argument \S+: (?:expected|invalid)",
        ),
        97,
        True,
        "vllm pull 21349, llm-d-benchmark pull 781",
        ("gaudi-launch engines",),
    ),
    Signature(
        "ray_path",
        (r"System error: No module named",),
        95,
        True,
        "HabanaAI/vllm-fork@deepseek_r1:scripts/quickstart/README.md",
        ("grep PYTHONPATH /etc/environment",),
    ),
    Signature(
        "no_module",
        (
            r"ModuleNotFoundError: No module named",
            r"PackageNotFoundError",
        ),
        85,
        True,
        "Python",
        ("gaudi-launch engines",),
    ),
    Signature(
        "disk_full",
        (
            r"No space left on device",
            r"Disk quota exceeded",
        ),
        97,
        False,
        "Linux errno 28, 122",
        ("df -h",),
    ),
    Signature(
        "shared_memory",
        (
            r"Bus error",
            r"shared memory \(shm\)",
            r"/dev/shm.*No space",
        ),
        85,
        False,
        "docs: container flags",
        ("df -h /dev/shm",),
    ),
    Signature(
        "nofile",
        (r"Too many open files",),
        90,
        False,
        "vLLM set_ulimit",
        ("ulimit -n",),
    ),
    Signature(
        "concurrency",
        (r"assert num_output_tokens == 0",),
        85,
        False,
        "vllm-project/vllm-gaudi@091bbadd:docs/general/troubleshooting.md",
        (),
    ),
    Signature(
        "heads",
        (
            r"must be divisible by tensor.parallel",
            r"Total number of attention heads .* must be divisible",
        ),
        97,
        True,
        "vllm/config.py verify_with_parallel_config",
        ("gaudi-launch inspect MODEL",),
    ),
    Signature(
        "too_long",
        (r"User-specified max_model_len \(\d+\) is greater than the derived max_model_len",),
        97,
        True,
        "vllm/config.py _get_and_verify_max_len",
        ("gaudi-launch inspect MODEL",),
    ),
    Signature(
        "not_supported",
        (
            r"Model architectures .* (?:are not supported|failed to be inspected)",
            r"NotImplementedError",
        ),
        70,
        True,
        "vllm model registry; HabanaAI/vllm-fork pull 1559",
        ("gaudi-launch inspect MODEL",),
    ),
    Signature(
        "cpu_attention",
        (r"Unsupported CPU attention configuration",),
        97,
        True,
        "vLLM's CPU build, seen with head_dim 16",
        (),
    ),
    Signature(
        "gated",
        (
            r"GatedRepoError",
            r"Access to model .* is restricted",
            r"401 Client Error",
        ),
        95,
        True,
        "huggingface_hub errors",
        (),
    ),
    Signature(
        "offline",
        (
            r"LocalEntryNotFoundError",
            r"We couldn't connect to",
            r"OfflineModeIsEnabled",
            r"Max retries exceeded with url",
        ),
        75,
        False,
        "huggingface_hub errors",
        (),
    ),
    Signature(
        "crashed",
        (
            r"Segmentation fault",
            r"core dumped",
            r"Fatal Python error",
        ),
        40,
        False,
        "signal(7)",
        ("dmesg | tail",),
    ),
    Signature(
        "core_failed",
        (
            r"Engine process failed to start",
            r"Engine core initialization failed",
            r"EngineDeadError",
        ),
        5,
        False,
        "HabanaAI/vllm-fork; vllm",
        (),
    ),
)
# has no line of its own: told by the exit status
KILLED = Signature("killed", (), 30, False, "signal(7)", ("dmesg | tail",))
