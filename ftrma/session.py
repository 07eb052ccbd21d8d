"""One protected program: wires the layers, runs the user's code, re-enters it after a rollback.

Every process of a job runs `main`. Slots run the user's script; checksum ranks and spares serve
until the job ends or they come to a slot. After a failure everybody meets in `recovery.repair`, and
the slots run the script again from its top.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import io
import os
import runpy
import secrets
import shutil
import socket
import sys
import time
import traceback
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _mpi, recovery, settings
from .checkpoint import Policy, Server, due_here, take
from .errors import FtrmaError, Rollback
from .recovery import Ended, new_vault, rebuild_lost
from .state import State
from .topology import Layout
from .vault import Vault
from .world import SLOT, RoundChanged, World, check, read_events

current: Session | None = None


def _keep_error(_kind: object, error: BaseException, _traceback: object) -> None:
    """An error in a call from C: the MPI call that led there raises it."""
    _mpi.pending_error = error


@dataclass(frozen=True)
class FailureEvent:
    """What `on_failure` callbacks are told.

    Attributes:
        slots: that were lost.
        kind: "rollback".
        version: of the checkpoint that the program goes on from; 0 is its start.
        seconds: from noticing the death to having everything restored.
    """

    slots: tuple[int, ...]
    kind: str
    version: int
    seconds: float


class Session:
    """A process's part in a protected program."""

    def __init__(self, world: World, options: settings.Options) -> None:
        self.world = world
        self.options = options
        self.vault: Vault | None = None
        self.policy = Policy(options.interval, options.mtbf)
        self.states: dict[str, State] = {}
        self.callbacks: list[Callable[[FailureEvent], object]] = []
        self.record: dict[str, Any] | None = None  # of the checkpoint being gone back to
        self.ordinal = 0
        self.restoring = False
        self.slot = -1
        self.checkpoints = 0
        self.unprotected: set[str] = set()
        self.imported = set(sys.modules)
        self.published = False
        native = world.native
        ffi, lib = native.ffi, native.lib
        # Kept as long as C may call them.
        self.fill = ffi.callback("ftrma_fill_function", self._fill, error=-1, onerror=_keep_error)
        self.warn = ffi.callback("ftrma_warn_function", self._warn, onerror=_keep_error)
        lib.ftrma_set_fill(self.fill)
        lib.ftrma_set_warn(self.warn)

    # -- what the program calls ---------------------------------------------------------------

    def protect(self, name: str, fields: dict[str, Any]) -> State:
        """See `ftrma.protect`."""
        if name in self.states:
            raise ValueError(f"protect({name!r}): this name is declared already; use another")
        state = State(name, fields)
        self._same_everywhere(name)
        self.states[name] = state
        if self.restoring and self.record:
            self._restore_windows()
            saved = self.record["states"].get(name)
            if saved is None:
                raise FtrmaError(
                    f"protect({name!r}): the checkpoint has no such state; it declares "
                    f"{', '.join(map(repr, self.record['states'])) or 'nothing'}. The program must "
                    "declare the same names each time it runs"
                )
            assert self.vault
            state._load(saved, self.vault.copy_out)
        self.world.barrier()
        return state

    def safepoint(self) -> None:
        """See `ftrma.safepoint`."""
        world = self.world
        world.visit("safepoint")
        world.unwind_if_alarmed()
        self.ordinal += 1
        self.restoring = False
        if due_here(world, self.policy, self.slot, self.ordinal, self._size_bytes):
            self._checkpoint()

    def stats(self) -> dict[str, Any]:
        """See `ftrma.stats`."""
        self.world.unwind_if_alarmed()
        events = read_events(self.world.directory)
        return {
            "slot": self.slot,
            "slots": self.world.ctl.nslots,
            "version": self.world.committed,
            "checkpoints": sum(e["event"] == "checkpoint" for e in events),
            "failures": sum(e["event"] == "failure" for e in events),
            "recoveries": sum(e["event"] == "recovery" for e in events),
            "protected_bytes": self._size_bytes(),
            "unprotected": sorted(self.unprotected),
            "windows": [self._counters(i, w) for i, w in enumerate(self._windows())],
        }

    # -- checkpoints --------------------------------------------------------------------------

    def _windows(self) -> list[Any]:
        found: list[Any] = []
        info = self.world.ffi.new("struct ftrma_window_info *")
        while self.world.lib.ftrma_window_at(len(found), info) == 0:
            found.append(info)
            info = self.world.ffi.new("struct ftrma_window_info *")
        return found

    def _counters(self, index: int, window: Any) -> dict[str, Any]:
        ec, sc = self.world.ffi.new("uint64_t *"), self.world.ffi.new("uint64_t *")
        pairs: list[tuple[int, int]] = []
        while self.world.lib.ftrma_window_counters(index, len(pairs), ec, sc) == 0:
            pairs.append((ec[0], sc[0]))
        return {
            "gnc": window.gnc, "gc": window.gc,
            "ec": [e for e, _ in pairs], "sc": [s for _, s in pairs],
        }  # fmt: skip

    def _size_bytes(self) -> int:
        arrays = sum(
            getattr(getattr(s, f), "nbytes", 64) for s in self.states.values() for f in s._fields
        )
        return int(arrays + sum(w.size_bytes for w in self._windows()))

    def _checkpoint(self) -> None:
        assert self.vault
        ffi = self.world.ffi
        regions: list[tuple[Any, int, int]] = []
        record: dict[str, Any] = {"states": {}, "windows": {}, "ordinal": self.ordinal}
        for i, window in enumerate(self._windows()):
            address = int(ffi.cast("uintptr_t", window.base))
            record["windows"][window.ordinal] = (window.size_bytes, self._counters(i, window))
            if window.size_bytes:
                regions.append((("window", window.ordinal), address, window.size_bytes))
        for name, state in self.states.items():
            arrays, record["states"][name] = state._save()
            regions += [(key, a.ctypes.data, a.nbytes) for key, a in arrays.items()]
        held_s = take(self.world, self.vault, regions, record)
        self.checkpoints += 1
        if self.checkpoints > 1:  # the first one also takes the memory, which is never paid again
            self.policy.delta_s = held_s

    # -- going back ---------------------------------------------------------------------------

    def _same_everywhere(self, name: str) -> None:
        """Every slot declares the same names in the same order, or the program is told."""
        world = self.world
        mine = zlib.crc32(name.encode(), world.me.protect_hash) + (len(self.states) << 32)
        world.put("protect_hash", mine)
        world.barrier()
        for s in range(world.ctl.nslots):
            theirs = world.ctl.proc[world.roles.slot_proc[s]].protect_hash
            if theirs != mine:
                raise FtrmaError(
                    f"protect({name!r}): slot {s} declares another name or in another order than "
                    f"slot {self.slot}. Declare the same names in the same order on every slot"
                )
        world.barrier()

    def _restore_windows(self) -> None:
        """Put the windows back once more, over what the program has initialized meanwhile."""
        for window in self._windows():
            address = int(self.world.ffi.cast("uintptr_t", window.base))
            self._restore(window.ordinal, address, window.size_bytes)

    def _restore(self, ordinal: int, address: int, size_bytes: int) -> bool:
        """Put one window back; False if the checkpoint does not know it."""
        if not self.record or ordinal not in self.record["windows"]:
            return False
        saved, _ = self.record["windows"][ordinal]
        if saved != size_bytes:
            raise FtrmaError(
                f"window number {ordinal} of slot {self.slot} has {size_bytes} bytes now and had "
                f"{saved} in the checkpoint. The program must make the same windows in the same "
                "order each time it runs"
            )
        assert self.vault
        if size_bytes:
            self.vault.copy_out(("window", ordinal), address, size_bytes)
        return True

    def _fill(self, ordinal: int, allocated: int, base: Any, size_bytes: int) -> int:
        """A window's part is there again: restore it, or make it the zeros that it began with."""
        if self.slot == 0 and not self.published:
            self.published = True
            publish_modules(self.world, sys.argv[0], self.imported)
        if self.world.ctl.entry == 1 and not self.restoring:
            return 0
        address = int(self.world.ffi.cast("uintptr_t", base))
        if self.restoring and self._restore(ordinal, address, size_bytes):
            return 0
        if allocated:
            self.world.lib.ftrma_clear(base, size_bytes)
        return 0

    def _warn(self, call: Any) -> None:
        name = self.world.ffi.string(call).decode()
        if name not in self.unprotected and self.slot == 0:
            self.world.tell(
                f"warning: a window from {name} is not protected; after a failure it comes back "
                "empty. Use Win.Allocate or Win.Create to have it restored"
            )
        self.unprotected.add(name)

    def enter(self) -> None:
        """Get ready to run the program from its top."""
        world = self.world
        self.slot = world.role()[1]
        self.states, self.ordinal = {}, 0
        self.record = None
        world.lib.ftrma_windows_rewind()
        self.restoring = world.ctl.entry > 1 or bool(world.ctl.resume)
        if world.committed:
            assert self.vault
            self._scrub()
            self.record = self.vault.read_record()
        self.policy.last = time.monotonic()

    def _scrub(self) -> None:
        """Check the own vault against the checksums that lie with the parity."""
        world = self.world
        group = world.roles.slot_group[self.slot]
        members = world.members(group)
        vaults = recovery.Vaults(world, group)
        fixed = world.lib.ftrma_scrub(
            vaults.parity, vaults.members, vaults.count, members.index(self.slot), 0, 2**62
        )
        if fixed < 0:
            raise FtrmaError(
                f"block {-1 - fixed} of slot {self.slot} does not match its checksum and cannot be "
                f"rebuilt; checkpoint version {world.committed} is gone, start the program again"
            )
        if fixed:
            world.tell(f"slot {self.slot}: {fixed} corrupt blocks found and rebuilt from parity")
            world.emit("scrub", slot=self.slot, blocks=int(fixed))


# ---- starting -------------------------------------------------------------------------------


def take_terminal(directory: Path, slot: int) -> None:
    """Get the user's stdin, stdout and stderr from the supervisor, past the launcher's pipes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect(str(directory / "terminal"))
        link.sendall(b"s" if slot == 0 else b"-")
        _, fds, _, _ = socket.recv_fds(link, 1, 3)
    for fd, target in zip(fds, (0, 1, 2), strict=True):
        os.dup2(fd, target)
        os.close(fd)
    # Python chose its buffering for the launcher's terminal; choose again for the user's.
    if isinstance(sys.stdout, io.TextIOWrapper) and "PYTHONUNBUFFERED" not in os.environ:
        sys.stdout.reconfigure(line_buffering=os.isatty(1))


def join(native: Any, options: settings.Options) -> World:
    """Find the job's directory, or make one where no supervisor has, and join."""
    lib, ffi = native.lib, native.ffi
    rank, size, on_node = ffi.new("int *"), ffi.new("int *"), ffi.new("int *")
    if lib.ftrma_mpi_world(rank, size, on_node):
        raise FtrmaError("the MPI library cannot tell which processes share a node")
    if on_node[0] != size[0]:
        raise FtrmaError(
            f"the {size[0]} processes run on several nodes ({on_node[0]} of them on this one); "
            "this version protects jobs on one node only. Ask the launcher for one node"
        )
    name = ffi.new("char[]", 256)
    if rank[0] == 0:
        path = options.job or str(make_directory(native, options.layout_for(size[0])))
        ffi.memmove(name, path.encode() + b"\0", len(path) + 1)
    lib.ftrma_mpi_bcast(name, 256)
    world = World(native, Path(ffi.string(name).decode()), rank[0])
    if world.ctl.nprocs != size[0]:
        raise FtrmaError(
            f"{size[0]} processes were started and {world.ctl.nprocs} are needed: "
            f"{world.ctl.nslots} slots, {world.ctl.ngroups} checksum ranks and the spares. Start "
            "that many, or change -n, --checksums and --spares"
        )
    return world


def capacity_blocks() -> int:
    """Blocks of a vault: as much as the machine has memory; the file is sparse."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4096


def make_directory(native: Any, layout: Layout, base: str = "/dev/shm") -> Path:
    """Make a job's directory with its control file."""
    directory = Path(base) / f"ftrma-{os.getuid()}-{secrets.token_hex(4)}"
    try:
        directory.mkdir(mode=0o700)
        make_control(native, directory, layout)
    except (OSError, FtrmaError) as error:
        raise FtrmaError(
            f"no shared memory for the job ({error}): make room in {base} and see that it is "
            "writable"
        ) from error
    return directory


def make_control(native: Any, directory: Path, layout: Layout) -> Any:
    pointer = native.ffi.new("struct ftrma_ctl **")
    check(
        native.lib.ftrma_ctl_create(
            os.fsencode(directory / "control"), layout.processes, layout.slots, layout.checksums,
            layout.group_size, capacity_blocks(), pointer,
        ),
        f"making {directory}/control",
    )  # fmt: skip
    return pointer[0]


def first_vault(world: World) -> Vault | None:
    """The vault that this process's role starts with: empty, or left by the launch before."""
    role, index = world.role()
    if role not in (SLOT, 2):
        return None
    at = index if role == SLOT else world.ctl.nslots + index
    version = world.committed
    if world.ctl.resume and version and not world.ctl.lost[at]:
        vault = Vault(
            world.native, world.vault_path(world.proc), world.ctl.capacity_blocks,
            world.ctl.group_size, create=False,
        )  # fmt: skip
        if settled(world, vault):
            for word in ("staged", "summed", "folded"):
                world.put(word, version)
            world.put("ready", 1)
            return vault
        vault.close()
    vault = new_vault(world)
    world.put("ready", 0 if version else 1)
    return vault


def settled(world: World, vault: Vault) -> bool:
    """Bring a vault of an ended launch to the committed version; False if it must be rebuilt.

    Its process can have been killed in the middle of a step. What a slot has staged is undone; the
    block that was being written then shows by its checksum. A parity that was being folded is
    computed anew, unless it is needed itself for a lost slot.
    """
    role, group = world.role()
    version = world.committed
    if role == SLOT:
        world.lib.ftrma_stage_undo(vault.c, version)
    elif world.lib.ftrma_parity_version(vault.c) == version:
        world.lib.ftrma_parity_drop(vault.c)
    elif any(world.ctl.lost[s] for s in world.members(group)):
        world.lib.ftrma_parity_fold(vault.c, version)
    else:
        return False
    return True


def start(world: World) -> Vault | None:
    """Everything between joining and running: prepare communicators, restore vaults, meet.

    A failure on the way raises the alarm; what is left to do then is done in repair.
    """
    lib = world.lib
    vault = first_vault(world)
    check(-lib.ftrma_comm_prepare(), "preparing communicators")  # collective: all have joined
    check(lib.ftrma_watch(), "starting the watching thread")
    with contextlib.suppress(RoundChanged):
        world.meet(0, 1, planned=False)
        met_ns = lib.ftrma_now_ns()
        if not world.me.ready and vault is not None:
            rebuild_lost(world, vault)
        world.meet(0, 2, planned=False)
        restored_ns = lib.ftrma_now_ns()
        if lib.ftrma_comm_build(0) not in (0, lib.FTRMA_ALARM):
            raise FtrmaError("the MPI library cannot build the communicator of the slots")
        world.meet(0, 3, planned=False)
        if world.proc == 0:
            world.store("start_ns", lib.ftrma_now_ns())
            if world.ctl.resume:
                tell_relaunched(world, met_ns, restored_ns)
    return vault


def tell_relaunched(world: World, met_ns: int, restored_ns: int) -> None:
    """Complete the story of a relaunch: the supervisor wrote why, here is how long it took."""
    cause = [e for e in read_events(world.directory) if e["event"] == "relaunch"][-1]
    now_ns, death_ns = world.lib.ftrma_now_ns(), int(world.ctl.death_ns)
    detect = cause["noticed_ns"] - death_ns
    restore = restored_ns - met_ns
    phases = {
        "detect": detect / 1e9,
        "repair": (now_ns - death_ns - detect - restore) / 1e9,
        "restore": restore / 1e9,
        "replay": 0.0,
    }
    world.emit(
        "recovery", kind="relaunch", slots=cause["slots"], version=cause["version"],
        seconds=(now_ns - death_ns) / 1e9, phases=phases, reason=cause["reason"],
        began_s=death_ns / 1e9,
    )  # fmt: skip


# ---- running --------------------------------------------------------------------------------


class Runner:
    """Runs the script in this process, as often as it takes."""

    def __init__(self, session: Session, script: str, arguments: list[str]) -> None:
        self.session, self.world = session, session.world
        self.script, self.arguments = script, arguments
        self.seen_modules = 0

    def run(self) -> int:
        """Run to the end of the job; returns the exit status of this process."""
        world, session = self.world, self.session
        while True:
            try:
                if world.role()[0] == SLOT:
                    world.unwind_if_alarmed()
                    self.run_program()
                    return int(world.ctl.exit_status)
                else:
                    server = Server(world, session.vault, self.import_ahead)
                    again = server.serve()
                    session.vault = server.vault
                    if not again:
                        return 0
            except Rollback:
                pass
            session.vault, story = recovery.repair(world, session.vault)
            self.after_repair(story)

    def after_repair(self, story: dict[str, Any]) -> None:
        session, world = self.session, self.world
        plans = [e for e in read_events(world.directory) if e["event"] == "plan"]
        plan = plans[-1]
        if story["leader"]:
            phases, seconds = story["phases"], story["seconds"]
            world.emit(
                "recovery", kind="rollback", slots=plan["slots"], version=story["version"],
                seconds=seconds, phases=phases, reason="", began_s=world.ctl.death_ns / 1e9,
            )  # fmt: skip
            world.tell(recovery_line(plan["slots"], story, len(world.spares())))
        event = FailureEvent(tuple(plan["slots"]), "rollback", story["version"], story["seconds"])
        callbacks, session.callbacks = session.callbacks, []
        for callback in callbacks:
            callback(event)

    def run_program(self) -> None:
        """Run the script once, to the end of the whole program."""
        world, session = self.world, self.session
        self.forget_user_modules()
        session.enter()
        if world.ctl.entry == 1 and not world.ctl.resume:
            world.visit("start")
        else:
            world.visit("reentry")
        status = 0
        sys.argv = [self.script, *self.arguments]
        try:
            runpy.run_path(self.script, run_name="__main__")
        except SystemExit as ending:
            status = exit_status(ending)
        except Rollback:
            raise
        except BaseException:
            # A failure elsewhere can show as any error; only one without a failure is the user's.
            world.unwind_if_alarmed()
            self.report_error()
            status = 1
        world.unwind_if_alarmed()
        if status:
            self.end_with(status)
        world.visit("end")
        world.put("finished", world.ctl.entry)
        world.barrier()
        world.ctl.ending = 1
        world.lib.ftrma_ring()

    def report_error(self) -> None:
        """Print the traceback of the program's own error, once in the job."""
        if claim_error(self.world):
            kind, error, tb = sys.exc_info()
            while tb and (tb.tb_frame.f_code.co_filename == __file__
                          or "runpy" in tb.tb_frame.f_code.co_filename):  # fmt: skip
                tb = tb.tb_next
            if isinstance(error, FtrmaError):
                at = traceback.extract_tb(tb)
                where = next((f for f in reversed(at) if f.filename == self.script), None)
                line = f" ({self.script}, line {where.lineno})" if where else ""
                self.world.tell(f"error: {error}{line}")
            else:
                traceback.print_exception(kind, error, tb)
            sys.stderr.flush()

    def end_with(self, status: int) -> None:
        """End the whole job with this status."""
        claim_error(self.world)
        sys.stdout.flush()
        sys.stderr.flush()
        world = self.world
        if world.ctl.error_owner == world.proc + 1:
            world.ctl.exit_status = status
            world.ctl.request = world.lib.FTRMA_ABORT
        raise Ended

    def forget_user_modules(self) -> None:
        """The program starts again with fresh modules of its own; libraries stay."""
        home = str(Path(self.script).resolve().parent) + os.sep
        for name in set(sys.modules) - self.session.imported:
            path = getattr(sys.modules[name], "__file__", None) or ""
            if path.startswith(home) and path.endswith(".py") and "site-packages" not in path:
                del sys.modules[name]

    def import_ahead(self) -> None:
        """A spare imports what the slots have imported, so that taking over is quick."""
        path = self.world.directory / "modules"
        try:
            if path.stat().st_size == self.seen_modules:
                return
            text = path.read_text()
        except OSError:
            return
        self.seen_modules = len(text)
        for name in text.split():
            if self.world.alarmed():
                return  # a slot is waiting to be taken; what is missing comes with the program
            if name not in sys.modules:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)


def publish_modules(world: World, script: str, before: set[str]) -> None:
    """Tell the spares which libraries the program uses (slot 0, at its first window)."""
    home = str(Path(script).resolve().parent) + os.sep
    names = []
    for name in sorted(set(sys.modules) - before):
        path = getattr(sys.modules[name], "__file__", None) or ""
        if path and not path.startswith(home) and "." not in name[:1]:
            names.append(name)
    target = world.directory / "modules"
    temporary = target.with_suffix(".new")
    temporary.write_text("\n".join(names))
    temporary.rename(target)


def claim_error(world: World) -> bool:
    """True for the one process whose error is the job's."""
    return bool(world.lib.ftrma_claim_error())


def exit_status(ending: SystemExit) -> int:
    """The status that Python gives for ``sys.exit(code)``."""
    code = ending.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def recovery_line(slots: list[int], story: dict[str, Any], spares: int) -> str:
    """One line for people about a recovery."""
    names = " and ".join(f"slot {s}" for s in slots) or "a server"
    to = f"checkpoint {story['version']}" if story["version"] else "the start"
    phases = ", ".join(
        f"{name} {seconds * 1e3:.0f}" for name, seconds in story["phases"].items() if seconds
    )
    return (
        f"{names} died; back at {to} in {story['seconds'] * 1e3:.0f} ms ({phases}); "
        f"{spares} spare{'s' * (spares != 1)} left"
    )


def main(script: str, arguments: list[str]) -> None:
    """Run `script` protected in this process of an MPI job; never returns."""
    global current
    options = settings.from_environment()
    supervised = bool(options.job)
    if supervised:
        rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
        take_terminal(Path(options.job), rank)
    status = 1
    world = None
    try:
        native = _mpi.load()
        _mpi.import_mpi()
        if not native.lib.ftrma_interposed():
            raise FtrmaError("calls of MPI do not pass through ftrma: " + _mpi.too_late())
        world = join(native, options)
        settings.apply_kill_rules(world, options)
        vault = start(world)
        current = session = Session(world, options)
        session.vault = vault
        sys.path.insert(0, str(Path(script).resolve().parent))
        status = Runner(session, script, arguments).run()
    except Ended:
        wait_for_the_end(world, supervised)
    except (FtrmaError, ValueError) as error:
        give_up(world, f"ftrma: error: {error}\n", supervised)
    except BaseException:
        give_up(world, traceback.format_exc(), supervised)
    finish(world, status, supervised)


def give_up(world: World | None, why: str, supervised: bool) -> None:
    """The job cannot go on: say why, once."""
    if world is None or claim_error(world):
        sys.stderr.write(why)
        sys.stderr.flush()
    if world is not None:
        world.ctl.exit_status = world.ctl.exit_status or 1
        world.ctl.request = world.lib.FTRMA_ABORT
        wait_for_the_end(world, supervised)
    os._exit(1)


def wait_for_the_end(world: World | None, supervised: bool) -> None:
    """The supervisor ends this process; where there is none, the MPI library does."""
    if supervised:
        time.sleep(60)
    assert world is not None
    if world.ctl.request == world.lib.FTRMA_RELAUNCH:
        plan = [e for e in read_events(world.directory) if e["event"] == "plan"][-1]
        world.tell(
            f"error: {plan['reason']}, and without 'ftrma run' nobody can launch the job again"
        )
    world.lib.ftrma_mpi_abort(world.ctl.exit_status or 1)


def finish(world: World | None, status: int, supervised: bool) -> None:
    """Leave. MPI_Finalize can wait for the dead, so it is called only where nobody died."""
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if world is not None and not supervised:
        if world.proc == 0:
            shutil.rmtree(world.directory, ignore_errors=True)
        if all(world.alive(p) for p in range(world.ctl.nprocs)):
            world.lib.ftrma_mpi_finalize()  # or the launcher calls the end improper
    os._exit(status)
