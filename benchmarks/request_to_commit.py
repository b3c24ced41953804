"""The seconds between the sensor's request for a compaction and its commit, in a running lake."""

import json
from pathlib import Path

from lakehouse_tests.journeys.page import Page


def steps_of(page: Page, home: Path) -> list[dict]:
    """Seconds of each step of every successful compaction by the sensor."""
    done = [
        run
        for run in page.runs()
        if run["status"] == "SUCCESS"
        and run["tags"].get("dagster/sensor_name") == "compaction_sensor"
    ]
    return [row for run in done for row in _run_steps(page, run, home)]


def _run_steps(page: Page, run: dict, home: Path) -> list[dict]:
    events = page.ask(
        """query($id: ID!) { logsForRun(runId: $id) { ... on EventConnection { events { ... on MessageEvent { timestamp eventType }
        ... on MaterializationEvent { assetKey { path }
        metadataEntries { label ... on JsonMetadataEntry { jsonString } } } } } } }""",
        id=run["runId"],
    )["logsForRun"]["events"]
    at = {
        event["eventType"]: int(event["timestamp"]) / 1000
        for event in reversed(events)
        if "eventType" in event
    }
    rows = []
    for event in (event for event in events if event.get("assetKey")):
        key = "/".join(event["assetKey"]["path"]).removeprefix("compaction/")
        documents = {
            entry["label"]: json.loads(entry["jsonString"])
            for entry in event["metadataEntries"]
            if "jsonString" in entry
        }
        figures = documents.get("lakehouse/compaction", {})
        version, optimize = figures.get("version_after"), figures.get("optimize_seconds")
        commit = home / "lake" / key / "_delta_log" / f"{version or 0:020d}.json"
        if not version or optimize is None or not commit.exists():
            continue
        info = next(
            action["commitInfo"]
            for action in map(json.loads, commit.read_text().splitlines())
            if "commitInfo" in action
        )
        committed = info["timestamp"] / 1000
        rows.append(
            {
                "table": key,
                "to_start": at["RUN_START"] - run["creationTime"],
                "start_to_step": at["STEP_START"] - at["RUN_START"],
                "step_to_commit": committed - at["STEP_START"],
                "optimize": float(optimize),
                "over_optimize": committed - run["creationTime"] - float(optimize),
            }
        )
    return rows
