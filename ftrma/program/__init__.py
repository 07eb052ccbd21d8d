"""The user's program in a process of the job: how it is run, left, and run again."""
