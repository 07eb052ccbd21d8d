"""The job as one process sees it: the control file, the roles in it, the way to the supervisor."""
