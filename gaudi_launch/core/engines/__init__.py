"""The engines: a package or file per engine turns a plan into a command."""
