"""The vllm-gaudi plugin for upstream vLLM."""
