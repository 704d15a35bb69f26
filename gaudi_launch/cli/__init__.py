"""Commands: one file each. A command parses, calls one function and renders its result."""
