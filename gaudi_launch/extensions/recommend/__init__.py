"""Search of the configuration that serves a goal best."""
