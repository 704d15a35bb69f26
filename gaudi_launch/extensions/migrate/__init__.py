"""From a start script or an engine's command to a plan."""
