"""Services and cards as Prometheus metrics."""
