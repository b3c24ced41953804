"""Shows back-tests as JSON and as tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lakehouse.cli.output import (
    attributes,
    bytes_text,
    count_text,
    print_grid,
    show,
    time_text,
)
from lakehouse.core.backtest.result import Backtest, SimulatedStep
from lakehouse.core.text import count_of

# Only these back-tests are printed version by version.
_DETAILED = ("given", "in_force", "really")


def backtest_document(backtests: Mapping[str, Backtest]) -> dict[str, Any]:
    """The JSON document of back-tests (docs/reference/json.md)."""
    first = next(iter(backtests.values()))
    return {
        **attributes(first.history, "table", "first_version"),
        "from_the_beginning": first.history.start is None,
        "replays": [_replay(name, backtest) for name, backtest in backtests.items()],
    }


def print_backtests(backtests: Mapping[str, Backtest], *, verbose: bool) -> None:
    """Prints the sums, the versions, and which figures are estimates.

    Without `verbose`, only versions with a compaction are printed.
    """
    detailed = {name: backtest for name, backtest in backtests.items() if name in _DETAILED}
    if len(detailed) < len(backtests):
        _print_lines(backtests)
    else:
        names = [*map(title_of, backtests)]
        print_grid(("", *names), list(_sums([*backtests.values()])), numbers=names)
    for name, backtest in detailed.items():
        title = f", {title_of(name)}" if len(detailed) > 1 else ""
        show()
        show(f"{backtest.history.table}{title}:")
        _print_steps(backtest, verbose=verbose)
    for name, backtest in backtests.items():
        if name != "really":
            for sentence in _uncertainty_of(backtest):
                show(f"{title_of(name)}: {sentence}")


def title_of(name: str) -> str:
    """The name of a back-test as it is printed."""
    return name.replace("_", " ")


def _uncertainty_of(backtest: Backtest) -> Iterator[str]:
    """Sentences about what a replay estimates, and about a log without its oldest versions."""
    uncertainty = backtest.uncertainty
    if backtest.history.start:
        first_version = backtest.history.first_version
        yield (
            f"the log before version {first_version} has been cleaned up, so the replay starts "
            "with the files of that version"
        )
    if uncertainty.modelled_files:
        ratio = uncertainty.shrink_ratio
        estimate = (
            "the sum of their inputs, because the log has no compaction to compare with"
            if ratio is None
            else f"{ratio:.3f} times the sum of their inputs, as in real compactions"
        )
        count = count_of(uncertainty.modelled_files, "merged file")
        yield f"the estimated size of {count} is {estimate}"
    if moved := uncertainty.moved_removals + uncertainty.moved_vectors:
        yield (
            f"writers changed {count_of(moved, 'file')} that the replay has merged otherwise: "
            "in the replay, they also rewrite "
            f"{bytes_text(uncertainty.carried_bytes)} of unchanged rows"
        )
    if count := uncertainty.unclear_compactions:
        yield (
            f"for {count_of(count, 'partition')} of real compactions, the log does not show which "
            "rows went into which file: rows are assigned by size"
        )


def _print_lines(backtests: Mapping[str, Backtest]) -> None:
    """Prints one line per back-test, with its sums."""
    rows = [
        (
            title_of(name),
            count_text(len(each.runs)),
            f"{each.mean_file_count:,.1f}",
            f"{each.seconds:,.1f}",
            bytes_text(each.bytes_rewritten),
            f"{each.usd:,.6f}",
        )
        for name, each in backtests.items()
    ]
    numbers = ("compactions", "mean files", "seconds", "rewritten", "USD")
    print_grid(("policy", *numbers), rows, numbers=numbers)


def _sums(backtests: Sequence[Backtest]) -> Iterator[tuple[str, ...]]:
    """The rows of the table of sums, with one column per back-test."""
    last_steps = [each.steps[-1] if each.steps else None for each in backtests]
    yield ("versions by writers", *(count_text(len(each.steps)) for each in backtests))
    yield ("compactions", *(count_text(len(each.runs)) for each in backtests))
    yield (
        "files, mean ± deviation",
        *(f"{each.mean_file_count:,.1f} ± {each.deviation_file_count:,.1f}" for each in backtests),
    )
    yield ("files at the end", *(count_text(step and step.file_count) for step in last_steps))
    yield (
        "small files at the end",
        *(count_text(step and step.small_file_count) for step in last_steps),
    )
    yield ("bytes ingested", *(bytes_text(each.bytes_ingested) for each in backtests))
    yield ("bytes rewritten", *(bytes_text(each.bytes_rewritten) for each in backtests))
    ratios = [each.write_amplification for each in backtests]
    yield (
        "rewritten per ingested",
        *("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
    )
    yield ("seconds", *(f"{each.seconds:,.1f}" for each in backtests))
    yield ("USD", *(f"{each.usd:,.6f}" for each in backtests))


def _print_steps(backtest: Backtest, *, verbose: bool) -> None:
    shown = [step for step in backtest.steps if step.runs or verbose]
    if not shown:
        show("no compaction at any version")
        return
    heads = (
        "version",
        "time",
        "operation",
        "files",
        "small",
        "bytes",
        "files -",
        "files +",
        "bytes -",
        "why",
    )
    print_grid(
        heads,
        [_row(step) for step in shown],
        numbers=("version", *heads[3:9]),
        style=lambda row: "cyan" if row[6] else "",  # `files -`: empty without a compaction
    )


def _row(step: SimulatedStep) -> tuple[str, ...]:
    runs = step.runs
    counts = (
        count_text(step.file_count),
        count_text(step.small_file_count),
        bytes_text(step.size_bytes),
    )
    changes = ("", "", "")
    if runs:
        changes = (
            count_text(sum(len(run.removed_paths) for run in runs)),
            count_text(sum(len(run.added_paths) for run in runs)),
            bytes_text(sum(run.bytes_removed for run in runs)),
        )
    why = "; then ".join(run.sentence for run in runs) or step.sentence
    return (str(step.version), time_text(step.committed_ms), step.operation, *counts, *changes, why)


def _replay(name: str, backtest: Backtest) -> dict[str, Any]:
    return {
        "name": name,
        "run_count": len(backtest.runs),
        **attributes(backtest, "bytes_ingested", "bytes_rewritten", "write_amplification"),
        **attributes(backtest, "mean_file_count", "deviation_file_count", "seconds", "usd"),
        "estimated": asdict(backtest.uncertainty),
        "versions": [_version(step) for step in backtest.steps],
    }


def _version(step: SimulatedStep) -> dict[str, Any]:
    runs = [
        {
            **attributes(
                run, "at_ms", "sentence", "bytes_removed", "bytes_added", "seconds", "usd"
            ),
            "files_removed": len(run.removed_paths),
            "files_added": len(run.added_paths),
        }
        for run in step.runs
    ]
    names = (
        "version",
        "committed_ms",
        "operation",
        "file_count",
        "small_file_count",
        "size_bytes",
        "row_count",
        "sentence",
    )
    return {
        **attributes(step, *names),
        "reason": step.reason.name if step.reason else None,
        "runs": runs,
    }
