"""Options of a job, and the rules of ``--kill``."""
