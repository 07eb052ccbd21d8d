"""Options of the whole suite, and what a plain ``pytest`` leaves for later.

It runs in minutes: files whose subject is an edge wait for ``--rest``, and of cases that are many
of one kind every sixteenth is taken. ``--rest`` runs those files so, and what takes long by itself;
both are what CI runs. With ``--sweep 2`` everything runs, also what is marked `long`: more of the
same kind. ``--load N`` adds N processes that compute: what waits for somebody else's
turn, and hangs if it comes late, shows then in minutes.
"""

import compileall
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Files with many cases of one kind.
MANY = {f"faults/test_{name}.py" for name in (
    "agent", "attempts", "causal", "communicators", "demand", "dht", "drop_in", "ends",
    "killed_supervisor", "library_calls", "lines", "mirror", "node_loss", "not_replayable",
    "polling", "reentry", "stdin", "strength", "sweep", "trace")}
MANY |= {"mpi/test_collectives.py", "mpi/test_errors.py", "unit/command/test_bad_input.py",
         "unit/protocol/test_protocol_model.py", "unit/native/test_result_log.py"}
# Files that wait for --rest: output and input of jobs, other users, the library's own corners.
REST = {f"faults/test_{name}.py" for name in (
    "adversary", "attempts", "communicators", "ends", "fabric_nodes", "full_memory",
    "honest_nodes", "killed_supervisor", "library_calls", "lines", "not_replayable", "polling",
    "stdin", "strength", "trace_nodes")}
REST |= {"mpi/test_errors.py", "mpi/test_mpi4py_suite.py", "unit/bench/test_bench_logs.py",
         "unit/native/test_kernels_c.py", "unit/native/test_mirror_looks.py",
         "unit/native/test_result_log.py", "unit/house/test_selection.py"}
# Tests of the other files that take long, or are about an edge.
SLOW = (
    "-sanitized]", "test_a_damaged_one_is_no_answer", "test_a_death_in_the_making_of_a_window",
    "test_a_directory_that_is_gone", "test_a_repair_may_take_long_as_long_as_it_works",
    "test_a_replacement_without_memory_for_one", "test_awareness_that_cannot_hold_is_told",
    "test_closed_and_null", "test_death_of_a_node_relaunches",
    "test_every_failure_is_recovered[residual-phoenix]", "test_every_rule_is_needed",
    "test_every_variant_equals_its_reference", "test_extreme_records_are_fitted",
    "test_framework.py::test_mistakes_are_told", "test_held_and_killed",
    "that_of_the_unprotected_run[0-2]", "test_launcher_death_relaunches", "test_node_loss_with",
    "test_nothing_of_a_launch_outlives", "test_one_death", "test_polling_is_exact_by_its_trace",
    "test_nodes.py::test_signals_leave_nothing", "test_the_smallest_run_reports",
    "test_a_thread_that_waits_for_a_lock_holds_no_other_up",
    "test_threads_change_one_after_another", "test_what_is_published_is_seen_behind[hub]",
    "test_two_in_one_group_without_a_spare", "test_who_goes_back_amid_a_change_of_another_node",
    "test_without_memory_all_checkpoint_instead",
    "[edges of a step that was not finished are undone]",
)
# Others of a kind of which one runs anyway, and what takes long for what it adds.
SWEPT = (
    "-O3]", "[test_gf-sanitized]", "test_polling_is_exact_by_its_trace[shared]",
    "test_polling_is_exact_by_its_trace[get]", "test_polling_is_exact_by_its_trace[swap]",
    "test_over_nodes_they_are_the_same[columns]", "test_over_nodes_they_are_the_same[derived]",
    "test_an_old_thread_beside_the_next_attempt", "pipe-elsewhere-options3-for-",
    "pipe-elsewhere-options5-all-",
    "test_collective_calls_give_what_numpy_computes[run_on_nodes-4]",
    "test_derived_communicators_over_nodes[3]", "-c0@repair:1]", "-s1@restore:1]", "-c0@reset:1]",
    "-2@reset:1]", "test_bind_says_where[127.0.0.1]", "test_bind_says_where[lo:PORTS]",
    "test_the_smallest_run_reports[ft]", "test_suite_of_mpi4py_over_nodes[win]",
    "test_over_nodes[layouts]", "test_over_nodes[locks]", "test_one_death[0-3@stage:6-5]",
    "those_of_the_unprotected_run[columns]", "those_of_the_unprotected_run[objects]",
    "those_of_the_unprotected_run[requests]", "test_over_nodes_they_are_the_same[data]",
    "test_over_nodes_they_are_the_same[objects]", "test_over_nodes_they_are_the_same[requests]",
    "test_over_nodes_they_are_the_same[sync]", "that_of_the_unprotected_run[0-3]",
    "test_what_is_published_is_seen_behind[spoke]", "test_what_is_no_replay_rolls_back[0-0-lock",
    "test_what_is_no_replay_rolls_back[0-0-atomic", "-agent-stage-here-m1-lock-2]",
    "-slot-atomic-elsewhere-m2-mixed-2]", "-checksum-commit-here-m1-mixed-2]",
    "-spare-repair-here-m1-mixed-2]", "-slot-put-here-m1-mixed-2]",
    "test_over_nodes_an_agent_dies_and_then_a_slot[0-1]", "test_figures_are_drawn[svg]",
    "test_a_second_death[0-auto-2@repair", "test_signals_leave_nothing[15-143]",
    "test_awareness_that_cannot_hold_is_told[asked]", "test_checksum[0-c0@sum",
    "test_no_spare_relaunches[0@end]", "test_a_slot_dies[0-checkpoint", "[test_kernels-sanitized]",
    "test_benchmark_compiles", "test_figures_are_drawn[pdf]", "test_messages_go_on[0-fence:11]",
    "test_more_than_a_group_survives_in_place[0-2@fence:25]",
    "test_a_window_of_the_library_is_not_gone_on_with[0]", "test_who_comes_to_a_fence_meanwhile",
    "test_back_once_more[0]", "test_nodes_of_different_memory", "test_much_output_comes_whole",
    "pipe-here-options1-readline-launching the job again]", "test_a_second_death_where_the_first",
    "test_over_nodes_each_slot_checkpoints_alone[lockall]", "test_node_loss_without_awareness[0]",
    "test_agents_die_amid_accesses_of_all_kinds[0]", "test_a_prompt_of_another_node",
    "test_a_rollback_and_a_relaunch_are_entries_of_one_run", "test_forfeited_over_nodes",
    "test_a_server_dies_before_partitioned_communication[0]", "-slot-replay-here-m1-ft-2]",
    "test_over_nodes_a_replay_from_a_demand_checkpoint[0-fence-1@put:400-bulk-2]",
    "test_elsewhere[0-pscw-call:7-0]", "test_replayed[0-stencil-start-0]",
    "those_of_the_unprotected_run[derived]", "those_of_the_unprotected_run[data]",
    "those_of_the_unprotected_run[sync]", "test_signals_that_are_the_programs[several]",
    "test_who_is_alone_on_a_node[0-1@safepoint", "test_puts_that_wait_for_room[0-1@put:5]",
    "test_sets_have_one_order_on_all_nodes", "test_stuck_inside_the_library_relaunches",
    "test_agents_that_end_at_once_are_told", "test_without_spares_deaths_of_slots_relaunch",
    "test_a_second_failure_before_a_checkpoint", "test_rounds_go_on[0-sssp-phoenix]",
    "-spare-repair-here-m1-dht-2]", "test_elsewhere[0-ft-put:50-2]",
    "test_counters_are_those_of_one_node", "test_accesses_to_windows_that_are_gone",
    "test_what_does_not_serve_is_told", "test_a_relaunch_finds_nothing_of_the_launch_before",
    *(f"test_every_failure_is_recovered[{case}]" for case in (
        "lwcp-changing", "lwlog-listing", "path-phoenix", "both-phoenix", "core-phoenix",
        "both-cr", "cc-phoenix", "core-cr", "sssp-phoenix", "pull-phoenix")),
    *(f"test_suite_of_mpi4py[{name}]" for name in (
        "attributes", "status", "handle", "session", "group", "info", "op", "comm_topo", "rma",
        "p2p_obj", "environ", "comm_inter")),
)


def pytest_configure(config: pytest.Config) -> None:
    # Thousands of processes import it; where PYTHONDONTWRITEBYTECODE is set each would compile it.
    compileall.compile_dir(Path(__file__).parents[1] / "ftrma", quiet=2)
    config.addinivalue_line("markers", "rest: runs with --rest and in sweeps only")
    config.addinivalue_line("markers", "long: runs with --sweep 2 or more only")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sweep", type=int, default=1, metavar="N", help="repeat every fault of the sweep N times"
    )
    parser.addoption(
        "--rest", action="store_true", help="run what takes long, and other cases than without it"
    )
    parser.addoption(
        "--load", type=int, default=0, metavar="N", help="let N processes compute beside the tests"
    )


@pytest.fixture(scope="session", autouse=True)
def load(request: pytest.FixtureRequest) -> Iterator[None]:
    """What ``--load`` asks for; ends with this process, however that ends."""
    compute = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(1 << 16))"
    others = [subprocess.Popen([sys.executable, "-c", compute])
              for _ in range(request.config.getoption("--load"))]
    yield
    for other in others:
        other.kill()
        other.wait()


@pytest.fixture(scope="session", autouse=True)
def state_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keys that tests make are no key of who runs them."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


def when(item: pytest.Item, seen: dict[str, int]) -> str:
    """Which run takes a test: a plain one, the rest, or sweeps alone; counts each test's cases."""
    if any(part in item.nodeid for part in SWEPT):
        return "sweep"
    if item.get_closest_marker("rest") or any(part in item.nodeid for part in SLOW):
        return "rest"
    file = item.path.relative_to(Path(__file__).parent).as_posix()
    now = "rest" if file in REST else "plain"
    if file not in MANY or not hasattr(item, "callspec"):
        return now
    test = item.nodeid.partition("[")[0]
    seen[test] = seen.get(test, 0) + 1
    return now if seen[test] % 16 == 1 else "sweep"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--sweep") > 1:
        return
    long = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in long]
    if any("::" in word for word in config.args):
        return  # what was named
    seen: dict[str, int] = {}
    wanted = "rest" if config.getoption("--rest") else "plain"
    left = {item for item in items if when(item, seen) != wanted}
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = [item for item in items if item not in left]
