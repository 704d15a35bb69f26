"""Programs that run inside pods, in images without this package.

Each is one file that uses the standard library only.
"""
