"""Code of the gateway's process, by the standard library.

No module of the launcher imports it.
"""
