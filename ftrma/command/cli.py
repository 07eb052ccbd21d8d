"""The command line: ``ftrma run | demo | doctor | check | clean | reliability | plan``, and the
commands of frameworks, such as ``ftrma graph``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
from functools import cache
from typing import Any

from .. import frameworks
from ..host import outfile, programwords, signals, timeouts
from ..host.errors import CATASTROPHE, FtrmaError, NotRecoverable
from ..host.jsonoutput import document
from ..host.outfile import tell
from ..host.version import VERSION
from ..reliability import command as reliability
from ..settings import configuration
from ..settings import options as settings
from ..settings.configuration import Configuration
from ..settings.options import Options
from . import apps, completion, halt, helping, report, spill, status
from .misuse import (
    Misuse,
    Parser,
    refuse_empty,
    refuse_unknown,
    restore_dashes,
    unknown_command,
    value_lacking,
)

RUN_USAGE = "ftrma run -n N [options] {script | -m module} [arguments ...]"


@cache
def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ftrma", description="MPI one-sided programs that survive the death of a process."
    )
    parser.add_argument("--version", action="version", version=f"ftrma {VERSION}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    run = commands.add_parser(
        "run", help="run a script protected",
        usage=RUN_USAGE,
        description="Run a Python MPI script protected. Options can also be set in the environment"
        " (FTRMA_SPARES=2 for --spares 2) and in a file ftrma.toml; the command line wins.",
    )
    add_run_options(run)
    run.add_argument("script", nargs="?", help="the program")
    run.add_argument(
        "-m", dest="module", metavar="MODULE", nargs=argparse.REMAINDER,
        help="instead of a script: run a module, as python -m does; its arguments follow",
    )
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    run.set_defaults(run=command_run, reads=(), writes=(), claims=False)
    for name, command in frameworks.commands():
        framework = commands.add_parser(name, help=command.HELP, usage=command.USAGE,
                                        description=command.DESCRIPTION)
        command.add_arguments(framework)
        add_run_options(framework)
        framework.set_defaults(run=command_framework, framework=command, module=None)
    demo = commands.add_parser("demo", help="kill processes of a job and watch it go on")
    demo.add_argument("name", metavar="NAME", nargs="?", choices=[*apps.DEMOS], default="fft",
                      help=f"which one: {', '.join(apps.DEMOS)} (fft)")
    demo.add_argument("--list", action="store_true", help="tell what each shows, and run none")
    demo.add_argument("-v", "--verbose", action="store_true", help="show the commands that run")
    demo.set_defaults(run=command_demo)
    doctor = commands.add_parser("doctor", help="check this machine, or the hosts of a job")
    doctor.add_argument("--mpirun", metavar="OPTIONS",
                        help="options of the launcher, which name the hosts that are checked, too")
    doctor.add_argument("--bind", metavar="WHERE",
                        help="listen there, as ftrma run --bind does")
    doctor.set_defaults(run=command_doctor)
    clean = commands.add_parser("clean", help="list what killed jobs have left in shared memory")
    clean.add_argument("--remove", action="store_true", help="remove it")
    clean.set_defaults(run=command_clean)
    halt.add_parser(commands)
    check = commands.add_parser("check", help="verify a run from its trace")
    check.add_argument("file", metavar="FILE", help="what ftrma run --trace FILE has written")
    check.set_defaults(run=command_check)
    spill.add_parser(commands)
    for printing in (doctor, clean, check):
        printing.add_argument("--json", action="store_true", help="print JSON")
    reliability.add_parsers(commands)
    status.add_parser(commands)
    report.add_parser(commands)
    helping.add_parser(commands, build_parser)
    completion.add_parser(commands)
    return parser


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a protected run."""
    for option in settings.OPTIONS:
        action: dict[str, Any] = {"action": "append" if option.repeatable else "store"}
        if not option.metavar:
            action = {"action": "store_const", "const": settings.YES}
        parser.add_argument(
            option.flag, dest=option.attribute, metavar=option.metavar, help=option.help, **action
        )
    parser.add_argument(
        "--resume", metavar="DIR|JOB",
        help="go on from the newest checkpoint in files, or with a job whose 'ftrma run' was killed"
    )
    parser.add_argument("--stats", metavar="FILE", help="write what happened as JSON")
    parser.add_argument(
        "--config", metavar="FILE|none",
        help="read options from this file in place of ./ftrma.toml and the user's own; none: from "
        "no file",
    )
    parser.add_argument("--show-config", action="store_true",
                        help="print all options and where their values come from, and run nothing")


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line.

    Raises:
        ValueError: the command line is wrong; the text names the wrong word.
    """
    parser = build_parser()
    completion.answer(parser)
    try:
        arguments, unknown = parser.parse_known_args(argv)
    except Misuse as error:
        stranger = re.match(r"argument command: invalid choice: (.*) \(choose from", str(error))
        if stranger:
            raise Misuse(unknown_command(parser, stranger[1]), error.usage) from None
        lacking = re.match(r"argument ([^ :/]+).*: expected one argument", str(error))
        if not lacking:
            raise
        raise Misuse(value_lacking(lacking[1], argv), error.usage) from None
    if unknown:
        refuse_unknown(parser, arguments.command, unknown)
    if arguments.command == "run":
        restore_dashes(arguments, argv)
    refuse_empty(arguments)
    return arguments


def configuration_of(arguments: argparse.Namespace) -> Configuration:
    """Return the options from the command line, the environment and files, and where they come
    from."""
    environ = {name: text for name, text in os.environ.items() if name != "FTRMA_JOB"}
    return configuration.configure(vars(arguments), environ, arguments.config)


def choose_timeouts() -> None:
    """Take the time-outs of a command that runs no job from the environment and files."""
    timeouts.choose(configuration.configure({}).options.timeout)


def show_configuration(arguments: argparse.Namespace) -> int:
    """Print the options of a run and where they come from, and run nothing."""
    if arguments.resume:
        from ..launch import resuming

        if resuming.is_job(arguments.resume):
            raise ValueError(f"--show-config: the job {arguments.resume} goes on with the options "
                             "that it was started with; leave one of them out")
    outfile.say("\n".join(configuration_of(arguments).lines()))
    return 0


def prepare(arguments: argparse.Namespace) -> settings.Options:
    """Return the options of a run, or refuse a mistake that can be known before it starts.

    Raises:
        ValueError: there is such a mistake; the text has the option or variable, the value and the
            remedy.
    """
    from ..host import listening
    from ..launch import slurm
    from ..launch.mpirun import on_one_node
    from ..native import loading, logs
    from ..settings import killrules

    found = configuration_of(arguments)
    options = found.options
    try:
        processes = options.check().processes
        words = slurm.words_in_allocation(settings.split_mpirun(options.mpirun), processes,
                                          oversubscribe=options.oversubscribe == "yes")
        options.mpirun = shlex.join(words)
        for_agents = killrules.for_several_nodes(options.kill)
        one_node = on_one_node(words)
        if for_agents and one_node:
            killrules.refuse_nodes(options.kill)
        if arguments.claims and options.policy == "causal":
            raise ValueError(f"--policy causal: ftrma {arguments.command} recovers the job "
                             "itself, and this policy wants replay alone; leave it out")
        if options.bind != listening.Bind():
            listening.check(options.bind, "--bind")
        outputs = check_outputs(arguments, options)
        if options.log_budget is not None:
            loading.load()
            logs.check_budget(options.log_budget)
    except ValueError as error:
        raise ValueError(f"{error}{found.where(str(error))}") from None
    for i, (option, name, path) in enumerate(outputs):
        for other, _, theirs in outputs[:i]:
            if path and path == theirs:
                raise ValueError(f"{option} {name}: {other} writes to it too; name another file")
    try:
        directory = os.getcwd()
    except OSError:
        raise ValueError("the current directory is gone; change to one that is there") from None
    programwords.check(words_of(arguments), directory)
    return options


def check_outputs(arguments: argparse.Namespace,
                  options: settings.Options) -> list[tuple[str, str, str]]:
    """Refuse outputs that cannot be written, or that are inputs.

    Returns:
        For each output the option, the name, and the path of its regular file, or "".
    """
    named = (("--trace", options.trace), ("--stats", arguments.stats),
             ("--log-file", options.log_file), ("--metrics", options.metrics), *arguments.writes)
    read = (arguments.script, *arguments.reads, options.topology)
    found = [(option, name, outfile.check(option, name, filter(None, read)))
             for option, name in named if name]
    if ("--metrics", options.metrics, "") in found:
        raise ValueError(f"--metrics {options.metrics}: is no regular file, and collectors read "
                         "files; name one, such as ftrma.prom")
    return found


def words_of(arguments: argparse.Namespace) -> list[str]:
    """Return the words of the program, as `script.UserProgram` takes them.

    Raises:
        ValueError: there is no program.
    """
    if arguments.module is None:
        if arguments.script is not None:
            return [arguments.script, *arguments.arguments]
        raise Misuse(
            "no script: give the path of a Python file, or -m and a module; see ftrma run -h",
            f"usage: {RUN_USAGE}\n",
        )
    if arguments.script is not None or not arguments.module or not arguments.module[0]:
        raise Misuse("-m: a module is expected, and then its arguments", f"usage: {RUN_USAGE}\n")
    return [programwords.MODULE, *arguments.module]


def refuse_changes(arguments: argparse.Namespace) -> None:
    """Refuse options that cannot be changed when a killed job is resumed.

    Raises:
        ValueError: there are such options; the text names the first one.
    """
    found = [f"the script {arguments.script}"] if arguments.script else []
    found += ["-m"] if arguments.module else []
    found += [
        option.flag for option in settings.OPTIONS
        if getattr(arguments, option.attribute, None) is not None
        and not option.anew
    ]
    if found:
        raise ValueError(
            f"--resume {arguments.resume}: the job goes on as it was started; leave out {found[0]}"
        )


def word_of(arguments: argparse.Namespace, option: settings.Option) -> str | None:
    """Return the text that the command line has for an option; None if it has none."""
    found = getattr(arguments, option.attribute, None)
    return " ".join(found) if isinstance(found, list) else found


def resume(arguments: argparse.Namespace) -> int:
    """Resume a job as it was started; its output files and its end can be changed."""
    from ..launch import supervisor

    refuse_changes(arguments)
    for option in ("stats", "trace", "log_file"):
        if name := getattr(arguments, option):
            outfile.check(f"--{option.replace('_', '-')}", name)
            setattr(arguments, option, os.path.abspath(name))  # the job goes on in its directory
    anew = {option.attribute: option.parse(option.flag, text) for option in settings.OPTIONS
            if option.anew and (text := word_of(arguments, option)) is not None}
    timeouts.choose(anew.get("timeout", {}))
    try:
        status, stats, file = supervisor.resume(arguments.resume, anew)
    except (FtrmaError, OSError) as error:
        tell(f"error: {error}")
        return CATASTROPHE
    write_stats(arguments.stats or file, stats)
    return status


def write_stats(file: str, stats: dict[str, Any]) -> None:
    if file and stats:
        try:
            outfile.write(file, [json.dumps(stats, indent=1) + "\n"])
        except OSError as error:
            tell(f"warning: cannot write {file}: {outfile.why(error)}")


def command_run(arguments: argparse.Namespace) -> int:
    if arguments.show_config:
        return show_configuration(arguments)
    signals.keep_warnings()
    from ..launch import narration, resuming

    if arguments.resume and resuming.is_job(arguments.resume):
        return resume(arguments)
    options = configuration_of(arguments).options
    if options.log_file:
        check_outputs(arguments, Options(log_file=options.log_file, topology=options.topology))
    with narration.speaking(options):
        return run_job(arguments, options)


def run_job(arguments: argparse.Namespace, options: Options) -> int:
    """Run a job to its end, from files or from its beginning.

    Args:
        options: of the run, not checked against each other.
    """
    from ..launch import resuming, supervisor

    files = spill.claim(arguments, options)
    if files.source and resuming.has_ended(files.source):
        tell(f"the job in {arguments.resume} has ended with status 0; nothing is left to do")
        return 0
    words = words_of(arguments)
    options = prepare(arguments)
    spill.check(files, words, options)
    strangers = settings.strangers()
    if strangers:
        tell(f"warning: in the environment, but no option: {', '.join(strangers)}")
    status = None
    try:
        status, stats = supervisor.run(options, words, arguments.stats or "", files)
    except (FtrmaError, ValueError, OSError) as error:  # no mistakes of the command line now
        tell(f"error: {error}")
        return CATASTROPHE
    finally:
        files.end(status)
    write_stats(arguments.stats, stats)
    return status


def command_framework(arguments: argparse.Namespace) -> int:
    """Run the packaged program that a framework's command asks for, as ``ftrma run`` does."""
    if arguments.show_config:
        return show_configuration(arguments)
    asked = arguments.framework.invocation(arguments)
    app = apps.find_app(*asked.apps)
    if not app:
        raise ValueError(f"this installation lacks {' or '.join(asked.apps)} in "
                         f"{apps.HERE / 'apps'}; install it again")
    arguments.policy = arguments.policy or asked.policy or None
    arguments.reads, arguments.writes, arguments.claims = asked.reads, asked.writes, asked.claims
    arguments.script, arguments.arguments = str(app), asked.words
    return command_run(arguments)


def command_clean(arguments: argparse.Namespace) -> int:
    from ..launch import deadjobs

    jobs = deadjobs.clean(remove=arguments.remove)
    if arguments.json:
        outfile.say(document("clean", removed=arguments.remove, jobs=[job.plain() for job in jobs]))
    else:
        outfile.say("\n".join(deadjobs.table(jobs, removed=arguments.remove)))
    return 0


def command_demo(arguments: argparse.Namespace) -> int:
    if arguments.list:
        outfile.say("\n".join(f"{name:<7} {what}" for name, what in apps.DEMOS.items()))
        return 0
    from .demos import demonstrate

    choose_timeouts()
    return demonstrate(arguments.name, arguments.verbose)


def command_doctor(arguments: argparse.Namespace) -> int:
    from .doctor import doctor

    choose_timeouts()
    return doctor(as_json=arguments.json, mpirun=arguments.mpirun or "",
                  bind=arguments.bind or "")


def command_check(arguments: argparse.Namespace) -> int:
    from ..trace import check, records

    trace = records.read(arguments.file)
    if not len(trace.records):
        raise ValueError(
            f"{arguments.file}: nothing to verify: it holds no event of the program (over several "
            "nodes they are not recorded)"
        )
    report = check.check(trace)
    if arguments.json:
        outfile.say(document("check", file=arguments.file, **report.plain(trace.began_ns)))
    else:
        outfile.say("\n".join(report.lines(trace.began_ns)))
    return 1 if report.violation else 0


def main(argv: list[str] | None = None) -> Any:
    """Entry point of the ``ftrma`` command; a user's mistake is one line and status 2."""
    outfile.open_terminal()
    signals.heed_ending()
    try:
        arguments = parse(sys.argv[1:] if argv is None else argv)
        status = int(arguments.run(arguments))
    except SystemExit as end:  # after -h or --version
        status = int(end.code or 0)
    except BrokenPipeError:  # the reader of the output has closed it
        status = 0
    except KeyboardInterrupt:
        tell("interrupted")
        status = 130
    except signals.Signalled as asked:
        status = 128 + int(asked.args[0])
    except ValueError as error:
        tell(f"error: {error}", getattr(error, "usage", ""))
        status = 2
    except FtrmaError as error:
        tell(f"error: {error}")
        status = CATASTROPHE if isinstance(error, NotRecoverable) else 1
    except OSError as error:
        tell(f"error: {error.filename or ''}{': ' * bool(error.filename)}{error.strerror}")
        status = 1
    sys.exit(outfile.close_terminal(status))
