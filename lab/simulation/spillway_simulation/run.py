"""Runs seeds: `python lab/simulation/simulate.py --seeds 0:10000 --jobs 2`, or `--seed 17 --trace` to see one."""

import argparse
import asyncio
import gc
import json
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import structlog

from spillway import metrics
from spillway_simulation.beliefs import find_false_beliefs
from spillway_simulation.convergence import find_convergence_errors, has_name_clash
from spillway_simulation.dependencies import Hands
from spillway_simulation.faults import FaultInjector
from spillway_simulation.ledger import Ledger, Outcome, add_ranges, code_of_checkout
from spillway_simulation.lenders import Lenders, find_unsettled_lending
from spillway_simulation.loop import OWNER, BusyLoop, Deadlock, VirtualLoop
from spillway_simulation.operators import Operators
from spillway_simulation.oracle import Oracle
from spillway_simulation.readers import Readers
from spillway_simulation.scalers import Scaler, find_unsettled_scaling, judge_scaling_at_rest
from spillway_simulation.script import Retention, Script, drawn_count_by_kind
from spillway_simulation.seeds import KEPT, LONG_SEEDS, script_of
from spillway_simulation.users import User, join_all_members
from spillway_simulation.world import World

CONVERGED_WITHIN_SECONDS = 600.0
LOOK_SECONDS = 2.0
COUNT_SECONDS = 0.5
RETAIN_SECONDS = 4.0
SEEDS_A_COLLECTION = 16
OWNED = ("adopted", "disowned", "left", "orphaned")
BUILD = Path("build/simulation.json")
LEDGER = Path("build/simulation.ledger")
RANGES = Path(__file__).parents[1] / "ledger" / "ranges.tsv"
PROGRESS_SECONDS = 60.0
PARENT_SECONDS = 1.0


def run_seed(seed: int, trace: bool = False, logs: bool = False) -> Outcome:
    """Runs one seed from the first record to convergence. Raises only for a fault of the simulation itself."""
    started = time.perf_counter()
    script = script_of(seed)
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    loop.set_exception_handler(lambda _loop, _context: None)
    _configure_logs(loop if logs else None)
    gc.disable()
    try:
        world, converged_after = loop.run_until_complete(_run_script(script, loop, trace))
        oracle = world.oracle
        outcome = Outcome(
            seed,
            tuple(oracle.violations),
            oracle.trace_digest,
            loop.time(),
            time.perf_counter() - started,
            oracle.records,
            oracle.writes,
            converged_after,
            sum(len(sizes.every) for sizes in oracle.scaling.sizes.values()),
            dict(oracle.ownership.seen),
            _count_by_kind(script, world),
        )
        if trace:
            print("\n".join(oracle.trace or ()))
        _dispose_of_world(world, loop)
    finally:
        gc.enable()
        asyncio.set_event_loop(None)
    return outcome


@contextmanager
def judge_unexpected_errors(oracle: Oracle) -> Iterator[None]:
    """Reports a violation if a service met an unexpected error in the block. The loop must run: it gives the time."""
    failed_before, work_before = metrics.DECISIONS_FAILED._value.get(), _unexpected_error_count()
    yield
    if metrics.DECISIONS_FAILED._value.get() != failed_before:
        oracle.note_violation("a planner met a bug in a decision that nobody asked for")
    if _unexpected_error_count() != work_before:
        oracle.note_violation("a service met an unexpected error, which cost one cluster or object")


def _unexpected_error_count() -> float:
    """Returns the number of unexpected errors so far that did not end a service, summed over all services."""
    (family,) = metrics.WORK_FAILED.collect()
    return sum(one.value for one in family.samples if one.name.endswith("_total"))


def _count_by_kind(script: Script, world: World) -> dict[str, int]:
    oracle, waited = world.oracle, world.dependencies.count_by_event if script.dependencies is not None else {}
    lending = oracle.lending.seen if oracle.lending is not None else {}
    reads = oracle.reads.seen if oracle.reads is not None else {}
    judged = oracle.brakes.seen | oracle.needs.seen | {"taken back": oracle.take_backs.seen}
    return drawn_count_by_kind(script) | waited | dict(oracle.seen) | lending | reads | judged


async def _run_script(script: Script, loop: VirtualLoop, trace: bool) -> tuple[World, float]:
    world = World(script, loop)
    if trace:
        world.oracle.trace = []
        for one in (*script.orders, *script.faults, *script.scaled):
            world.oracle.note_in_trace(f"will {one}")
    converged_after = -1.0
    with judge_unexpected_errors(world.oracle):
        try:
            converged_after = await _run_to_convergence(world)
        except Exception as error:
            world.oracle.note_violation(f"{type(error).__name__}: {error}")
    return world, converged_after


async def _run_to_convergence(world: World) -> float:
    """Runs the world to convergence. Returns the seconds from the last fault until then."""
    world.start_all_instances()
    await join_all_members(world)
    users = [User(world, name, asks) for name, asks in world.script.asks.items()]
    tasks = [asyncio.ensure_future(user.run()) for user in users]
    operators = Operators(world)
    scalers = [Scaler(world, one) for one in world.script.scaled]
    tasks += [asyncio.ensure_future(scaler.declare_all_steps()) for scaler in scalers]
    tasks += [asyncio.ensure_future(scaler.report_load()) for scaler in scalers]
    tasks.append(asyncio.ensure_future(operators.confirm_all_pending()))
    if world.script.lending is not None:
        tasks.append(asyncio.ensure_future(Lenders(world).run()))
        tasks.append(asyncio.ensure_future(_keep_judging_counted_nodes(world)))
    if world.script.dependencies is not None:
        hands = Hands(world)
        hands.create_first_objects()
        tasks.append(asyncio.ensure_future(hands.run()))
    tasks.append(asyncio.ensure_future(_keep_judging_reservations(world)))
    if world.script.retention is not None:
        tasks.append(asyncio.ensure_future(_keep_applying_retention(world, world.script.retention)))
    if world.script.is_read:
        tasks.append(asyncio.ensure_future(Readers(world).run()))
    tasks.append(asyncio.ensure_future(operators.run()))
    await FaultInjector(world).run()
    await tasks[-1]
    await asyncio.sleep(max(0.0, world.script.faults_end - world.loop.time()))
    world.oracle.note_in_trace("faults over")
    over = world.loop.time()
    lacking: list[str] = []
    while world.loop.time() < over + CONVERGED_WITHIN_SECONDS:
        for task in tasks:
            if task.done():
                task.result()
        lacking = [
            *find_convergence_errors(world, users),
            *find_unsettled_scaling(world, scalers),
            *find_unsettled_lending(world),
        ]
        if not lacking:
            lacking = [*find_false_beliefs(world, users)]
        if not lacking or world.oracle.violations:
            break
        await asyncio.sleep(LOOK_SECONDS)
    converged_after = world.loop.time() - over
    if scalers and not lacking and not world.oracle.violations and not has_name_clash(world):
        await judge_scaling_at_rest(world, over)
    for sentence in lacking if not world.oracle.violations else ():
        world.oracle.note_violation(f"{CONVERGED_WITHIN_SECONDS:g} s after the last fault: {sentence}")
    return converged_after


async def _keep_applying_retention(world: World, retention: Retention) -> None:
    """Deletes old records from time to time as a broker does: those that are too old or exceed the size."""
    random = Random(f"{world.script.seed}/retain")
    while True:
        await asyncio.sleep(random.uniform(1, 2 * RETAIN_SECONDS))
        world.broker.apply_retention(retention.seconds, retention.bytes_max)


async def _keep_judging_reservations(world: World) -> None:
    while True:
        world.judge_reservations()
        await asyncio.sleep(COUNT_SECONDS)


async def _keep_judging_counted_nodes(world: World) -> None:
    while True:
        world.judge_counted_nodes()
        await asyncio.sleep(COUNT_SECONDS)


def _dispose_of_world(world: World, loop: VirtualLoop) -> None:
    """Cancels all remaining tasks, so that nothing of this seed runs in the next one."""
    for process in world.processes.values():
        process.is_over = True
    world.oracle.trace = None
    loop.revive_all_processes()
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        for _ in range(3):
            tasks = [task for task in asyncio.all_tasks(loop) if not task.done()]
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            with suppress(Deadlock, BusyLoop):
                loop.run_until_complete(asyncio.wait(tasks, timeout=60))
        with suppress(Deadlock, BusyLoop):
            loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        if world.script.seed % SEEDS_A_COLLECTION == 0:
            gc.collect()
    finally:
        sys.unraisablehook = hook


def _configure_logs(loop: VirtualLoop | None) -> None:
    logging.disable(logging.CRITICAL)
    if loop is None:
        structlog.configure(
            processors=[_drop_log_entry], wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
        )
        return

    def render_log_entry(_: object, level: str, entry: MutableMapping[str, Any]) -> str:
        event = entry.pop("event")
        return f"{loop.time():9.3f} {OWNER.get()} {level} {event} {entry}"

    structlog.configure(processors=[render_log_entry])


def _drop_log_entry(_: object, _level: str, _entry: object) -> NoReturn:
    raise structlog.DropEvent


# ── Many ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _run_seed_safely(seed: int) -> Outcome:
    begun = time.process_time()
    try:
        outcome = run_seed(seed)
    except Exception as error:
        outcome = Outcome(seed, (f"the simulation itself: {type(error).__name__}: {error}",), "", 0, 0, 0, 0, -1)
    return replace(outcome, cpu_seconds=round(time.process_time() - begun, 3))


def run_seeds(seeds: Sequence[int], jobs: int) -> Iterator[Outcome]:
    """Yields the outcomes in the order in which the seeds end. Each process runs many seeds."""
    gc.freeze()
    if jobs == 1:
        yield from map(_run_seed_safely, seeds)
        return
    initializer, parent = _end_with_parent, (os.getpid(),)
    with get_context("fork").Pool(jobs, initializer, parent, maxtasksperchild=200) as pool:
        yield from pool.imap_unordered(_run_seed_safely, seeds, chunksize=1)


def _end_with_parent(parent: int) -> None:
    """Ends a worker whose parent was killed. Otherwise it would wait for the next seed without end."""

    def exit_after_parent() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_SECONDS)
        os._exit(1)

    threading.Thread(target=exit_after_parent, daemon=True).start()


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":  # Otherwise the order of sets of strings differs between processes.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    arguments = _parse_arguments()
    if arguments.ranges:
        print(
            f"{add_ranges(arguments.ranges, Ledger(arguments.ledger, code_of_checkout()))} ranges in {arguments.ranges}"
        )
        return 0
    if arguments.seed is not None:
        return _run_one_seed(arguments)
    first, _, end = arguments.seeds.partition(":")
    kept = {"none": (), "quick": [seed for seed in KEPT if seed not in LONG_SEEDS], "all": KEPT}[arguments.kept]
    seeds = [*kept, *range(int(first), int(end))]
    return _run_missing_seeds(
        list(dict.fromkeys(seeds)), arguments.jobs, arguments.out, Ledger(arguments.ledger, code_of_checkout())
    )


def _run_one_seed(arguments: argparse.Namespace) -> int:
    for before in arguments.after:
        run_seed(before)
    outcome = run_seed(arguments.seed, arguments.trace, arguments.logs)
    print(
        f"seed {outcome.seed}: digest {outcome.digest}, {outcome.virtual_seconds:.0f} virtual seconds, "
        f"{outcome.records} records, {outcome.writes} writes"
    )
    for failure in outcome.failures:
        print(f"  {failure}")
    return 1 if outcome.failures else 0


def _run_missing_seeds(seeds: Sequence[int], jobs: int, out: Path, ledger: Ledger) -> int:
    """Runs the seeds that the ledger does not have for this code. The summary covers all seeds."""
    started = said = time.monotonic()
    known = ledger.outcomes_by_seed()
    outcomes = [known[seed] for seed in seeds if seed in known]
    if outcomes:
        print(f"{len(outcomes)} of {len(seeds)} seeds were run with this code before", flush=True)
    for outcome in outcomes:
        _print_failure(outcome)
    for outcome in run_seeds([seed for seed in seeds if seed not in known], jobs):
        ledger.append_outcome(outcome)
        outcomes.append(outcome)
        _print_failure(outcome)
        if time.monotonic() - said > PROGRESS_SECONDS:
            said = time.monotonic()
            failed = sum(bool(one.failures) for one in outcomes)
            print(f"{len(outcomes)} of {len(seeds)} seeds, {failed} failed, {said - started:.0f} s", flush=True)
            _write_summary(out, _summary_of_outcomes(outcomes, jobs, said - started))
    summary = _summary_of_outcomes(outcomes, jobs, time.monotonic() - started)
    _write_summary(out, summary)
    print(json.dumps({name: value for name, value in summary.items() if name != "failures"}))
    return 1 if summary["failed"] else 0


def _print_failure(outcome: Outcome) -> None:
    if outcome.failures:
        print(f"seed {outcome.seed} failed: {outcome.failures[0]}", flush=True)
        print(f"  replay: make simulate REPLAY={outcome.seed}", flush=True)


def _summary_of_outcomes(outcomes: Sequence[Outcome], jobs: int, seconds: float) -> dict[str, Any]:
    return {
        "seeds": len(outcomes),
        "failed": sorted(outcome.seed for outcome in outcomes if outcome.failures),
        "seconds": round(seconds, 1),
        "jobs": jobs,
        "virtual_hours": round(sum(outcome.virtual_seconds for outcome in outcomes) / 3600, 1),
        "records": sum(outcome.records for outcome in outcomes),
        "writes": sum(outcome.writes for outcome in outcomes),
        "sizes_decided": sum(outcome.sizes_decided for outcome in outcomes),
        **{name: sum(outcome.owned.get(name, 0) for outcome in outcomes) for name in OWNED},
        "drawn": _drawn_total_by_kind(outcomes),
        "cpu_seconds": round(sum(outcome.cpu_seconds for outcome in outcomes), 1),
        "converged_seconds_max": max(outcome.converged_after for outcome in outcomes),
        "failures": [asdict(outcome) for outcome in outcomes if outcome.failures],
    }


def _drawn_total_by_kind(outcomes: Sequence[Outcome]) -> dict[str, int]:
    total = Counter[str]()
    for outcome in outcomes:
        total.update(outcome.drawn)
    return dict(sorted(total.items()))


def _write_summary(out: Path, summary: dict[str, Any]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(summary, indent=2) + "\n")


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="first:end, the end not included")
    parser.add_argument("--jobs", type=int, default=1, help="processes at the same time")
    parser.add_argument("--seed", type=int, help="one seed alone")
    parser.add_argument("--after", type=int, action="append", default=[], help="run this seed before, with --seed")
    parser.add_argument(
        "--kept",
        choices=("none", "quick", "all"),
        default="none",
        help="also the seeds that failed once, or the quick ones",
    )
    parser.add_argument("--trace", action="store_true", help="print everything that happens, with --seed")
    parser.add_argument("--logs", action="store_true", help="print the services' logs, with --seed")
    parser.add_argument("--out", type=Path, default=BUILD, help="where the summary goes")
    parser.add_argument("--ledger", type=Path, default=LEDGER, help="what was run; its seeds are not run again")
    parser.add_argument(
        "--ranges", type=Path, nargs="?", const=RANGES, help="write the ledger's ranges here, and run nothing"
    )
    return parser.parse_args()
