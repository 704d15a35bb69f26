"""The commands that every user needs, a file or a folder for each.

A folder has the options and the command (command.py), its use case (case.py) and its view (view.py).
"""
