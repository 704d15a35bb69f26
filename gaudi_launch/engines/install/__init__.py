"""Environments and images of engines, made step by step."""
