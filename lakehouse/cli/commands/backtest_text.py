"""What a back-test looks like: the documented JSON, and the tables and the picture in letters that a person sees."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from lakehouse.cli.output import attributes, bytes_text, count_text, print_grid, show, time_text
from lakehouse.core.backtest.bill import Bill
from lakehouse.core.backtest.result import Backtest, SimulatedCompaction, SimulatedStep
from lakehouse.report.chart import Series, text_chart

# Told version by version, side by side; the strategies of a table's past stand below each other, by their sums alone.
_TOLD = ("given", "in_force", "really")


def backtest_document(found: Mapping[str, Backtest]) -> dict[str, Any]:
    """The documented shape."""
    first = next(iter(found.values()))
    return {
        **attributes(first, "table", "first_version", "from_the_beginning"),
        "best": first.best.as_json() if first.best else None,
        "replays": [_replay(name, backtest) for name, backtest in found.items()],
    }


def print_backtests(found: Mapping[str, Backtest], *, verbose: bool) -> None:
    """In sum, then version by version, then files over versions, then what was estimated."""
    told = {name: backtest for name, backtest in found.items() if name in _TOLD}
    if len(told) < len(found):
        print_grid(heads := [*_heads(found)], list(_lines(found)), numbers=heads[1:])
    else:
        names = [*map(title_of, found)]
        print_grid(("", *names), list(_sums(found)), numbers=names)
    best = next(iter(found.values())).best
    if best:
        show(f"the best schedule in hindsight: {best.sentence}")
    for name, backtest in told.items():
        show()
        show(f"{backtest.table}, {title_of(name)}:" if len(told) > 1 else f"{backtest.table}:")
        _print_steps(backtest, verbose=verbose)
    show()
    show("files over versions")
    for line in text_chart(series_of(told or found)):
        show(line)
    for name, backtest in found.items():
        for doubt in uncertainty_of(backtest) if name != "really" else ():
            show(f"{title_of(name)}: {doubt}")


def title_of(name: str) -> str:
    """The name of a back-test as a person reads it."""
    return name.replace("_", " ")


def uncertainty_of(backtest: Backtest) -> Iterator[str]:
    """What of a replay is estimated, a sentence each; none where it is exact."""
    uncertainty = backtest.uncertainty
    if not backtest.from_the_beginning:
        yield f"the log before version {backtest.first_version} is cleaned up, so the replay starts with the files of that version"
    if uncertainty.modelled_files:
        how = (
            "by none, since the log has no compaction"
            if uncertainty.shrink_ratio is None
            else f"to {uncertainty.shrink_ratio:.3f} as real ones did"
        )
        yield f"the sizes of {uncertainty.modelled_files} merged file(s) are estimated: they shrink {how}"
    if uncertainty.moved_removals or uncertainty.moved_vectors:
        yield (
            f"writers changed {uncertainty.moved_removals + uncertainty.moved_vectors} file(s) whose rows lie otherwise in the replay: "
            f"all files with such rows are taken, and {bytes_text(uncertainty.carried_bytes)} beside them written again by the writers"
        )
    if uncertainty.unclear_compactions:
        count = uncertainty.unclear_compactions
        yield f"for {count} real compaction(s) the log does not tell which file got which row: rows are assigned by size"


def series_of(found: Mapping[str, Backtest]) -> list[Series]:
    """One line per replay: its file count over the versions."""
    return [
        Series(name=title_of(name), points=[(step.version, step.file_count) for step in backtest.steps]) for name, backtest in found.items()
    ]


def _heads(found: Mapping[str, Backtest]) -> Iterator[str]:
    yield from ("policy", "compactions", "mean files", "seconds")
    yield from ("readers lost", "both, USD", "× best") if next(iter(found.values())).bill else ("rewritten", "USD")


def _lines(found: Mapping[str, Backtest]) -> Iterator[tuple[str, ...]]:
    for name, each in found.items():
        counted = (title_of(name), count_text(len(each.runs)), f"{each.mean_file_count:,.1f}", f"{each.seconds:,.1f}")
        if (bill := each.bill) is None or each.best is None:
            yield (*counted, bytes_text(each.bytes_rewritten), f"{each.usd:,.6f}")
        else:
            yield (*counted, f"{bill.readers_seconds:,.1f} s", f"{bill.usd:,.6f}", _times(bill, each.best))


def _sums(found: Mapping[str, Backtest]) -> Iterator[tuple[str, ...]]:
    backtests = list(found.values())
    yield ("versions by writers", *(count_text(len(each.steps)) for each in backtests))
    yield ("compactions", *(count_text(len(each.runs)) for each in backtests))
    yield ("files, mean ± deviation", *(f"{each.mean_file_count:,.1f} ± {each.deviation_file_count:,.1f}" for each in backtests))
    yield ("files at the end", *(count_text(each.steps[-1].file_count if each.steps else None) for each in backtests))
    yield ("small files at the end", *(count_text(each.steps[-1].small_file_count if each.steps else None) for each in backtests))
    yield ("bytes ingested", *(bytes_text(each.bytes_ingested) for each in backtests))
    yield ("bytes rewritten", *(bytes_text(each.bytes_rewritten) for each in backtests))
    yield ("rewritten per ingested", *("-" if (ratio := each.write_amplification) is None else f"{ratio:.2f}" for each in backtests))
    yield ("seconds", *(f"{each.seconds:,.1f}" for each in backtests))
    yield ("USD", *(f"{each.usd:,.6f}" for each in backtests))
    bills = [each.bill for each in backtests if each.bill]
    if bills and (best := backtests[0].best):
        yield ("seconds that readers lost", *(f"{bill.readers_seconds:,.1f}" for bill in bills))
        yield ("upkeep and readers, USD", *(f"{bill.usd:,.6f}" for bill in bills))
        yield ("times the best in hindsight", *(_times(bill, best) for bill in bills))


def _times(bill: Bill, best: Bill) -> str:
    return "-" if (times := bill.times(best)) is None else f"{times:.2f}"


def _print_steps(backtest: Backtest, *, verbose: bool) -> None:
    shown = [step for step in backtest.steps if step.runs or verbose]
    if not shown:
        show("no compaction at any version")
        return
    heads = ("version", "time", "operation", "files", "small", "bytes", "files -", "files +", "bytes -", "why")
    print_grid(heads, [_row(step) for step in shown], numbers=("version", *heads[3:9]), style=lambda row: "cyan" if row[6] else "")


def _row(step: SimulatedStep) -> tuple[str, ...]:
    runs = step.runs
    counts = (count_text(step.file_count), count_text(step.small_file_count), bytes_text(step.size_bytes))
    removed, added = sum(len(run.removed_paths) for run in runs), sum(len(run.added_paths) for run in runs)
    done = (count_text(removed), count_text(added), bytes_text(sum(run.bytes_removed for run in runs))) if runs else ("", "", "")
    why = "; then ".join(run.sentence for run in runs) or step.sentence
    return (str(step.version), time_text(step.committed_ms), step.operation, *counts, *done, why)


def _replay(name: str, backtest: Backtest) -> dict[str, Any]:
    return {
        "name": name,
        "run_count": len(backtest.runs),
        **attributes(backtest, "bytes_ingested", "bytes_rewritten", "write_amplification"),
        **attributes(backtest, "mean_file_count", "deviation_file_count", "seconds", "usd"),
        "bill": backtest.bill.as_json() if backtest.bill else None,
        "estimated": asdict(backtest.uncertainty),
        "versions": [_version(step) for step in backtest.steps],
    }


def _version(step: SimulatedStep) -> dict[str, Any]:
    return {
        **attributes(step, "version", "committed_ms", "operation", "file_count", "small_file_count", "size_bytes", "row_count"),
        "reason": step.reason.name if step.reason else None,
        "sentence": step.sentence,
        "runs": [_run(run) for run in step.runs],
    }


def _run(run: SimulatedCompaction) -> dict[str, Any]:
    return {
        **attributes(run, "at_ms", "sentence", "bytes_removed", "bytes_added", "seconds", "usd"),
        "files_removed": len(run.removed_paths),
        "files_added": len(run.added_paths),
    }
