"""Real jobs whose processes die at drawn instructions of ftrma's code in C, not at named places.

A library that is loaded before all others (`tests/c/trapkill.c`) lets breakpoints stand at
instructions of ``_native.so`` or ``_wire.so``. A survey (`survey`) finds which instructions each
role executes in a program's runs with and without deaths; `draw` draws a job and its kills among
them by a number; `judge` runs the job and compares its results, bit for bit, with those of a run
without failure. ``python -m instructions`` does so by the hour, in the folder `tests`.
"""
