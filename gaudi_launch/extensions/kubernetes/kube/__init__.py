"""Show, log and delete Kubernetes deployments."""
