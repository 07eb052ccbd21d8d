"""The job as one process sees it: the control file, its roles, the link to the supervisor."""
