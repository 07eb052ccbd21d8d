"""``python -m bench MEASUREMENT [options]``: run one of those below."""

from __future__ import annotations

import importlib
import sys

from ftrma.host.errors import FtrmaError

try:
    from .common import USAGE_ERROR, UsageError
    from .launching import BenchError, end_on_signals
except FtrmaError as error:  # a source tree that is not built
    sys.exit(f"bench: error: {error}")

QUESTIONS = {
    "ft": "what protection costs a whole program (NAS FT)",
    "checkpoint": "what one checkpoint costs, beside copying, comparing and writing the same bytes",
    "micro": "what protection costs each one-sided call",
    "recovery": "how long until a program goes on after a SIGKILL",
    "dht": "what logging costs the key-value store",
    "nodes": "what one-sided calls over several nodes cost, beside the MPI library's own",
    "wire": "what an access to another node costs, by its agent",
    "graph": "what vertex programs cost beside scipy.sparse",
    "loading": "how long slots take to load a graph, beside pandas, NumPy and scipy",
    "lwcp": "what checkpoints and logs of vertex programs cost, light and heavy",
    "phoenix": "what Phoenix costs without a failure, and how many rounds more with one",
    "apgas": "what resilient finishes, calls and the store of apgas cost",
    "aic": "what snapshots of asynchronous computations cost, archive and save",
    "completion": "what matrix completion costs beside other libraries",
    "files": "what checkpoints in files cost, and how long until a job goes on from them",
    "encode": "how fast parity is computed, beside memcpy and ISA-L",
}


def usage() -> str:
    lines = [f"  {name:<12}{question}" for name, question in QUESTIONS.items()]
    head = "usage: python -m bench MEASUREMENT [options]   (-h after it shows its options)"
    return "\n".join([head, "", *lines])


def main(arguments: list[str]) -> int:
    """Run the measurement that is named first; the result is the exit status."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(usage())
        return 0
    if not arguments or arguments[0] not in QUESTIONS:
        named = f"no measurement {arguments[0]!r}" if arguments else "no measurement named"
        print(f"bench: error: {named}; choose from {', '.join(QUESTIONS)}", file=sys.stderr)
        return USAGE_ERROR
    end_on_signals()
    try:
        module = importlib.import_module(f".{arguments[0]}", __package__)
        status: int = module.main(arguments[1:])
    except UsageError as error:
        print(f"bench {arguments[0]}: error: {error}", file=sys.stderr)
        return USAGE_ERROR
    except (BenchError, FtrmaError) as error:
        print(f"bench {arguments[0]}: error: {error}", file=sys.stderr)
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
