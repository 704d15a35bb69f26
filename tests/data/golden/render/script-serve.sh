#!/usr/bin/env bash
# vllm-fork@1.21 serving /models/Qwen2-72B-Instruct on cards (module IDs) 0,1,2,3, at http://127.0.0.1:30001
# Made by gaudi-launch; it runs without it.
set -euo pipefail

export GLOO_SOCKET_IFNAME=ens8f0
export HABANA_VISIBLE_MODULES=0,1,2,3
export HCCL_SOCKET_IFNAME=ens8f0
export PT_HPU_ENABLE_LAZY_COLLECTIVES=true
export PT_HPU_LAZY_MODE=1
export PT_HPU_RECIPE_CACHE_CONFIG=/data/warmup/518dbd8b53481984,false,23168
export PT_HPU_WEIGHT_SHARING=0
export TOKENIZERS_PARALLELISM=true
export VLLM_DECODE_BLOCK_BUCKET_MAX=8448
export VLLM_DECODE_BLOCK_BUCKET_MIN=32
export VLLM_DECODE_BLOCK_BUCKET_STEP=384
export VLLM_DECODE_BS_BUCKET_MAX=128
export VLLM_DECODE_BS_BUCKET_MIN=1
export VLLM_DECODE_BS_BUCKET_STEP=64
export VLLM_DELAYED_SAMPLING=true
export VLLM_GRAPH_PROMPT_RATIO=0.8
export VLLM_GRAPH_RESERVED_MEM=0.2
export VLLM_HOST_IP=10.20.30.40
export VLLM_PROMPT_BS_BUCKET_MAX=1
export VLLM_PROMPT_BS_BUCKET_MIN=1
export VLLM_PROMPT_BS_BUCKET_STEP=1
export VLLM_PROMPT_SEQ_BUCKET_MAX=8192
export VLLM_PROMPT_SEQ_BUCKET_MIN=128
export VLLM_PROMPT_SEQ_BUCKET_STEP=128
export VLLM_PROMPT_USE_FUSEDSDPA=true
export VLLM_WORKER_MULTIPROC_METHOD=spawn
export VLLM_ZERO_PADDING=true
mkdir -p -- /data/warmup/518dbd8b53481984

engine=(
    /opt/vllm/bin/python3
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
if numactl -C 0-39,80-119 -p 0 true 2> /dev/null; then
    exec numactl -C 0-39,80-119 -p 0 "${engine[@]}" "$@"
fi
echo 'numactl is not here or cannot bind to the planned CPUs; the engine starts without binding' >&2
exec "${engine[@]}" "$@"
