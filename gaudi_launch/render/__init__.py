"""One file a target: the same plan as a script, a container, a unit or a manifest."""
