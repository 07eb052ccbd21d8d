"""Measurements: one module per question; ``python -m bench`` names them."""
