"""The versioned, parity-protected memory of a process, and its codes."""
