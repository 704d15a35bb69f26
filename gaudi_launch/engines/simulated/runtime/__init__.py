"""Programs that run in the CPU engine's interpreter, under vLLM 0.32."""
