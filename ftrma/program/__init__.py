"""The user's program in a process of the job: entered, left, and entered again."""
