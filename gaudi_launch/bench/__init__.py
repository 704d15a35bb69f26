"""Asking a running server: does it answer, how fast, faster than before? Client, workloads, figures, pictures."""
