"""Rules of the core: which tables are compacted, and which are held back."""

RULES = {
    "lakehouse/core/scheduling/ranking.py": [
        (
            '    committed = "" if state.committed_ms is None else',
            '    committed = "" if True else',
            ("defs/test_compaction_sensor.py::test_a_table_that_was_made_anew_is_asked_for_though_the_same_version_of_the_old_one_was",),
        ),
        (
            "if (attempt.version, attempt.committed_ms) == (state.version, state.committed_ms)]",
            "if attempt.version == state.version]",
            ("core/scheduling/test_ranking.py::test_one_table",),
        ),
        (
            "    if not 0 <= minutes < policy.cooldown_minutes:",
            "    if minutes >= policy.cooldown_minutes:",
            ("core/scheduling/test_ranking.py::test_a_clock_that_is_set_back_holds_no_table_and_takes_no_place",),
        ),
        (
            "    since = min(now_ms, now_ms if",
            "    since = (now_ms if",
            ("core/scheduling/test_ranking.py::test_a_clock_that_is_set_back_holds_no_table_and_takes_no_place",),
        ),
        (
            "until=until_ms, **numbers) if now_ms < until_ms else None",
            "until=until_ms, **numbers)",
            ("defs/test_compaction_sensor.py::test_a_table_that_nobody_writes_is_asked_for_again_hours_after_its_tries_failed",),
        ),
        ("if ended_ms <= now_ms), default=0)", "), default=0)", ("core/scheduling/test_ranking.py::test_one_table",)),
    ],
    "lakehouse/core/scheduling/circuit_breaker.py": [
        (
            "    return ms if ms <= now_ms else 0",
            "    return ms",
            ("core/scheduling/test_circuit_breaker.py::test_rewrites_and_scans_of_a_clock_that_was_ahead_hold_nothing",),
        ),
    ],
    "lakehouse/defs/fleet_from_events.py": [
        (
            "or 0 <= now_ms - cursor.reported_ms < _LEAST_MS",
            "or now_ms - cursor.reported_ms < _LEAST_MS",
            ("defs/test_fleet_from_events.py::test_a_clock_that_is_set_back_stops_no_report_and_no_compaction",),
        ),
        (
            "if ms is not None and ms <= now_ms]",
            "if ms is not None]",
            ("defs/test_fleet_from_events.py::test_failures_are_seen_though_a_success_lies_ahead_of_the_clock",),
        ),
        (
            "on_s3=lake.on_s3(key),",
            "on_s3=lake.settings.on_s3,",
            ("defs/test_fleet_from_events.py::test_openings_cost_requests_where_the_table_lies_and_not_where_the_journal_does",),
        ),
    ],
    "lakehouse/defs/adoption/observed.py": [
        (
            "table.key in hidden or ",
            "",
            ("defs/adoption/test_observed.py::test_a_table_is_observed_again_when_others_have_told_too_much_of_it_since",),
        ),
    ],
}
