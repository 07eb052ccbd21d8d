"""Resilient X10 in Python: places, tasks and finishes; a program is told of deaths.

The front `ftrma.apgas` imports the modules, not this package, since the command line reads it.
"""
