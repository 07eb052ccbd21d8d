"""From ``ftrma run`` to the processes of a job, and to the next launch after one is lost."""
