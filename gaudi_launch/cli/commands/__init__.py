"""One module per command: parse the options, call one use case, hand the result to a view."""
