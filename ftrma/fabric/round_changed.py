"""Names the exception that cuts a round of repair short."""


class RoundChanged(Exception):
    """Another process failed during repair: start the round over."""
