"""What happened in a run, as records; and what they prove about it."""
