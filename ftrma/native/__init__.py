"""The C extension: loading it, checking the MPI library below it, calling it, its constants."""
