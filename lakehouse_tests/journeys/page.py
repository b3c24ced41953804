"""The page's GraphQL, as far as the journeys need it."""

from typing import Any

import requests

_REPOSITORY = {"repositoryName": "__repository__", "repositoryLocationName": "lakehouse"}


class Page:
    """A running Dagster page at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, query: str, **variables: Any) -> Any:
        """The `data` of an answer; an error in it is an assertion failure."""
        answer = requests.post(
            f"{self.url}/graphql", json={"query": query, "variables": variables}, timeout=30
        ).json()
        assert "errors" not in answer, answer["errors"]
        return answer["data"]

    def answers(self) -> bool:
        """Whether the page answers, with or without its code."""
        try:
            return requests.get(f"{self.url}/server_info", timeout=30).ok
        except requests.RequestException:
            return False

    def is_up(self) -> bool:
        """Whether the page answers and every code location has loaded."""
        try:
            entries = self.ask(
                "{ workspaceOrError { ... on Workspace { locationEntries { loadStatus locationOrLoadError { __typename } } } } }"
            )
        except requests.RequestException:
            return False
        found = entries["workspaceOrError"]["locationEntries"]
        return bool(found) and all(
            (entry["locationOrLoadError"] or {}).get("__typename") == "RepositoryLocation"
            for entry in found
        )

    def runs(self) -> list[dict[str, Any]]:
        """Every run, newest first: runId, status, times, tags as a dict, assets as keys."""
        found = self.ask(
            """{ runsOrError(limit: 1000) { ... on Runs { results {
            runId status startTime endTime creationTime tags { key value } assetSelection { path } } } } }"""
        )["runsOrError"]["results"]
        for run in found:
            run["tags"] = {tag["key"]: tag["value"] for tag in run["tags"]}
            run["assets"] = {"/".join(key["path"]) for key in run["assetSelection"] or []}
        return found

    def sensors(self) -> dict[str, dict[str, Any]]:
        """Each sensor by name: id, status, its latest ticks, newest first."""
        found = self.ask(
            """query($at: RepositorySelector!) { sensorsOrError(repositorySelector: $at) { ... on Sensors { results { name sensorState {
            id selectorId status ticks(limit: 20) { timestamp status skipReason runIds error { message } } } } } } }""",
            at=_REPOSITORY,
        )["sensorsOrError"]["results"]
        return {sensor["name"]: sensor["sensorState"] for sensor in found}

    def materialize(self, key: str) -> str:
        """Launches a run of one asset, as the button does; the run's id."""
        answer = self.ask(
            """mutation($at: JobOrPipelineSelector!) { launchRun(executionParams: {selector: $at, runConfigData: {}}) {
            __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }""",
            at={
                **_REPOSITORY,
                "pipelineName": "__ASSET_JOB",
                "assetSelection": [{"path": key.split("/")}],
            },
        )["launchRun"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return answer["run"]["runId"]

    def checks(self) -> dict[str, bool]:
        """Every check that there is, `asset:check`, and whether its latest verdict is that it passed; false also if it never ran."""
        nodes = self.ask(
            """{ assetNodes { assetKey { path } assetChecksOrError { ... on AssetChecks { checks { name
            executionForLatestMaterialization { status evaluation { success } } } } } } }"""
        )["assetNodes"]
        return {
            f"{'/'.join(node['assetKey']['path'])}:{check['name']}": bool(
                latest and latest["evaluation"] and latest["evaluation"]["success"]
            )
            for node in nodes
            for check in node["assetChecksOrError"].get("checks", [])
            for latest in [check["executionForLatestMaterialization"]]
        }

    def materializations(self, key: str) -> list[tuple[int, str]]:
        """Each materialization of an asset in order of time: when, in ms, and the id of its run."""
        asset = self.ask(
            """query($key: AssetKeyInput!) { assetOrError(assetKey: $key) { ... on Asset {
            assetMaterializations(limit: 500) { timestamp runId } } } }""",
            key={"path": key.split("/")},
        )["assetOrError"]
        return sorted(
            (int(event["timestamp"]), event["runId"])
            for event in asset.get("assetMaterializations", ())
        )

    def file_counts(self, key: str) -> list[int]:
        """`lakehouse/file_count` of a table in order of time, materializations and observations joined."""
        events = self.ask(
            """query($key: AssetKeyInput!) { assetOrError(assetKey: $key) { ... on Asset {
            assetMaterializations(limit: 500) { timestamp metadataEntries { label ... on IntMetadataEntry { intValue } } }
            assetObservations(limit: 500) { timestamp metadataEntries { label ... on IntMetadataEntry { intValue } } } } } }""",
            key={"path": key.split("/")},
        )["assetOrError"]
        both = sorted(
            events["assetMaterializations"] + events["assetObservations"],
            key=lambda event: int(event["timestamp"]),
        )
        return [
            entry["intValue"]
            for event in both
            for entry in event["metadataEntries"]
            if entry["label"] == "lakehouse/file_count"
        ]
