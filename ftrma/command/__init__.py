"""The command line: ``ftrma run | demo | doctor | check | clean | reliability | plan``."""
