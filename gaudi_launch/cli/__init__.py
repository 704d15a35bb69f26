"""The command line, and the only package that prints.

``commands/<verb>.py`` reads options, calls one use case of `gaudi_launch.app` and passes its result
to ``views/<verb>.py``, which has the tables and sentences for people and the JSON for programs.
Commands import no other command, and views import no command. ``main`` loads a command's module
when it runs.
"""
