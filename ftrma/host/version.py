"""The version of ftrma, which agents and caches compare with their own."""

VERSION = "0.1.0"
