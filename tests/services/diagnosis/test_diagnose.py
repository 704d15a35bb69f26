"""Every signature is found, in the right order, in both languages; nothing is found where
nothing is wrong."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest
import yaml

from gaudi_launch.messages import catalogue
from gaudi_launch.services.diagnosis.diagnose import diagnose
from gaudi_launch.services.diagnosis.signatures import KILLED, QUIT, STUCK, TERMINATED, signatures
from gaudi_launch.services.log.line import bare
from tests.support.log_lines import PROMPT
from tests.support.places import DATA

# the public texts of the failures, one a cause at least
TEXTS = [
    ("lora_folder", "ValueError: Loading lora a failed: No adapter found for /models/a"),
    ("device_busy", "RuntimeError: synStatus=20 [Device already acquired] Device acquire failed."),
    ("device_not_found", "RuntimeError: synStatus=8 [Device not found] Device acquire failed."),
    ("acquire_failed", "RuntimeError: synStatus=26 [Generic failure] Device acquire failed."),
    (
        "compile_failed",
        "RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure].",
    ),
    (
        "device_oom",
        "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::1073741824 (1024)MB",
    ),
    (
        "no_kv_blocks",
        (
            "ValueError: No available memory for the cache blocks. Try increasing "
            "`gpu_memory_utilization`"
        ),
    ),
    (
        "kv_too_small",
        (
            "ValueError: The model's max seq len (40960) is larger than the maximum number of "
            "tokens that"
        ),
    ),
    (
        "not_enough_devices",
        "There is not enough devices available for training. Please verify if HABANA_VISIBLE",
    ),
    (
        "bad_visible_modules",
        "RuntimeError: Invalid HABANA_VISIBLE_MODULES=5. Module IDs should be between 0 and 0.",
    ),
    ("device_type", "RuntimeError: Failed to infer device type"),
    ("docker_runtime", "docker: Error response from daemon: Unknown runtime specified habana."),
    ("no_driver", "habanalabs driver is not loaded or no AIPs available, aborting..."),
    ("firmware", "[  12.3] habanalabs hl0: CPU-CP timeout"),
    ("hccl_interface", "No network interfaces found in HCCL_SOCKET_IFNAME"),
    ("scale_out", "Scale-out is not available and communicator requires scale-out"),
    ("hccl_comm_id", "Invalid unique_id length=0. Make sure HCCL_COMM_ID env var is set"),
    (
        "scale_patching",
        'AssertionError: Scaling method "X" is not supported for runtime scale patching',
    ),
    ("sparse_attention", "NotImplementedError: Sparse Attention is not supported on HPU."),
    ("node_create", "RuntimeError: synNodeCreateWithId failed for node: gelu_fwd_bf16"),
    (
        "gaudi1",
        "FATAL ERROR :: MODULE:PT_LAZY Error, ValidateSyncInputTensors tensor_data is empty",
    ),
    ("port_in_use", "OSError: [Errno 98] Address already in use"),
    (
        "wrong_path",
        "OSError: /nosuch is not a local folder and is not a valid model identifier listed on",
    ),
    (
        "tokenizer",
        (
            "ValueError: Tokenizer class TokenizersBackend does not exist or is not currently "
            "imported."
        ),
    ),
    (
        "remote_code",
        "ValueError: Loading /m requires you to execute the configuration file in that repo",
    ),
    (
        "shards",
        (
            "safetensors_rust.SafetensorError: Error while deserializing header: "
            "MetadataIncompleteBuffer"
        ),
    ),
    ("quant_config", "AssertionError: INC QUANT_CONFIG file not found"),
    (
        "quant_config",
        (
            "FileNotFoundError: [Errno 2] No such file or directory: "
            "'/m/inc_output_hooks_maxabs_0_8.json'"
        ),
    ),
    (
        "bucket_limit",
        (
            "RuntimeError: VLLM_PROMPT_BS_BUCKET_LIMIT: exception during construction: invalid "
            "literal for int()"
        ),
    ),
    (
        "bucket_config",
        (
            "AssertionError: Min. batch size cannot be greater than max. batch size. If you want "
            "to skip"
        ),
    ),
    (
        "bucket_config",
        "RuntimeError: Generated 0 prompt buckets. Please adjust the bucketing configuration",
    ),
    ("bucket_config", "ValueError: math domain error"),
    ("bucket_hang", "> /x/vllm_hpu_extension/bucketing/exponential.py(205)find_bucket()"),
    (
        "merged_prefill",
        "AssertionError: Merged prefill is not compatible with padding aware scheduling!",
    ),
    ("contiguous_pa", "AssertionError: Contiguous PA doesn't support APC"),
    (
        "contiguous_pa",
        "ValueError: Speculative decoding is not supported with contiguous PA, please set",
    ),
    (
        "prefill_seqs",
        "ValueError: max_num_prefill_seqs can be only used with padding-aware-scheduling",
    ),
    ("arguments", "vllm serve: error: unrecognized arguments: --disable-log-requests"),
    ("arguments", "api_server.py: error: argument --enable-expert-parallel: expected one argument"),
    ("ray_path", "System error: No module named 'vllm'"),
    ("no_module", "ModuleNotFoundError: No module named 'habana_frameworks'"),
    ("disk_full", "OSError: [Errno 28] No space left on device"),
    ("shared_memory", "RuntimeError: DataLoader worker is killed by signal: Bus error."),
    (
        "shared_memory",
        "RuntimeError: Insufficient space in /dev/shm for shared-memory allocation: 160 MiB "
        "required, 62 MiB free. Increase /dev/shm (e.g. --shm-size or --ipc=host).",
    ),
    ("nofile", "OSError: [Errno 24] Too many open files"),
    (
        "host_oom",
        "RuntimeError: [enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory",
    ),
    ("oom_killer", "[123.4] Out of memory: Killed process 4242 (python3) total-vm:1kB"),
    ("concurrency", "assert num_output_tokens == 0, (f'req_id: cmpl-benchmark-serving39-0')"),
    (
        "heads",
        (
            "ValueError: Total number of attention heads (64) must be divisible by tensor parallel "
            "size (6)."
        ),
    ),
    (
        "too_long",
        (
            "ValueError: User-specified max_model_len (40960) is greater than the derived "
            "max_model_len"
        ),
    ),
    (
        "not_supported",
        "ValueError: Model architectures ['XForCausalLM'] are not supported for now.",
    ),
    ("cpu_attention", "RuntimeError: Unsupported CPU attention configuration"),
    ("gated", "huggingface_hub.errors.GatedRepoError: 403 Client Error."),
    ("offline", "OSError: We couldn't connect to 'https://huggingface.co' to load the files"),
    ("crashed", "Fatal Python error: Segmentation fault"),
    ("hccl", "RuntimeError: hcclCommInitRank failed"),
    (
        "port_in_use",
        (
            "docker: Error response from daemon: Bind for 127.0.0.1:80 failed: port is already "
            "allocated."
        ),
    ),
    (
        "tgi_batch_size",
        "RuntimeError: MAX_BATCH_SIZE is not set, it should be set in the launcher using",
    ),
    (
        "tgi_prefill",
        "RuntimeError: Not enough memory to handle 16384 prefill tokens. You need to decrease",
    ),
    ("tgi_prefill", "Error: Backend(NotEnoughMemory(4096))"),
    (
        "tgi_quantize",
        "RuntimeError: Only 1 can be set between `dtype` and `quantize`, as they both decide how",
    ),
    ("tgi_model_type", "ValueError: Unsupported model type rwkv"),
    (
        "tgi_arguments",
        'Error: ArgumentValidation("`max_input_tokens` must be < `max_total_tokens`")',
    ),
    ("read_only", "OSError: [Errno 30] Read-only file system: '/models/m/model.safetensors'"),
    ("docker_image", "docker: Error response from daemon: manifest unknown."),
    (
        "docker_init",
        (
            'docker: Error response from daemon: exec: "docker-init": executable file not found in '
            "$PATH."
        ),
    ),
    (
        "docker_cpus",
        "docker: Error response from daemon: Requested CPUs are not available - requested 0-9.",
    ),
    ("shard_failed", "Error: ShardCannotStart"),
    (
        "gateway_address",
        "[ALERT] (9) : Binding [haproxy.cfg:30] for frontend openai: cannot bind socket"
        " (Address already in use) for [127.0.0.1:8000]",
    ),
    ("gateway_certificate", "unable to load private key from file 'tls.pem.key'."),
    ("gateway_config", "[ALERT] (9) : config : Fatal errors found in configuration."),
    ("device_busy", "RuntimeError: synStatus=22 [Device is busy] Device acquire failed."),
    ("device_not_found", "RuntimeError: synStatus=24 [Unavailable] Device acquire failed."),
    ("device_reset", "RuntimeError: synLaunch failed. synStatus=7 [Command submission failure]."),
    ("device_reset", "RuntimeError: synStatus=17 [Device reset]."),
    ("device_oom", "RuntimeError: HPU out of memory occurred when warming up pooler (num_reqs=8)"),
    (
        "memory_share",
        "ValueError: Free memory on device is less than desired GPU memory utilization (0.9)",
    ),
    ("node_create", "RuntimeError: synNodeCreate failed. synStatus=25 [Invalid tensor dimensions]"),
    ("bucket_hang", "(Pdb) "),
    ("bucket_hang", "bdb.BdbQuit"),
    ("version_mismatch", "ImportError: /x/libhabana_pytorch_plugin.so: undefined symbol: _ZN3c10"),
    (
        "no_module",
        "ImportError: libSynapse.so: cannot open shared object file: No such file or directory",
    ),
    ("permission", "PermissionError: [Errno 13] Permission denied: '/models/m/config.json'"),
    ("permission", "./start_vllm.sh: line 12: /dev/accel/accel0: Permission denied"),
    ("hccl", "[rank3]: RuntimeError: Collective call returned error"),
    ("worker_timeout", "TimeoutError: RPC call to execute_model timed out."),
    (
        "ray_resources",
        "ValueError: Cannot provide a placement group of placement_group_specs=[{'HPU': 1.0}]",
    ),
    ("crashed", "Internal Error: Received signal - Aborted"),
    ("quant_method", "ValueError: fp8 quantization is currently not supported in hpu."),
    (
        "quant_method",
        (
            "ValueError: The quantization method compressed-tensors is not supported for the "
            "current GPU."
        ),
    ),
    (
        "host_oom",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
    ),
    ("wrong_path", "huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error."),
    (
        "core_failed",
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    ),
    (
        "process_gone",
        (
            "(APIServer pid=1) ERROR 11-21 [x.py:1] Worker proc VllmWorker-3 died unexpectedly, "
            "shutting"
        ),
    ),
    ("process_gone", 'ERROR 11-21 [client.py:305] RuntimeError("Engine process (pid 9) died.")'),
    (
        "process_gone",
        (
            "ERROR 11-21 [multiproc_worker_utils.py:124] Worker VllmWorkerProcess pid 9 died, exit "
            "code: -9"
        ),
    ),
    ("synapse", "FATAL ERROR :: MODULE:PT_BRIDGE Exception in Launch thread..."),
    ("synapse", "RuntimeError: synStatus=26 [Generic failure] Stream synchronise failed."),
    (
        "core_failed",
        "CRITICAL [launcher.py:116] MQLLMEngine is already dead, terminating server process",
    ),
    (
        "core_failed",
        "(EngineCore_DP0 pid=7) ERROR 09-03 03:02:37 [core.py:515] EngineCore failed to start.",
    ),
    (
        "core_failed",
        "RuntimeError: Engine process failed to start. See stack trace for the root cause.",
    ),
    (
        "no_driver",
        "modprobe: FATAL: Module habanalabs not found in directory /lib/modules/6.8.0-90-generic",
    ),
    (
        "tokenizer",
        (
            "AttributeError: Qwen2Tokenizer has no attribute all_special_tokens_extended. Did you "
            "mean:"
        ),
    ),
    ("hugepages", "kernel: HugePages_Free: 0 of 15000"),
    (
        "hugepages",
        (
            "0/3 nodes are available: 3 Insufficient hugepages-2Mi. preemption: 0/3 nodes are "
            "available"
        ),
    ),
    ("hugepages", "ERROR: could not allocate 4096 huge pages of 2 MB"),
    (
        "startup_probe",
        "Normal  Killing  2m  kubelet  Container engine failed startup probe, will be restarted",
    ),
    ("startup_probe", "KeyboardInterrupt: terminated"),
    (
        "quant_method",
        "ValueError: Unknown quantization method: abc. Must be one of ['awq', 'fp8'].",
    ),
    (
        "argument_value",
        "api_server.py: error: argument --dtype: invalid choice: 'int8' (choose from auto, half)",
    ),
    ("argument_value", "api_server.py: error: argument --max-num-seqs: invalid int value: 'many'"),
    ("no_weights", "RuntimeError: Cannot find any model weights with `/models/NoWeights`"),
    ("no_tokenizer", "ValueError: Either model_file or model_proto must be specified."),
    (
        "expert_parallel_dense",
        (
            "ValueError: Number of experts in the model must be greater than 0 when expert "
            "parallelism is enabled."
        ),
    ),
    (
        "model_type",
        "ValueError: The checkpoint you are trying to load has model type `glm_moe_dsa` but "
        "Transformers does not recognize this architecture. This could be because of an issue "
        "with the checkpoint",
    ),
    (
        "recompile",
        (
            "torch._dynamo.exc.RecompileError: Recompilation triggered with skip_guard_eval_unsafe "
            "stance."
        ),
    ),
    ("fastapi_routes", "AttributeError: '_IncludedRouter' object has no attribute 'path'"),
    (
        "optimum_transformers",
        (
            "ImportError: cannot import name '_VALID_DICT_FIELDS' from "
            "'transformers.training_args' (/x/y.py)"
        ),
    ),
    ("socket_path", "OSError: AF_UNIX path too long"),
    (
        "socket_path",
        "OSError: AF_UNIX path length cannot exceed 107 bytes: /x/ray/sockets/dash_MetricsHead",
    ),
    (
        "capture_collective",
        "RuntimeError: collective nonSFG is not supported during hpu graph capturing",
    ),
    (
        "ray_resources",
        (
            "ValueError: The number of required HPUs exceeds the total number of available HPUs in "
            "the placement group"
        ),
    ),
    (
        "docker_gpus",
        'docker: Error response from daemon: could not select device driver "" with capabilities: '
        "[[gpu]].",
    ),
    (
        "docker_daemon",
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?",
    ),
    (
        "docker_name",
        'docker: Error response from daemon: Conflict. The container name "/vllm" is already in '
        "use by container 1f.",
    ),
    (
        "kube_schedule",
        "  Warning  FailedScheduling  12s   default-scheduler  0/3 nodes are available: 3 node(s) "
        "had untolerated taint {gaudi: true}.",
    ),
    (
        "kube_volume",
        '  Warning  FailedMount  5s (x4 over 9s)  kubelet  MountVolume.SetUp failed for volume "m"',
    ),
    ("docker_image", "2m  Warning  Failed  pod/engine-0  Error: ImagePullBackOff"),
    ("oom_killer", "    Last State:  Terminated  Reason: OOMKilled  Exit Code: 137"),
    ("low_nofile", "Traceback: Found ulimit of 1024 and failed to automatically increase"),
]

# what fails nothing: a warning that most starts survive, what makes requests slow (vllm-fork#836)
SLOW = [
    (
        "optimum_release",
        "optimum-habana v1.11 has been validated for SynapseAI v1.15.0 but the driver version is "
        "v1.14.0, this could lead to undefined behavior!",
    ),
    (
        "simulated_fault",
        "WARNING 11-22 [logger.py:1] Simulated fault of module 3: slow-card, 0 s after the warm-up",
    ),
    (
        "not_warmed_up",
        "WARNING 04-28 07:43:17 [r.py:1013] Configuration: ('prompt', 16, 896) was not warmed-up!",
    ),
    (
        "preempted",
        (
            "WARNING 04-28 [scheduler.py:1] Sequence group cmpl-1-0 is preempted by "
            "PreemptionMode.RECOMPUTE mode"
        ),
    ),
    ("gateway_no_server", "[ALERT] (9) : backend 'model0-chat' has no server available!"),
]


@pytest.mark.parametrize(("finding", "line"), SLOW)
def test_what_makes_requests_slow_is_a_finding_and_no_failure(finding: str, line: str) -> None:
    found = diagnose(f"{UP}{line}\n{line}\n")
    assert (found.failed, found.causes) == (False, ())
    assert [(each.id, len(each.evidence)) for each in found.findings] == [(finding, 2)]


@pytest.mark.parametrize(
    ("cause", "text"), TEXTS, ids=[f"{c}-{n}" for n, (c, _) in enumerate(TEXTS)]
)
def test_each_known_text(cause: str, text: str) -> None:
    found = diagnose(f"INFO 11-21 03:02:41 starting\n{text}\n")
    assert found.failed and found.causes[0].id == cause
    assert found.causes[0].evidence[0] == (2, bare(text))


# what HAProxy 2.8.25 wrote when it failed so
HAPROXY = [
    ("port-in-use", "gateway_address", "cannot bind socket (Address already in use)"),
    ("address-not-here", "gateway_address", "cannot bind socket (Cannot assign requested address)"),
    ("certificate-missing", "gateway_certificate", "unable to stat SSL certificate"),
    ("certificate-not-pem", "gateway_certificate", "unable to load certificate"),
    ("certificate-no-key", "gateway_certificate", "unable to load private key"),
    ("certificate-other-key", "gateway_certificate", "inconsistencies between private key"),
    ("config-rejected", "gateway_config", "unknown keyword 'nbthreads'"),
]


@pytest.mark.parametrize(("sample", "cause", "evidence"), HAPROXY)
def test_what_haproxy_wrote_names_its_cause(sample: str, cause: str, evidence: str) -> None:
    text = (DATA / "haproxy" / f"{sample}.txt").read_text(encoding="utf-8")
    found = diagnose(text, exit_status=1)
    assert found.failed and found.causes[0].id == cause
    assert evidence in found.causes[0].evidence[0][1]


def test_a_gateway_without_an_engine_has_not_failed() -> None:
    text = (DATA / "haproxy" / "no-server.txt").read_text(encoding="utf-8")
    found = diagnose(text)
    assert (found.failed, [each.id for each in found.findings]) == (False, ["gateway_no_server"])


def test_every_signature_has_a_text() -> None:
    threads = yaml.safe_load((DATA / "threads.yaml").read_text(encoding="utf-8"))
    known = {cause for cause, _ in TEXTS} | {each.get("cause", "exception") for each in threads}
    assert {each.id for each in signatures() if not each.slows} == known - {"exception"}
    assert {each.id for each in signatures() if each.slows} == {cause for cause, _ in SLOW}
    assert len(signatures()) >= 39


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_signature_has_its_words(language: str) -> None:
    known = catalogue(language)
    for signature in (*signatures(), KILLED, TERMINATED, STUCK, QUIT):
        assert known[f"diagnose.{signature.id}"] and known[f"diagnose.{signature.id}_fix"]


def test_the_deepest_cause_comes_first() -> None:
    text = "\n".join(
        [
            "ERROR Engine process failed to start",
            "RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure].",
            "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::12 (1)MB",
            "RuntimeError: Engine process failed to start. See stack trace for the root cause.",
        ]
    )
    found = diagnose(text, exit_status=1)
    assert [cause.id for cause in found.causes] == ["device_oom", "compile_failed"]
    assert found.permanent


def test_killed_from_outside_is_told_by_the_status() -> None:
    found = diagnose("INFO all is well\n", exit_status=-9)
    assert [cause.id for cause in found.causes] == ["killed"]
    with_kernel = diagnose("[1.0] Out of memory: Killed process 1 (python3)\n", exit_status=-9)
    assert [cause.id for cause in with_kernel.causes] == ["oom_killer"]


def test_warnings_that_every_start_survives_are_no_cause() -> None:
    text = (
        "WARNING 11-21 03:02:41 [utils.py:2385] Found ulimit of 20000 and failed to "
        "automatically increase with error current limit exceeds maximum limit. This can cause "
        "fd limit errors like `OSError: [Errno 24] Too many open files`. Consider increasing "
        "with ulimit -n\n"
        "INFO 11-21 03:02:41 [api_server.py:1043] args: Namespace(trust_remote_code=True, "
        "port=8000)\n"
    )
    assert diagnose(text).causes == ()
    # only where it failed, and the log has no error at all
    died = diagnose(text + "INFO the last line\n", exit_status=1, outcome="died")
    assert [(cause.id, died.permanent) for cause in died.causes] == [("low_nofile", False)]
    odd = diagnose(text + "RuntimeError: odd\n", exit_status=1, outcome="died")
    assert [(cause.id, cause.evidence) for cause in odd.causes] == [
        ("exception", ((3, "RuntimeError: odd"),))
    ]
    other = diagnose(text + "OSError: [Errno 28] No space left on device\n", exit_status=1)
    assert [cause.id for cause in other.causes] == ["disk_full"]
    assert [cause.id for cause in diagnose(text, exit_status=-15, outcome="died").causes] == [
        "terminated"
    ]
    assert [cause.id for cause in diagnose(text, exit_status=0, outcome="died").causes] == ["quit"]
    error = "RuntimeError: Engine core initialization failed.\n"
    assert not diagnose(text + error, exit_status=1, outcome="stopped").failed


def test_a_healthy_line_with_a_prefix_or_colours_is_no_cause() -> None:
    said = (
        "INFO 11-21 03:02:41 [core.py:58] Initializing a V1 LLM engine with config: "
        "trust_remote_code=True"
    )
    assert diagnose(f"(EngineCore_DP0 pid=7) {said}").causes == ()
    assert diagnose(f"\x1b[1;36m(EngineCore_DP0 pid=7)\x1b[0;0m {said}").causes == ()


def test_line_numbers_are_those_of_an_editor() -> None:
    text = (
        "one\r\n 10%|#\r 20%|##\r\n"
        "ValueError: /m requires you to execute the configuration file in it"
    )
    assert [number for number, _ in diagnose(text).causes[0].evidence] == [3]


SIGNALS = [
    (137, "killed"),
    (-9, "killed"),
    (143, "terminated"),
    (-15, "terminated"),
    (-11, "crashed"),
    (134, "crashed"),
    (-7, "shared_memory"),
]
UP = "INFO:     Application startup complete.\n"
OOM = "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::12 (1)MB\n"


def test_what_a_healthy_start_warns_of_is_no_failure() -> None:
    text = (
        "WARNING urllib3: Max retries exceeded with url: /stats\n"
        "WARNING hub: 401 Client Error for a file that is not needed\n"
        "WARNING Unable to load vocabulary from file\n"
        "'(MaxRetryError('HTTPSConnectionPool: Max retries exceeded with url: /'))' thrown while "
        "requesting GET x\n"
    )
    assert diagnose(text + UP, exit_status=None) == diagnose(UP)
    assert not diagnose(text + UP).failed


def test_one_request_that_failed_is_no_failed_engine() -> None:
    found = diagnose(
        UP
        + (
            "WARNING Max retries exceeded with url\n"
            "ERROR ValueError: Contiguous PA doesn't support APC\n"
        )
    )
    assert (found.failed, found.permanent, [cause.id for cause in found.causes]) == (
        False,
        False,
        ["contiguous_pa"],
    )
    died = diagnose(UP + OOM)
    assert died.failed and died.causes[0].id == "device_oom"


def test_a_cause_that_is_printed_while_it_ends_is_found_when_it_ended_badly() -> None:
    text = "INFO:     Shutting down\n" + OOM
    assert not diagnose(text, exit_status=0).failed
    assert [cause.id for cause in diagnose(text, exit_status=1).causes] == ["device_oom"]


def test_of_several_lives_in_one_log_the_last_is_judged() -> None:
    start = "INFO 11-21 03:02:41 [api_server.py:1042] vLLM API server version 0.8.5\n"
    assert not diagnose(start + OOM + start + UP).failed
    last = diagnose(start + UP + start + OOM)
    assert last.causes[0].evidence == ((4, OOM.strip()),)
    assert not last.came_up


@pytest.mark.parametrize(("status", "cause"), SIGNALS)
def test_signals_in_both_spellings(status: int, cause: str) -> None:
    assert [c.id for c in diagnose("INFO loading\n", exit_status=status).causes] == [cause]


def test_a_crash_that_the_log_tells_keeps_its_lines_and_explains_less_than_a_cause() -> None:
    crash = "Fatal Python error: Segmentation fault\n"
    assert [(c.id, len(c.evidence)) for c in diagnose(crash, exit_status=-11).causes] == [
        ("crashed", 1)
    ]
    assert [c.id for c in diagnose(OOM, exit_status=-6).causes] == ["device_oom"]


def test_that_the_core_is_gone_does_not_explain_an_ordered_end() -> None:
    text = "INFO loading\nvllm.v1.engine.exceptions.EngineDeadError: EngineCore\n"
    assert [c.id for c in diagnose(text, exit_status=-15).causes] == ["terminated"]


@pytest.mark.parametrize(
    ("cause", "line"),
    [
        (
            "bucket_config",
            "INFO 11-21 03:02:41 [common.py:7] Generated 0 prompt buckets [bs, query]: []",
        ),
        ("offline", "requests.exceptions.ProxyError: HTTPSConnectionPool(host='huggingface.co')"),
        (
            "wrong_path",
            "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name'",
        ),
    ],
)
def test_other_texts_of_a_cause(cause: str, line: str) -> None:
    assert cause in [c.id for c in diagnose(line, exit_status=1).causes]


@pytest.mark.parametrize(
    ("outcome", "status", "causes"),
    [
        # the signal that ended it was ours
        ("stuck", -15, ["stuck"]),
        ("stuck", 0, ["stuck"]),
        ("stuck", -9, ["stuck"]),
        ("stopped", -15, []),
        ("stopped", 143, []),
        ("died", -15, ["terminated"]),
        ("died", -9, ["killed"]),
        ("died", 0, ["quit"]),
        ("died", 1, []),
        ("", 0, []),
    ],
)
def test_how_it_ended_is_told_by_its_supervisor(
    outcome: str, status: int, causes: list[str]
) -> None:
    found = diagnose(PROMPT, exit_status=status, outcome=outcome)
    assert [cause.id for cause in found.causes] == causes
    assert found.failed == (outcome in ("stuck", "died"))
    assert found.phase == "warmup_prompt"


def test_a_debugger_that_waits_is_found_in_an_engine_that_is_up() -> None:
    text = UP + "> /x/bucketing/exponential.py(207)find_bucket()\n-> return bucket\n(Pdb) \n"
    found = diagnose(text)
    assert [cause.id for cause in found.causes] == ["bucket_hang"] and len(
        found.causes[0].evidence
    ) == 2


def test_what_failed_under_load_may_start_again() -> None:
    assert diagnose(OOM, exit_status=1).permanent
    assert not diagnose(UP + OOM, exit_status=1).permanent


def test_a_warning_is_no_likelier_than_an_error() -> None:
    warned = "WARNING 11-21 03:03:01 [usage_lib.py:1] Max retries exceeded with url: /stats\n"
    assert not diagnose(warned).failed
    only = diagnose(
        "WARNING 11-21 [config.py:1] quantization is not supported for lm_head\n", exit_status=1
    )
    assert ([c.id for c in only.causes], only.permanent) == (["quant_method"], False)
    failed = "RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure].\n"
    assert [c.id for c in diagnose(warned + failed, exit_status=1).causes] == [
        "compile_failed",
        "offline",
    ]


def test_the_shells_word_for_a_killed_engine() -> None:
    for line in (
        "Killed",
        "./start_gaudi_vllm_server.sh: line 96: 4242 Killed                  python3 -m vllm",
    ):
        assert [c.id for c in diagnose(f"{PROMPT}{line}\n").causes] == ["killed"]
        assert [c.id for c in diagnose(f"{UP}{line}\n", exit_status=137).causes] == ["killed"]


ORDER = [
    ("device_oom", ""),
    (
        "device_oom_weights",
        "Loading safetensors checkpoint shards:  50% Completed | 15/30 [00:00<?, ?it/s]",
    ),
    (
        "device_oom_profile",
        "INFO 11-21 03:04:42 [r.py:2403] profiling run with max_batch_size=1, max_seq_len=8192",
    ),
    (
        "device_oom_kv",
        "INFO 11-21 03:05:02 [executor_base.py:112] # hpu blocks: 2222, # CPU blocks: 0",
    ),
    ("device_oom_graphs", PROMPT),
    ("device_oom_requests", UP),
]


@pytest.mark.parametrize(("words", "line"), ORDER)
def test_the_phase_says_what_filled_the_card(words: str, line: str) -> None:
    cause = diagnose(
        f"INFO starting\n{line}\nRuntimeError: {OOM}INFO:     Shutting down\n", exit_status=1
    ).causes[0]
    assert (cause.id, cause.title.id, cause.remedy.id) == (
        "device_oom",
        f"diagnose.{words}",
        f"diagnose.{words}_fix",
    )


def test_what_failed_under_load_failed_when_it_was_up() -> None:
    assert diagnose(f"{PROMPT}{UP}{OOM}INFO:     Shutting down\n").phase == "ready"


def test_a_core_that_was_killed_under_the_server() -> None:
    text = (
        f"{UP}(APIServer pid=1) WARNING 11-21 12:00:42 [c.py:817] [shutdown] MPClient: engine "
        "core exited unexpectedly; starting cleanup\n"
        "(APIServer pid=1) ERROR 11-21 12:00:42 [a.py:906] EngineDeadError: EngineCore "
        "encountered an issue.\nINFO:     Shutting down\n"
    )
    found = diagnose(text, exit_status=0, outcome="died")
    assert ([cause.id for cause in found.causes], found.phase) == (
        ["process_gone", "core_failed"],
        "ready",
    )


def test_what_an_ordered_end_prints_while_it_starts_is_no_failure() -> None:
    text = f"{PROMPT}RuntimeError: Engine core initialization failed. See root cause above.\n"
    found = diagnose(text, exit_status=1, outcome="stopped")
    assert (found.failed, found.causes) == (False, ())
    assert diagnose(f"{OOM}{text}", exit_status=1, outcome="stopped").failed


ULIMIT = (
    "WARNING 11-21 03:02:41 [utils.py:2385] Found ulimit of 20000 and failed to automatically "
    "increase\n"
)
CORE = "RuntimeError: Engine process failed to start. See stack trace for the root cause.\n"


def _traceback(error: str, mark: str = "") -> str:
    lines = (
        "Traceback (most recent call last):",
        '  File "/x/y.py", line 3, in run',
        "    raise it()",
        error,
    )
    return "".join(f"{mark}{line}\n" for line in lines)


@pytest.mark.parametrize(
    "mark",
    ["", "ERROR 11-21 04:16:31 [engine.py:474] ", "(EngineCore_0 pid=7) ERROR 11-21 [c.py:1] "],
)
def test_the_error_of_the_first_traceback_is_the_cause_where_none_is_known(mark: str) -> None:
    text = (
        ULIMIT + _traceback("IndexError: list index out of range", mark) + _traceback(CORE.strip())
    )
    found = diagnose(text, exit_status=1, outcome="died")
    assert [cause.id for cause in found.causes] == ["exception"]
    assert found.causes[0].evidence == ((5, "IndexError: list index out of range"),)
    assert found.causes[0].title.render().endswith("IndexError: list index out of range")
    assert not found.permanent


def test_of_a_chain_of_exceptions_the_last_is_the_error() -> None:
    chain = "\nThe above exception was the direct cause of the following exception:\n\n"
    text = (
        _traceback("KeyError: 'x'")
        + chain
        + _traceback("OSError: odd file")
        + _traceback("ValueError: later")
    )
    assert diagnose(text, exit_status=1).causes[0].evidence[0][1] == "OSError: odd file"


def test_the_reason_below_a_validation_error_is_part_of_it() -> None:
    error = "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig"
    text = _traceback(error) + "  Value error, odd value [type=value_error]\n"
    assert (
        diagnose(text, exit_status=1).causes[0].evidence[0][1]
        == f"{error}: Value error, odd value [type=value_error]"
    )


def test_an_engine_that_was_up_ended_of_its_last_error() -> None:
    text = (
        UP
        + _traceback("ValueError: a bad request")
        + _traceback("ZeroDivisionError: division by zero")
    )
    assert (
        diagnose(text, exit_status=1).causes[0].evidence[0][1]
        == "ZeroDivisionError: division by zero"
    )
    # of one that still runs they are the errors of requests
    found = diagnose(text)
    assert (found.failed, [cause.id for cause in found.causes]) == (False, ["exception"])


@pytest.mark.parametrize(
    "text",
    [
        _traceback("ValueError: survived", "WARNING 11-21 04:16:31 [hub.py:1] "),
        _traceback("KeyboardInterrupt"),
        _traceback("asyncio.exceptions.CancelledError"),
    ],
)
def test_what_is_survived_or_ordered_is_no_error(text: str) -> None:
    assert diagnose(text, exit_status=1, outcome="died").causes == ()


def test_an_ordered_end_has_no_error() -> None:
    text = _traceback("ValueError: odd")
    assert diagnose(text, exit_status=-15, outcome="stopped").causes == ()
    assert [cause.id for cause in diagnose(text, exit_status=-15, outcome="died").causes] == [
        "terminated"
    ]


def test_a_known_cause_needs_no_exception_and_a_warned_one_comes_after_it() -> None:
    assert [c.id for c in diagnose(OOM + _traceback("ValueError: odd"), exit_status=1).causes] == [
        "device_oom"
    ]
    warned = "WARNING 11-21 03:03:01 [usage_lib.py:1] Max retries exceeded with url: /stats\n"
    found = diagnose(warned + _traceback("ValueError: odd"), exit_status=1)
    assert [cause.id for cause in found.causes] == ["exception", "offline"]


def test_a_secret_in_an_error_is_not_repeated_in_its_title() -> None:
    title = (
        diagnose(_traceback("ValueError: bad api_key='S3cretValue'"), exit_status=1).causes[0].title
    )
    assert "S3cretValue" not in title.render()


def test_one_warning_beside_an_error_hides_neither() -> None:
    """No status is known, and no line of the engine says that it failed: the kernel's line alone
    does."""
    text = (
        "WARNING hub: Max retries exceeded with url: /stats\n"
        "kernel: Out of memory: Killed process 1 (python3)\n"
    )
    assert [cause.id for cause in diagnose(text).causes] == ["oom_killer", "offline"]


@pytest.mark.parametrize(
    ("log", "first"),
    [
        ("fakehpu-v1.22.0-fractional-bucket-limit-refused", "bucket_limit"),
        ("fakehpu-v1.21.0-wrong-model-path", "wrong_path"),
        ("fakehpu-v1.21.0-impossible-bucket", "bucket_config"),
        ("fakehpu-v1.21.0-port-in-use", "port_in_use"),
    ],
)
def test_recorded_failures(log: str, first: str) -> None:
    path = DATA / "logs" / f"{log}.txt.gz"
    found = diagnose(gzip.decompress(path.read_bytes()).decode(), exit_status=1, outcome="died")
    assert found.causes[0].id == first
    assert not {"low_nofile", "exception"}.intersection(cause.id for cause in found.causes)


OOM = "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::1073741824 (1024)MB"
NO_BLOCKS = "ValueError: No available memory for the cache blocks."


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("load", "device_oom_weights"),
        ("profile", "device_oom_profile"),
        ("kv_cache", "device_oom_kv"),
        ("warmup_prompt", "device_oom_graphs"),
        ("warmup_decode", "device_oom_graphs"),
        ("graph_prompt", "device_oom_graphs"),
        ("graph_decode", "device_oom_graphs"),
        ("multimodal", "device_oom_graphs"),
        ("sampler", "device_oom_graphs"),
        ("ready", "device_oom_requests"),
        ("start", "device_oom"),
    ],
)
def test_the_phase_in_which_memory_ran_out_decides_the_remedy(phase: str, words: str) -> None:
    found = diagnose(OOM, exit_status=1, phase=phase)
    (cause,) = found.causes
    assert (cause.id, cause.title.id, cause.remedy.id, found.phase) == (
        "device_oom",
        f"diagnose.{words}",
        f"diagnose.{words}_fix",
        phase,
    )


@pytest.mark.parametrize(
    ("status", "outcome", "ids"),
    [
        (-9, "died", ["killed"]),
        (137, "", ["killed"]),
        (-7, "died", ["shared_memory"]),
        (-4, "died", ["crashed"]),
        (-6, "died", ["crashed"]),
        (134, "died", ["crashed"]),
        (-8, "died", ["crashed"]),
        (-11, "died", ["crashed"]),
        (-1, "died", ["terminated"]),
        (-2, "died", ["terminated"]),
        (129, "", ["terminated"]),
        (-15, "died", ["terminated"]),
        (0, "died", ["quit"]),
        (1, "died", []),
        (128, "died", []),
        # its supervisor sent the signal
        (-9, "stuck", ["stuck"]),
        (-9, "stopped", []),
    ],
)
def test_without_a_log_the_status_alone_explains_the_end(
    status: int, outcome: str, ids: list[str]
) -> None:
    found = diagnose("", exit_status=status, outcome=outcome)
    assert [cause.id for cause in found.causes] == ids
    assert found.failed is (outcome != "stopped")
    assert (found.came_up, found.at, found.findings) == (False, (0, 0), ())


def test_a_cause_is_written_with_its_evidence() -> None:
    (cause,) = diagnose(f"{NO_BLOCKS}\n" * 5, exit_status=1).causes
    assert cause.to_json() == {
        "id": "no_kv_blocks",
        "title": cause.title.render(),
        "remedy": cause.remedy.render(),
        "commands": list(cause.commands),
        # the first three are enough
        "evidence": [{"line": number, "text": NO_BLOCKS} for number in (1, 2, 3)],
        "permanent": cause.permanent,
        "source": cause.source,
    }


def test_the_commands_are_for_the_model_that_is_named() -> None:
    (cause,) = diagnose(OOM, exit_status=1).causes
    made = replace(cause, commands=("gaudi-launch fit MODEL", "top"))
    assert made.for_model("/my models/m").commands == ("gaudi-launch fit '/my models/m'", "top")


@pytest.mark.parametrize(
    "line",
    [
        OOM,
        "Out of memory: Killed process 12",
        "Segmentation fault",
        "(Pdb) ",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        "Engine process (pid 12) died",
    ],
)
def test_an_engine_that_was_up_has_failed_after_a_deadly_line(line: str) -> None:
    up = f"INFO:     Application startup complete.\n{line}"
    found = diagnose(up)
    assert (found.failed, found.came_up, found.permanent) == (True, True, False)
    # the failure of one request is none of the engine
    survived = diagnose(f"INFO:     Application startup complete.\n{NO_BLOCKS}")
    assert (survived.failed, [cause.id for cause in survived.causes]) == (False, ["no_kv_blocks"])


FULL = "OSError: [Errno 28] No space left on device"
STARTED = "INFO:     Application startup complete."
STARTING = "INFO 11-21 03:02:41 [loader.py:1] Starting to load model m..."


def ids(*lines: str, status: int | None = None, outcome: str = "") -> list[str]:
    """Return the causes of a log of these lines, the likeliest first."""
    found = diagnose("\n".join(lines), exit_status=status, outcome=outcome)
    return [cause.id for cause in found.causes]


@pytest.mark.parametrize(
    "line",
    [
        f"INFO 11-21 [a.py:1] {FULL}",
        f"INFO: {FULL}",
        f"DEBUG 11-21 [a.py:1] {FULL}",
        f"x args: Namespace(words='{FULL}')",
        f"x non-default args: {FULL}",
        f"/x/y.py:3: UserWarning: {FULL}",
        f"/x/y.py:3: FutureWarning: {FULL}",
        f"/x/y.py:3: DeprecationWarning: {FULL}",
    ],
)
def test_a_line_that_every_start_may_show_is_no_evidence(line: str) -> None:
    assert ids(line, status=1) == []


@pytest.mark.parametrize("line", [f"INFORMED {FULL}", f"DEBUGGER {FULL}", f"x INFO {FULL}"])
def test_a_level_is_the_first_word_of_its_line(line: str) -> None:
    assert ids(line, status=1) == ["disk_full"]


@pytest.mark.parametrize(
    ("line", "failed"),
    [
        (f"WARN 11-21 [a.py:1] {FULL}", False),
        (f"WARNING 11-21 [a.py:1] {FULL}", False),
        (f"RuntimeWarning: {FULL}", False),
        (f"<dir>/ext-v1.21.0/vllm_hpu_extension/ops.py:34: RuntimeWarning: {FULL}", False),
        (f"/opt/my engines/ops.py:34: ResourceWarning: {FULL}", False),
        (f"<frozen importlib._bootstrap>:241: ImportWarning: {FULL}", False),
        (f"RuntimeError: see ops.py:34: RuntimeWarning: {FULL}", True),
        (f"'{FULL}' thrown while requesting HEAD https://x", False),
        (f"'{FULL}' thrown while requesting GET https://x", False),
        (f"'{FULL}' thrown while requesting POST https://x", True),
        (f"WARNINGS {FULL}", True),
        (f"x WARNING {FULL}", True),
        (f"ERROR 11-21 [a.py:1] {FULL}", True),
        # only a warning says that one of its processes ended
        ("WARNING 11-21 [a.py:1] engine core exited unexpectedly", True),
    ],
)
def test_a_warning_alone_is_no_failure(line: str, failed: bool) -> None:
    assert diagnose(f"{STARTING}\n{line}\none more\n").failed is failed


def test_a_cause_is_permanent_unless_only_warnings_show_it() -> None:
    line = "ValueError: fp8 quantization is currently not supported in hpu."
    for lines, permanent in (
        ((f"WARNING {line}",), False),
        ((line,), True),
        ((f"WARNING {line}", line), True),
    ):
        found = diagnose("\n".join(lines), exit_status=1)
        assert [(each.id, each.permanent) for each in found.causes] == [("quant_method", permanent)]
        assert found.permanent is permanent


def test_of_causes_of_one_rank_the_first_in_the_log_comes_first() -> None:
    shards = "SafetensorError: odd"
    assert ids(OOM, shards, status=1) == ["device_oom", "shards"]
    assert ids(shards, OOM, status=1) == ["shards", "device_oom"]
    # the first line of each counts
    assert ids(shards, OOM, OOM, shards, status=1) == ["shards", "device_oom"]


def test_a_line_is_read_up_to_two_thousand_characters_and_kept_up_to_three_hundred() -> None:
    text = f"{'x' * 1976} No space left on device"
    assert len(text) == 2000
    (cause,) = diagnose(text, exit_status=1).causes
    assert (cause.id, cause.evidence) == ("disk_full", ((1, "x" * 300),))
    assert ids(f"x{text}", status=1) == []
    # each redraw of a progress bar is a line of its own
    (cause,) = diagnose(f"{'x' * 1990}\r{text}\rend", exit_status=1).causes
    assert cause.evidence == ((1, "x" * 300),)


@pytest.mark.parametrize("line", [STARTED, "2026-11-21T03:02:41.123456Z  INFO router: Connected"])
def test_what_shows_that_it_started(line: str) -> None:
    assert diagnose(f"{STARTING}\n{line}\n").came_up
    assert not diagnose(f"{STARTING}\n{line}, it says\n".replace("startup", "start")).came_up


@pytest.mark.parametrize(
    "line", ["INFO:     Shutting down", "INFO 11-21 [a.py:1] Shutdown initiated (timeout=0)"]
)
def test_what_follows_an_ordered_end_is_no_failure(line: str) -> None:
    found = diagnose(f"{STARTED}\n{line}\n{FULL}\n")
    assert (found.failed, found.causes, found.came_up) == (False, (), True)


@pytest.mark.parametrize(
    ("lines", "causes"),
    [
        # what failed while it was up explains a bad end
        ((NO_BLOCKS, STARTED, FULL, "INFO:     Shutting down", OOM), ["disk_full"]),
        # else what it wrote while it ended
        ((NO_BLOCKS, STARTED, "INFO:     Shutting down", OOM), ["device_oom"]),
        # else what it wrote before it was up
        ((NO_BLOCKS, STARTED, "INFO:     Shutting down"), ["no_kv_blocks"]),
        ((FULL, "INFO:     Shutting down", OOM), ["disk_full"]),
    ],
)
def test_the_stage_that_explains_a_bad_end(lines: tuple[str, ...], causes: list[str]) -> None:
    assert ids(*lines, status=1) == causes
    assert ids(*lines, status=1, outcome="died") == causes


def test_the_requests_that_failed_count_only_while_the_engine_runs() -> None:
    assert ids(STARTED, FULL, f"WARNING {NO_BLOCKS}") == ["disk_full"]
    assert ids(STARTED, FULL, outcome="stopped", status=0) == []


@pytest.mark.parametrize(
    ("lines", "phase"),
    [
        ((STARTING, FULL), "load"),
        ((STARTING, STARTED, FULL), "ready"),
        # the end is the phase of an engine that failed while it ended
        ((STARTING, STARTED, "INFO:     Shutting down", FULL), "stopping"),
        ((STARTING, OOM, "INFO:     Shutting down"), "load"),
        ((FULL,), "start"),
    ],
)
def test_the_phase_in_which_it_failed(lines: tuple[str, ...], phase: str) -> None:
    assert diagnose("\n".join(lines), exit_status=1).phase == phase


def test_an_ordered_end_is_the_phase_of_a_healthy_log() -> None:
    assert diagnose(f"{STARTING}\n{STARTED}\nINFO:     Shutting down\n").phase == "stopping"


@pytest.mark.parametrize("id", ["process_gone", "core_failed", "shard_failed", "startup_probe"])
def test_the_end_of_a_process_explains_less_than_the_signal_that_was_sent(id: str) -> None:
    line = next(text for cause, text in TEXTS if cause == id)
    assert ids(line, status=-15) == ["terminated"]
    assert ids(line, status=143, outcome="died") == ["terminated"]
    assert ids(line, status=1, outcome="stopped") == []
    # a consequence is left out where a cause is known
    assert ids(line, FULL, status=-15) == ["disk_full"]
    # a warning is not more
    assert ids(line, f"WARNING {FULL}", status=-15) == ["terminated"]


def test_a_port_that_is_in_use_explains_an_engine_that_got_stuck() -> None:
    port = "OSError: [Errno 98] Address already in use"
    assert ids(port, status=-9, outcome="stuck") == ["port_in_use"]
    assert ids(FULL, status=-9, outcome="stuck") == ["disk_full", "stuck"]


def test_a_signal_comes_before_what_explains_less() -> None:
    # of the same rank: the line is the evidence
    assert ids("Killed", status=-9) == ["killed"]
    (killed,) = diagnose("Killed", exit_status=-9).causes
    assert killed.evidence == ((1, "Killed"),)
    core = "RuntimeError: Engine process failed to start."
    assert ids(core, status=-9) == ["killed"]
    assert ids(core, FULL, status=-9) == ["disk_full"]
    assert ids(core, status=0, outcome="died") == ["core_failed"]
    assert ids(f"WARNING {FULL}", status=0, outcome="died") == ["quit", "disk_full"]


def test_an_exception_is_named_where_nothing_explains_more() -> None:
    trace = ("Traceback (most recent call last):", "ValueError: odd")
    core = "RuntimeError: Engine process failed to start."
    assert ids(*trace, status=1) == ["exception"]
    # what is known and certain comes before an unknown error, which came before it
    assert ids(*trace, FULL, status=1) == ["disk_full", "exception"]
    assert ids(FULL, *trace, status=1) == ["disk_full"]
    assert ids(*trace, core, status=1) == ["exception"]
    # an engine without a status, whose log says that it failed
    assert ids(*trace) == ["exception"]
    assert ids(*trace, status=-9) == ["killed", "exception"]
    assert ids(*trace, status=-15) == ["terminated"]
    assert ids(*trace, status=0, outcome="stopped") == []


def test_the_exception_of_an_engine_that_was_up_is_its_last_of_the_start_the_first() -> None:
    begin = "Traceback (most recent call last):"
    first, last, loose = "ValueError: first", "KeyError: last", "TypeError: loose"
    core = "RuntimeError: Engine process failed to start."

    def named(*lines: str) -> tuple[tuple[int, str], ...]:
        found = diagnose("\n".join(lines), exit_status=1, outcome="died")
        return found.causes[0].evidence

    assert named(begin, first, begin, last) == ((2, first),)
    assert named(STARTED, begin, first, begin, last) == ((5, last),)
    assert named(begin, first, STARTED, begin, last) == ((5, last),)
    # an error without a traceback is one, too
    assert named(loose, first, begin, last) == ((1, loose),)
    # what reports the end of another process names no error
    assert named(begin, core, begin, first) == ((4, first),)


SERVER = "INFO 08-13 09:01:00 [api_server.py:1971] vLLM API server version {}"
CLASS = "INFO 08-13 09:01:10 [model.py:544] Resolved architecture: {}"
PLUGIN = "INFO 08-13 09:00:55 [__init__.py:217] Platform plugin hpu is activated"
COMPILE = "[rank0]: RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure]."
LACKS = "ERROR 08-13 [core.py:9] AttributeError: 'HPUMLAImpl' object has no attribute 'x'"
SETUP = "gaudi-launch setup "
GPT_OSS = (
    "INFO 08-13 [utils.py:233] non-default args: {'enable_expert_parallel': True, 'seed': 1}",
    CLASS.format("GptOssForCausalLM"),
    "INFO 08-13 [core.py:58] Initializing a V1 LLM engine with config: quantization=mxfp4, dtype=x",
    "ERROR 08-13 [core.py:9] RuntimeError: The expanded size of the tensor (384) must match (2880)",
)


@pytest.mark.parametrize(
    ("lines", "notes", "setup"),
    [
        # a sentence for hybrid models on one release needs both in the log
        ((SERVER.format("0.24.0"), CLASS.format("MixtralForCausalLM"), COMPILE), [], []),
        ((PLUGIN, SERVER.format("0.24.0"), CLASS.format("Qwen3_5Model"), COMPILE), [], []),
        ((PLUGIN, SERVER.format("0.26.0"), CLASS.format("MixtralForCausalLM"), COMPILE), [], []),
        (
            (PLUGIN, SERVER.format("0.26.0"), CLASS.format("Qwen3_5Model"), COMPILE),
            ["known_problem"],
            [],
        ),
        # a fault of a release, by its class, type of weights and option
        ((PLUGIN, SERVER.format("0.19.0"), *GPT_OSS), ["known_problem"], []),
        ((PLUGIN, SERVER.format("0.21.0"), *GPT_OSS), [], []),
        ((PLUGIN, SERVER.format("0.19.0"), *GPT_OSS[1:]), [], []),
        # both versions of a pair, as far as the log has them
        ((LACKS,), ["note_pair_unknown"], [f"{SETUP}vllm-gaudi"]),
        (
            (SERVER.format("0.26.0"), LACKS),
            ["note_pair_release"],
            [f"{SETUP}vllm-gaudi@0.26.0"],
        ),
        (
            (SERVER.format("0.27.1.dev3"), "vllm_gaudi-0.26.0 is used", LACKS),
            ["note_pair"],
            [f"{SETUP}vllm-gaudi"],
        ),
        (("INFO detected platform hpu", LACKS), ["note_pair_unknown"], [f"{SETUP}vllm-fork"]),
        (("TimeoutError: RPC call to execute_model timed out.",), ["note_timeout_v1"], []),
        (("ERROR Engine iteration timed out. This should never happen",), ["note_timeout_v0"], []),
        ((OOM,), [], []),
        ((PLUGIN, PROMPT, OOM), ["note_eager", "note_reserve"], []),
        ((PROMPT, OOM), ["note_eager"], []),
    ],
)
def test_a_sentence_with_a_condition_needs_a_log_that_meets_it(
    lines: tuple[str, ...], notes: list[str], setup: list[str]
) -> None:
    cause = diagnose("\n".join(lines)).causes[0]
    assert [note.id.partition(".")[2] for note in cause.notes] == notes
    assert [each for each in cause.commands if each.startswith(SETUP)] == setup
    remedies = cause.to_json()["remedy"].split("\n")
    assert remedies == [each.render() for each in (cause.remedy, *cause.notes)]
