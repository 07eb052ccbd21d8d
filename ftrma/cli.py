"""The command line: ``ftrma run | demo | doctor | check | reliability | plan``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from . import __version__, settings
from .errors import CATASTROPHE, FtrmaError, NotRecoverable
from .reliability import command as reliability

RUN_OPTIONS = [
    ("-n", "N", "slots: ranks of the program"),
    ("--checksums", "M", "checksum ranks in all, equally many per group (default: one)"),
    (
        "--group-size",
        "K",
        "slots per group; a group survives as many losses at a time as it has checksum ranks "
        "(default: N / M)",
    ),
    ("--spares", "S", "processes that wait to replace dead ones (default: 1)"),
    ("--topology", "FILE", "TOML file: which nodes share switches, racks and so on"),
    (
        "--aware",
        "LEVEL",
        "let no element up to this level (nodes, or one of the topology file) hold more members of "
        "a group than it can lose (default: none)",
    ),
    (
        "--policy",
        "auto|causal|rollback",
        "after a failure: replay the dead slot and let the others go on, or roll all back where "
        "that is not exact (auto, the default) or end the job there (causal); or always roll back",
    ),
    ("--log-budget", "SIZE", "memory for the access logs of each slot, such as 64M (the default)"),
    ("--log", "all|puts", "log puts and gets, or puts alone (default: all)"),
    (
        "--demand",
        "bulk|stream",
        "when logs run short, keep a slot's last demand checkpoint until the next is complete "
        "(bulk, the default), or write over it, in half of the memory (stream)",
    ),
    ("--mtbf", "SECONDS", "mean time between failures, for Daly's interval (default: 3600)"),
    (
        "--interval",
        "SECONDS|daly|never",
        "time between checkpoints; 0: at every safepoint (default: daly)",
    ),
    ("--max-relaunch", "R", "how often the job may be launched again (default: 3)"),
    (
        "--kill",
        "SLOT@PLACE[:COUNT]",
        "let a slot (or c0: checksum rank 0, s0: spare 0) kill itself at a place; repeatable",
    ),
    (
        "--mpirun",
        "OPTIONS",
        'options for the launcher, such as "--host node1:4,node2:4 --map-by ppr:4:node"',
    ),
    (
        "--bind",
        "ADDRESS",
        "over several nodes: the address of this host at which ranks reach it (default: all)",
    ),
    ("--stats", "FILE", "write what happened as JSON"),
    (
        "--trace",
        "FILE",
        "write every event, for 'ftrma check' and for Chrome's or Perfetto's viewer",
    ),
]


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ftrma", description="MPI one-sided programs that survive the death of a process."
    )
    parser.add_argument("--version", action="version", version=f"ftrma {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    run = commands.add_parser(
        "run", help="run a script protected",
        description="Run a Python MPI script protected. Options can also be set in the environment"
        " (FTRMA_SPARES=2 for --spares 2); the command line wins.",
    )  # fmt: skip
    for flag, metavar, text in RUN_OPTIONS:
        dest = "slots" if flag == "-n" else flag[2:].replace("-", "_")
        action = "append" if flag == "--kill" else "store"
        run.add_argument(flag, dest=dest, metavar=metavar, action=action, help=text)
    run.add_argument("script", help="the program")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    demo = commands.add_parser("demo", help="kill a process of an FFT and watch it come back")
    demo.add_argument("-v", "--verbose", action="store_true", help="show the commands that run")
    commands.add_parser("doctor", help="check this machine")
    check = commands.add_parser("check", help="verify a run from its trace")
    check.add_argument("file", metavar="FILE", help="what ftrma run --trace FILE has written")
    reliability.add_parsers(commands)
    return parser


def options_of(arguments: argparse.Namespace) -> settings.Options:
    """Command line over environment over defaults."""
    options = settings.from_environment({k: v for k, v in os.environ.items() if k != "FTRMA_JOB"})
    for _, _, attribute, parse in settings.TABLE:
        text = getattr(arguments, attribute, None)
        if text is not None:
            setattr(options, attribute, parse(" ".join(text) if isinstance(text, list) else text))
    return options


def command_run(arguments: argparse.Namespace) -> int:
    from . import supervisor

    options = options_of(arguments)
    if not Path(arguments.script).is_file():
        raise ValueError(f"no script {arguments.script}: give the path of a Python file")
    stats_path = Path(arguments.stats) if arguments.stats else None
    for flag, name in (("--stats", arguments.stats), ("--trace", options.trace)):
        if name and Path(name).is_dir():
            raise ValueError(f"{flag} {name}: is a directory; name a file in it")
        if name and not Path(name).absolute().parent.is_dir():
            raise ValueError(f"{flag} {name}: there is no directory {Path(name).parent}")
    status, stats = supervisor.run(options, arguments.script, arguments.arguments)
    if stats_path:
        try:
            stats_path.write_text(json.dumps(stats, indent=1) + "\n")
        except OSError as error:
            sys.stderr.write(f"ftrma: warning: cannot write {stats_path}: {error.strerror}\n")
    return status


def command_check(arguments: argparse.Namespace) -> int:
    from . import tracecheck, tracefile

    trace = tracefile.read(arguments.file)
    if not len(trace.records):
        raise ValueError(
            f"{arguments.file}: nothing to verify: it holds no event of the program (over several "
            "nodes they are not recorded)"
        )
    report = tracecheck.check(trace)
    print("\n".join(report.lines(trace.began_ns)))
    return 1 if report.violation else 0


def main(argv: list[str] | None = None) -> Any:
    """Entry point of the ``ftrma`` command; a user's mistake is one line and status 2."""
    arguments = build_parser().parse_args(argv)
    try:
        if arguments.command == "run":
            status = command_run(arguments)
        elif arguments.command == "demo":
            from .demo import demo

            status = demo(verbose=arguments.verbose)
        elif arguments.command == "check":
            status = command_check(arguments)
        elif arguments.command in ("reliability", "plan"):
            status = arguments.run(arguments)
        else:
            from .doctor import doctor

            status = doctor()
    except ValueError as error:
        sys.stderr.write(f"ftrma: error: {error}\n")
        status = 2
    except FtrmaError as error:
        sys.stderr.write(f"ftrma: error: {error}\n")
        status = CATASTROPHE if isinstance(error, NotRecoverable) else 1
    sys.exit(status)
