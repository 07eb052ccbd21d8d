"""The C extension: loading it, the MPI library under it, and its constants."""
