"""The engines, installed or not."""
