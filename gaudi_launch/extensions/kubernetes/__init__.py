"""Kubernetes: objects, charts, and the cluster read through kubectl."""
