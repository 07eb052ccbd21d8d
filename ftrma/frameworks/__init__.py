"""Frameworks: libraries that recover programs in their own way, each in a folder of its own.

A framework uses the door `ftrma.framework` and nothing above it, and no other framework. What its
users import is a thin front beside this package: `ftrma.graph` has the names of
`ftrma.frameworks.graph`.
"""
