"""Helpers of several test modules: machines, stand-ins, data."""
