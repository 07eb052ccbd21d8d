"""Nodes, racks and what fails together; which process takes which role."""
