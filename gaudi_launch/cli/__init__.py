"""The framework of every command, and the views that several commands share.

``main`` has the table of commands, and loads a command's module when it runs.
"""
