"""The life of a started engine: supervise, follow, ready, diagnose."""
