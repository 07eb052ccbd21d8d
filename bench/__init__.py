"""Measurements: one module per question, run as ``python -m bench {ft,checkpoint,micro}``."""
