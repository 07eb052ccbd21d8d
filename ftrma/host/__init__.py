"""Files, locks and output on one host, protected against its other users."""
