"""Traces of runs, as records, and the judgement of a run from them."""
