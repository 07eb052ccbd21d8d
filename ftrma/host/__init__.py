"""Files, locks and output on one host, shut against its other users."""
