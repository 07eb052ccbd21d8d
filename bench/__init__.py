"""Measurements: one module per question, run as ``python -m bench {ft,dht,checkpoint,micro,recovery,encode}``."""
