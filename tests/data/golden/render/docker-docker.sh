#!/usr/bin/env bash
# vllm-fork@1.21 serving /models/Qwen2-72B-Instruct on cards (module IDs) 0,1,2,3, at http://127.0.0.1:30001
# Made by gaudi-launch; it runs without it.
set -euo pipefail

if ! docker image inspect gaudi-launch/vllm-fork:1.21-277a33cd9 > /dev/null 2>&1; then
    docker build --tag gaudi-launch/vllm-fork:1.21-277a33cd9 - << 'DOCKERFILE'
FROM vault.habana.ai/gaudi-docker/1.21.3/ubuntu22.04/habanalabs/pytorch-installer-2.6.0:latest
RUN ["mkdir", "-p", "/opt/gaudi-launch"]
RUN ["git", "init", "--quiet", "/opt/gaudi-launch/vllm-fork"]
RUN ["git", "-C", "/opt/gaudi-launch/vllm-fork", "fetch", "--tags", "https://github.com/HabanaAI/vllm-fork.git", "aice/v1.21.0"]
RUN ["git", "-C", "/opt/gaudi-launch/vllm-fork", "checkout", "--quiet", "--detach", "277a33cd9"]
RUN ["python3", "-m", "pip", "install", "--no-cache-dir", "--requirement", "/opt/gaudi-launch/vllm-fork/requirements-hpu.txt"]
RUN ["env", "VLLM_TARGET_DEVICE=hpu", "python3", "-m", "pip", "install", "--no-cache-dir", "--editable", "/opt/gaudi-launch/vllm-fork"]
RUN ["python3", "-m", "pip", "install", "--no-cache-dir", "--no-deps", "--force-reinstall", "git+https://github.com/HabanaAI/vllm-hpu-extension.git@8afd253"]
ENTRYPOINT ["python3", "-m", "vllm.entrypoints.openai.api_server"]
DOCKERFILE
fi
mkdir -p -- /data/warmup/518dbd8b53481984

words=(
    run
    --rm
    --init
    --name qwen
    --runtime=habana
    --cap-add=sys_nice
    --ipc=host
    --network=host
    -v /data/warmup/518dbd8b53481984:/data/warmup/518dbd8b53481984
    -v /models/Qwen2-72B-Instruct:/models/Qwen2-72B-Instruct:ro
    -e 'HABANA_VISIBLE_DEVICES=0,2,4,6'
    -e OMPI_MCA_btl_vader_single_copy_mechanism=none
    -e PT_HPU_WEIGHT_SHARING=0
    -e PT_HPU_LAZY_MODE=1
    -e VLLM_GRAPH_RESERVED_MEM=0.2
    -e VLLM_GRAPH_PROMPT_RATIO=0.8
    -e VLLM_DELAYED_SAMPLING=true
    -e VLLM_WORKER_MULTIPROC_METHOD=spawn
    -e TOKENIZERS_PARALLELISM=true
    -e PT_HPU_ENABLE_LAZY_COLLECTIVES=true
    -e VLLM_HOST_IP=10.20.30.40
    -e GLOO_SOCKET_IFNAME=ens8f0
    -e HCCL_SOCKET_IFNAME=ens8f0
    -e VLLM_PROMPT_BS_BUCKET_MIN=1
    -e VLLM_PROMPT_BS_BUCKET_STEP=1
    -e VLLM_PROMPT_BS_BUCKET_MAX=1
    -e VLLM_PROMPT_SEQ_BUCKET_MIN=128
    -e VLLM_PROMPT_SEQ_BUCKET_STEP=128
    -e VLLM_PROMPT_SEQ_BUCKET_MAX=8192
    -e VLLM_DECODE_BS_BUCKET_MIN=1
    -e VLLM_DECODE_BS_BUCKET_STEP=64
    -e VLLM_DECODE_BS_BUCKET_MAX=128
    -e VLLM_DECODE_BLOCK_BUCKET_MIN=32
    -e VLLM_DECODE_BLOCK_BUCKET_STEP=384
    -e VLLM_DECODE_BLOCK_BUCKET_MAX=8448
    -e 'PT_HPU_RECIPE_CACHE_CONFIG=/data/warmup/518dbd8b53481984,false,23168'
    -e VLLM_ZERO_PADDING=true
    -e VLLM_PROMPT_USE_FUSEDSDPA=true
    '--cpuset-cpus=0-39,80-119'
    --stop-timeout=30
    --ulimit=memlock=-1:-1
    --ulimit=nofile=65535:65535
    '--health-cmd=python3 -c '"'"'import sys, urllib.request as r; r.build_opener(r.ProxyHandler({})).open(sys.argv[1], timeout=5).close()'"'"' http://127.0.0.1:30001/health'
    --health-start-period=1800s
    --health-retries=3
    --health-interval=10s
    --health-timeout=10s
    --entrypoint python3
    gaudi-launch/vllm-fork:1.21-277a33cd9
    -m vllm.entrypoints.openai.api_server
    --host 127.0.0.1
    --port 30001
    --device hpu
    --dtype bfloat16
    --model /models/Qwen2-72B-Instruct
    --tensor-parallel-size 4
    --seed 0
    --block-size 128
    --max-num-seqs 128
    --max-num-batched-tokens 8192
    --max-model-len 8192
    --max-seq-len-to-capture 8192
    --disable-log-requests
    --use-padding-aware-scheduling
    --num-scheduler-steps 1
    --distributed_executor_backend mp
    --gpu-memory-utilization 0.9
    --max-num-prefill-seqs 1
)
exec docker "${words[@]}" "$@"
