"""Resilient X10 in Python: places, tasks and finishes; a program is told of deaths.

This file imports nothing, since the command line reads it. `ftrma.apgas` imports the modules.
"""
