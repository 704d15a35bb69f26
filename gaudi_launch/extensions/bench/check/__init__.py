"""Tests of a running server."""
