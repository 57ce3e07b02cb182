"""Compiled loops: arrays and numbers in, in groups with names (`arguments`); arrays out.

Nothing here checks its input or knows our classes; the modules above do both. Kernels
release the interpreter lock, so callers run them on several threads over separate links
or users. They are compiled at the first call and cached on disk.
"""
