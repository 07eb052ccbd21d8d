"""Names the exception that cuts a round of repair short."""


class RoundChanged(Exception):
    """Another process failed during a repair, so the next round begins."""
