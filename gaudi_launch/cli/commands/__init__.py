"""One module per command: parse options, call a use case, pass on the result.

A view shows it.
"""
