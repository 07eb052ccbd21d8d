"""Nodes, racks and other elements that fail as a whole; the seating of roles on them."""
