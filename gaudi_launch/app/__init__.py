"""The use cases, one file each: records in, records out.

Nothing here reads a command line or prints. Events go to a `report.Reporter`; the commands and the
Python API call the same functions.
"""
