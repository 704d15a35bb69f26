"""Environments and images of engines, installed step by step."""
