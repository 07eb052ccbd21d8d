"""Checkpoints and recovery: what is decided, and the steps that all take together."""
