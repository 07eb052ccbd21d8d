"""The kernels (csrc/kernels/) against their references, compiled and run as C."""

import os
import platform
import shlex
import shutil
import subprocess

import pytest
from tiers import tiers
from tree import ROOT

FOLDER = ROOT / "csrc" / "kernels"
NAMES = ("kernels.c", "variant.c", "gf.c", "gf_portable.c", "gf_x86.c")
KERNELS = [FOLDER / name for name in NAMES]
SOURCES = {
    driver: [FOLDER / reference, ROOT / "tests" / "c" / f"{driver}.c"]
    for driver, reference in [("test_kernels", "kernels_ref.c"), ("test_gf", "gf_ref.c")]
}
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
SANITIZED = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
COMPILER = shlex.split(os.environ.get("CC") or "cc")
# Seconds; the sanitized run takes about ten on a slow core.
TIMEOUT = 300

pytestmark = pytest.mark.skipif(shutil.which(COMPILER[0]) is None, reason="no C compiler")


def compile_c(flags, sources, program):
    """Compile the sources with all warnings as errors; return the finished process."""
    command = [*COMPILER, *WARNINGS, *flags, f"-I{FOLDER}", *map(str, sources)]
    return subprocess.run(
        [*command, "-o", str(program)], capture_output=True, text=True, timeout=TIMEOUT
    )


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """Compile the kernels once for each set of flags: under the sanitizers that takes long."""
    made = {}

    def compiled(flags):
        if tuple(flags) not in made:
            home = tmp_path_factory.mktemp("kernels")
            made[tuple(flags)] = [home / f"{source.stem}.o" for source in KERNELS]
            for source, target in zip(KERNELS, made[tuple(flags)], strict=True):
                built = compile_c([*flags, "-c"], [source], target)
                assert built.returncode == 0, built.stderr
        return made[tuple(flags)]

    return compiled


@pytest.mark.parametrize(("driver", "flags"), tiers(
    [pytest.param(driver, flags, id=f"{driver}-{name}") for driver in SOURCES
     for name, flags in (("sanitized", SANITIZED), ("O3", ["-O3"]),
                         ("portable-only", ["-O2", "-DFTRMA_PORTABLE"]))],
    full=["test_kernels-portable-only", "test_gf-portable-only"]))
def test_every_variant_equals_its_reference(tmp_path, kernels, driver, flags):
    program = tmp_path / driver
    built = compile_c(flags, [*kernels(flags), *SOURCES[driver]], program)
    assert built.returncode == 0, built.stderr

    # An address sanitizer must come first among the libraries: nothing may be preloaded.
    environ = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    run = subprocess.run(
        [str(program)], capture_output=True, text=True, timeout=TIMEOUT, env=environ
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "FAILS" not in run.stdout
    assert "portable" in run.stdout


@pytest.mark.full
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86-64 only")
def test_portable_only_build_refuses_the_others(tmp_path, kernels):
    program, flags = tmp_path / "test_kernels", ["-O2", "-DFTRMA_PORTABLE"]
    built = compile_c(flags, [*kernels(flags), *SOURCES["test_kernels"]], program)
    assert built.returncode == 0, built.stderr
    run = subprocess.run([str(program)], capture_output=True, text=True, timeout=TIMEOUT)
    assert "avx2      not on this processor" in run.stdout
    assert "avx512    not on this processor" in run.stdout


@pytest.mark.nightly
def test_benchmark_compiles(tmp_path, kernels):
    sources = [*kernels(["-O3"]), ROOT / "tests" / "c" / "bench_kernels.c"]
    built = compile_c(["-O3"], sources, tmp_path / "bench_kernels")
    assert built.returncode == 0, built.stderr
