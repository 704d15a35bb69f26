"""Checks of a machine, as records over Host and HostConfig."""
