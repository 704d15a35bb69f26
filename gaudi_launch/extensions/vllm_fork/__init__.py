"""The vLLM fork for Gaudi: releases 1.21, 1.22 and the deepseek_r1 branch."""
