"""``python -m bench encode``: are the erasure kernels as fast as the memory and as ISA-L?

Question: at which speed are parities computed, lost members computed back, and deltas folded in,
beside copying and reading the same bytes, and beside ISA-L, the library that most storage systems
use. All sides take turns in each round, in one process and one thread, on the same random bytes in
memory that was touched before; a ratio is formed within a round. Times are those for which the
thread had the processor, so that other work on the machine disturbs only by its use of the caches.
The time of a call without any bytes is measured too and taken off: it is Python's and not the
kernel's.

ISA-L comes with the wheel of pyeclib (``pip install 'ftrma[isal]'``); without it those rows are
left out and the report says so.

GB/s are 1e9 bytes of the members per second: a sum over 8 members of 1 MiB counts 8 MiB, a copy
the bytes copied.
"""

from __future__ import annotations

import importlib.metadata
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from typing import Any

import cffi
import numpy as np

from ftrma.native import loading
from ftrma.vault import erasure

from . import common
from .common import Parser, UsageError, spread
from .launching import JsonObject

PAGE = 4096
SEED = 20140623
SIZES = ["64KiB", "1MiB", "16MiB"]
# Calls before a timed loop, and the fewest in it. Measured (Xeon with a victim third-level cache):
# the first two calls after another operation run at 0.6 of the speed of the following ones.
WARM_UPS = 3
LEAST_CALLS = 3
# Lowest ratios of speeds that the project aims at: (operation, baseline) -> size from which on it
# holds -> ratio; up to the next size given.
TARGETS: dict[tuple[str, str], dict[int, float]] = {
    ("xor", "scan"): {16 << 20: 0.9},
    ("xor", "ISA-L"): {16 << 20: 1.0},
    ("encode", "ISA-L"): {64 << 10: 0.75, 1 << 20: 0.95, 16 << 20: 1.15},
    ("decode", "ISA-L"): {1 << 20: 0.9, 16 << 20: 1.15},
    ("fold 1", "memcpy"): {1 << 20: 0.9},
    ("fold 2", "memcpy"): {1 << 20: 0.55},
}
ISAL_DECLARATIONS = """
void ec_init_tables(int k, int rows, unsigned char *a, unsigned char *g_tbls);
void ec_encode_data(int len, int k, int rows, unsigned char *g_tbls, unsigned char **data,
                    unsigned char **coding);
void ec_encode_data_update(int len, int k, int rows, int vec_i, unsigned char *g_tbls,
                           unsigned char *data, unsigned char **coding);
int xor_gen(int vects, int len, void **array);
"""

Call = Callable[[int], Any]  # one call of a side, on so many bytes of each member


def parse(arguments: list[str]) -> Namespace:
    parser = Parser("encode", "Speed of the erasure kernels beside memcpy and ISA-L.",
                    launches=False)
    parser.set_defaults(rounds=21)
    parser.add_argument("--members", type=common.whole, default=8, metavar="K",
                        help="members of a group")
    parser.add_argument("--checksums", type=common.whole, default=2, metavar="M",
                        help="parities of a group, and members lost")
    parser.add_argument("--sizes", type=member_size, nargs="+", metavar="SIZE",
                        default=[common.size(s) for s in SIZES],
                        help="bytes of a member")
    parser.add_argument("--batch-ms", type=common.positive, default=2.0, metavar="MS",
                        help="least time of a timed loop of calls")
    parser.add_argument("--kernel", metavar="NAME",
                        help="instruction set to force instead of the best one")
    options = parser.parse_args(arguments)
    if options.checksums > options.members:
        raise UsageError(
            f"--checksums {options.checksums} is more than --members {options.members}: "
            "as many members are taken for lost; give fewer"
        )
    try:
        erasure.coefficients(options.members, options.checksums)
    except ValueError as error:
        raise UsageError(f"--members and --checksums: {error}") from None
    return options


def member_size(text: str) -> int:
    found = common.size(text)
    if not PAGE <= found < 1 << 31:
        raise ArgumentTypeError(f"{text}: give sizes from 4KiB up to less than 2GiB, ISA-L's limit")
    return found


def main(arguments: list[str]) -> int:
    """Measure, print, draw."""
    options = parse(arguments)
    report = run(options)
    common.finish(report, options, text, draw)
    return 0


def run(options: Namespace) -> JsonObject:
    """The whole measurement."""
    native = loading.load()
    name = options.kernel.encode() if options.kernel else native.ffi.NULL
    if native.lib.ftrma_kernel_select(name) != 0:
        raise UsageError(
            f"--kernel {options.kernel}: unknown, or this processor lacks it; "
            "leave the option out for the best one"
        )
    isal = load_isal()
    report = common.begin("encode")
    report.update(
        members=options.members, checksums=options.checksums, rounds=options.rounds, ranks=1,
        batch_ms=options.batch_ms, isal=isal_version() if isal else None,
        kernel=native.ffi.string(native.lib.ftrma_kernel_name()).decode(),
        units={"*_gbs": "1e9 bytes of the members per second", "ratio*": "ours/baseline"},
    )
    report["results"] = []
    for size_bytes in options.sizes:
        group = Group(native, isal, options.members, options.checksums, size_bytes)
        report["results"] += measure(group, options)
    return report


# ---- the sides ------------------------------------------------------------------------------


def load_isal() -> Any:
    """ISA-L from the wheel of pyeclib, or None."""
    try:
        files = importlib.metadata.files("pyeclib") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name.startswith("libisal"):
            try:
                ffi = cffi.FFI()
                ffi.cdef(ISAL_DECLARATIONS)
                return ffi.dlopen(str(file.locate()))
            except OSError:
                return None
    return None


def isal_version() -> str:
    return f"of pyeclib {importlib.metadata.version('pyeclib')}"


class Group:
    """One group's memory, and the operations of all sides on it.

    Args:
        native: the C extension.
        isal: ISA-L, or None.
        k, m: members and parities; as many members as parities are computed back.
        size_bytes: of a member.
    """

    def __init__(self, native: Any, isal: Any, k: int, m: int, size_bytes: int) -> None:
        self.lib, self.ffi, self.isal = native.lib, native.ffi, isal
        self.k, self.m, self.size_bytes = k, m, size_bytes
        random = np.random.default_rng(SEED)
        self.rows = [self.row(random.bytes(size_bytes)) for _ in range(k + 2 * m)]
        self.everything = np.concatenate(self.rows[:k]).view(np.uint64)
        self.kept: list[Any] = []  # arrays that C has pointers to
        # {operation: {side: call}}, and how many members' bytes an operation counts.
        self.calls: dict[str, dict[str, Call]] = {}
        self.counts: dict[str, int] = {"memcpy": 1, "scan": k}
        self.add_memory()
        self.add_xor()
        lost = range(m)
        self.add_sums("encode", erasure.coefficients(k, m), range(k))
        how = erasure.decoding(k, m, lost)
        self.add_sums("decode", how.coefficients, how.sources)
        for outputs in (1, 2):
            self.add_fold(outputs)

    def row(self, content: bytes) -> np.ndarray:
        """A page-aligned array, as vaults are."""
        raw = np.empty(len(content) + PAGE, np.uint8)
        at = -raw.ctypes.data % PAGE
        found = raw[at : at + len(content)]
        found[:] = np.frombuffer(content, np.uint8)
        return found

    def pointers(self, numbers: Sequence[int], kind: str = "void *[]") -> Any:
        found = self.ffi.new(kind, [
            self.ffi.cast(kind[:-2], self.rows[i].ctypes.data) for i in numbers
        ])
        self.kept.append(found)
        return found

    def add_memory(self) -> None:
        to, source = (self.ffi.cast("void *", self.rows[i].ctypes.data) for i in (self.k, 0))
        self.calls["memcpy"] = {"memcpy": lambda n: self.ffi.memmove(to, source, n)}
        # The largest word: NumPy's fastest pass that reads all and writes nothing.
        words = self.everything
        self.calls["scan"] = {"scan": lambda n: words[: self.k * n // 8].max(initial=0)}

    def add_xor(self) -> None:
        members, k = self.pointers(range(self.k)), self.k
        to = self.ffi.cast("void *", self.rows[k].ctypes.data)
        xor = self.lib.ftrma_xor_many
        self.calls["xor"] = {"ours": lambda n: xor(to, members, k, n)}
        self.counts["xor"] = k
        if self.isal:
            xor_gen, both = self.isal.xor_gen, self.pointers([*range(k), k])
            self.calls["xor"]["ISA-L"] = lambda n: xor_gen(k + 1, n, both)

    def add_sums(self, operation: str, coefficients: np.ndarray, sources: Sequence[int]) -> None:
        """Outputs of `encode` are the parities; of `decode`, which reads them, rows behind them."""
        k, m = self.k, self.m
        first = k if operation == "encode" else k + m
        target = range(first, first + m)
        coef = self.ffi.from_buffer("uint8_t[]", np.ascontiguousarray(coefficients))
        self.kept.append(coef)
        to, members = self.pointers(target), self.pointers(sources)
        encode = self.lib.ftrma_gf_encode
        self.calls[operation] = {"ours": lambda n: encode(to, m, members, k, coef, n)}
        self.counts[operation] = k
        if self.isal:
            tables = self.tables(k, m, coef)
            data = self.pointers(sources, "unsigned char *[]")
            coding = self.pointers(target, "unsigned char *[]")
            theirs = self.isal.ec_encode_data
            self.calls[operation]["ISA-L"] = lambda n: theirs(n, k, m, tables, data, coding)

    def add_fold(self, outputs: int) -> None:
        """y ^= c * x with one or two outputs."""
        coef = self.ffi.new("uint8_t[]", [0x8E, 0x53][:outputs])
        target = range(self.k, self.k + outputs)
        to, source = self.pointers(target), self.pointers([0])
        fold = self.lib.ftrma_gf_fold
        name = f"fold {outputs}"
        self.calls[name] = {"ours": lambda n: fold(to, outputs, source, 1, coef, n)}
        self.counts[name] = 1
        self.kept.append(coef)
        if self.isal:
            tables = self.tables(1, outputs, coef)
            data = self.pointers([0], "unsigned char *[]")[0]
            coding = self.pointers(target, "unsigned char *[]")
            theirs = self.isal.ec_encode_data_update
            self.calls[name]["ISA-L"] = lambda n: theirs(n, 1, outputs, 0, tables, data, coding)

    def tables(self, k: int, rows: int, coef: Any) -> Any:
        tables = self.ffi.new("unsigned char[]", 32 * k * rows)
        self.kept.append(tables)
        self.isal.ec_init_tables(k, rows, self.ffi.cast("unsigned char *", coef), tables)
        return tables


# ---- measuring ------------------------------------------------------------------------------


def seconds(call: Call, size_bytes: int, times: int) -> float:
    """Seconds of this thread's processor that one call takes, over a loop of `times`."""
    begin = time.thread_time()
    for _ in range(times):
        call(size_bytes)
    return (time.thread_time() - begin) / times


def warm_up(group: Group, sides: list[tuple[str, str]], batch_ms: float) -> tuple[
        dict[tuple[str, str], int], dict[tuple[str, str], float]]:
    """Call each side some times.

    Returns:
        For each side the number of calls in a batch, and the seconds of an empty call.
    """
    times, empty = {}, {}
    for operation, side in sides:
        call = group.calls[operation][side]
        empty[operation, side] = min(seconds(call, 0, 100) for _ in range(20))
        once = min(seconds(call, group.size_bytes, 1) for _ in range(3))
        times[operation, side] = max(LEAST_CALLS, round(batch_ms / 1e3 / once))
    return times, empty


def measure(group: Group, options: Namespace) -> list[JsonObject]:
    """All rounds for one size; one result for each operation and baseline."""
    n = group.size_bytes
    sides = [(o, s) for o, calls in group.calls.items() for s in calls]
    times, empty = warm_up(group, sides, options.batch_ms)
    took: dict[tuple[str, str], list[float]] = {side: [] for side in sides}
    for number in range(options.rounds):
        common.progress(f"encode: {common.size_text(n)}, round {number + 1}/{options.rounds}")
        for operation, side in sides if number % 2 == 0 else sides[::-1]:
            call, count = group.calls[operation][side], times[operation, side]
            for _ in range(WARM_UPS):
                call(n)
            took[operation, side].append(seconds(call, n, count) - empty[operation, side])
    speeds = {(o, s): [group.counts[o] * n / 1e9 / each for each in took[o, s]] for o, s in sides}
    return [
        summary(n, operation, baseline, speeds)
        for operation in ("xor", "encode", "decode", "fold 1", "fold 2")
        for baseline in ("scan" if operation in ("xor", "encode", "decode") else "memcpy", "ISA-L")
        if baseline != "ISA-L" or group.isal
    ]


def summary(
    size_bytes: int, operation: str, baseline: str, speeds: dict[tuple[str, str], list[float]]
) -> JsonObject:
    """One row: an operation beside one baseline."""
    ours = speeds[operation, "ours"]
    theirs = speeds[operation if baseline == "ISA-L" else baseline, baseline]
    each = common.ratios(ours, theirs)
    return {
        "operation": operation, "size_bytes": size_bytes, "baseline": baseline,
        "ours_gbs": spread(ours), "baseline_gbs": spread(theirs), "ratio": spread(each),
        "ratio_each": each, "target": target_of(operation, baseline, size_bytes),
    }


def target_of(operation: str, baseline: str, size_bytes: int) -> float | None:
    """The target of the largest size that is not above this one."""
    steps = TARGETS.get((operation, baseline), {})
    reached = [size for size in steps if size <= size_bytes]
    return steps[max(reached)] if reached else None


# ---- telling --------------------------------------------------------------------------------


def titles_of(k: int, m: int) -> dict[str, str]:
    """Names of the operations, for people."""
    return {
        "xor": f"XOR, {k} to 1", "encode": f"encode, {k} to {m}",
        "decode": f"decode, {m} lost of {k}", "fold 1": "y ^= c*x", "fold 2": "y ^= c*x, two y",
    }


def text(report: JsonObject) -> str:
    """The table for people."""
    k, m = report["members"], report["checksums"]
    titles = titles_of(k, m)
    rows = [["operation", "a member", "ours GB/s", "beside", "GB/s", "ratio", "target"]]
    for r in report["results"]:
        target = "-"
        if r["target"]:
            met = "met" if r["ratio"]["median"] >= r["target"] else "missed"
            target = f">= {r['target']:.2f} {met}"
        rows.append(
            [
                titles[r["operation"]], common.size_text(r["size_bytes"]),
                f"{r['ours_gbs']['median']:.1f}", r["baseline"],
                f"{r['baseline_gbs']['median']:.1f}", common.with_range(r["ratio"], against=1),
                target,
            ]
        )
    isal = f"ISA-L {report['isal']}" if report["isal"] else (
        "ISA-L not found: install it with pip install 'ftrma[isal]' to compare with it"
    )
    return (
        f"Erasure kernels ({report['kernel']}), groups of {k} + {m}, one thread, medians of "
        f"{report['rounds']} rounds;\nratio of speeds within a round: median (min .. max). {isal}."
        f"\n\n{common.table(rows)}"
    )


def draw(report: JsonObject, path: Any) -> None:
    """Speed over size, a panel for each operation."""
    plt = common.pyplot()
    results = report["results"]
    operations = list(dict.fromkeys(r["operation"] for r in results))
    titles = titles_of(report["members"], report["checksums"])
    sizes = sorted({r["size_bytes"] / 2**20 for r in results})
    figure, panels = plt.subplots(
        1, len(operations), figsize=(2.1 * len(operations), 2.6), sharex=True, squeeze=False
    )
    colours = {"ours": "#0072b2", "ISA-L": "#d55e00", "scan": "0.45", "memcpy": "0.45"}
    for axes, operation in zip(panels[0], operations, strict=True):
        mine = [r for r in results if r["operation"] == operation]
        for side in dict.fromkeys(["ours", *(r["baseline"] for r in mine)]):
            chosen = [r for r in mine if side in ("ours", r["baseline"])]
            chosen = list({r["size_bytes"]: r for r in chosen}.values())
            found = [r["ours_gbs" if side == "ours" else "baseline_gbs"] for r in chosen]
            axes.errorbar([r["size_bytes"] / 2**20 for r in chosen], [f["median"] for f in found],
                          yerr=common.whiskers(found), fmt="o-", ms=3, capsize=2, lw=0.9,
                          color=colours[side], label=side)
        axes.set_title(titles[operation], fontsize=9)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [f"{size:.3g}" for size in sizes])
        axes.set_xlabel("a member, MiB (log scale)")
        axes.set_ylim(bottom=0)
        axes.grid()
        axes.legend(fontsize=7)
    panels[0][0].set_ylabel("speed, GB/s of members")
    figure.tight_layout()
    common.save(figure, path, report)
