"""Kubernetes objects of one model, one module per kind."""
