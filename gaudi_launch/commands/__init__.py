"""The commands that every user needs, a file or a folder for each.

A folder has options and command (command.py), use case (case.py) and view (view.py).
"""
