"""gaudi-launch: one command from weights on disk to an answering LLM server on Intel Gaudi."""

__version__ = "0.1.0"
