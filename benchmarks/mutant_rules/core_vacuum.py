"""Rules of the core: vacuums."""

RULES = {
    "lakehouse/core/vacuum/facts.py": [
        (
            '() if mode == "LITE" and facts.adopted else tuple(',
            "tuple(",
            ("engine/vacuum/test_adopted.py::test_files_of_an_old_table_in_a_partition_s_folder_stay_though_its_first_commits_are_gone",),
        ),
        (
            'mode == "LITE" and facts.adopted',
            'mode == "LITE" and facts.log_only',
            ("engine/vacuum/test_adopted.py::test_files_of_an_old_table_in_a_partition_s_folder_stay_though_its_first_commits_are_gone",),
            "an old table in a partition's folder is found whatever is said of the adopted table's orphans",
        ),
        (
            """name_in_table(path) or f"/{unquote(path).rpartition('/')[2]}" for path in""",
            "name_in_table(path) or '' for path in",
            ("engine/vacuum/test_places.py::test_what_an_older_version_reads_by_another_way_stays_though_its_tombstone_is_gone",),
        ),
        (
            "    if facts.log_only and facts.older_commits and not log_covers(facts):",
            "    if False:",
            ("core/vacuum/test_plan.py::test_where_the_log_alone_decides_it_is_read_back_to_the_last_complete_vacuum",),
        ),
        (
            "return _WRITTEN_ONCE.fullmatch(name) is not None",
            "return True",
            ("core/vacuum/test_plan.py::test_only_names_of_a_writer_s_own_are_written_once",),
        ),
        (
            "(name for name in (*last.failed, *last.kept) if name in facts.table_files.stones or written_once(name))",
            "last.failed",
            ("core/vacuum/test_plan.py::test_the_log_alone_tells_what_was_removed_since_the_last_vacuum",),
        ),
        (
            'if each.is_complete and each.mode != "LITE"',
            "if each.is_complete",
            ("core/vacuum/test_plan.py::test_the_cheapest_valid_mode_is_taken",),
        ),
        (
            "(*commit.removed_paths, *commit.change_paths)",
            "commit.removed_paths",
            ("engine/vacuum/test_faults.py::test_change_data_stays_with_its_commit_however_long_that_took",),
        ),
        (
            "if each.is_complete), None)\n\n    @property\n    def last_sweep",
            "), None)\n\n    @property\n    def last_sweep",
            ("core/vacuum/test_plan.py::test_the_log_alone_tells_what_was_removed_since_the_last_vacuum",),
        ),
        ("commits[0].committed_ms <= last.horizon_ms", "True", ("core/vacuum/test_plan.py::test_the_cheapest_valid_mode_is_taken",)),
        (
            " and not names.isdisjoint(self._older)",
            " and False",
            ("core/vacuum/test_plan.py::test_a_file_without_a_tombstone_is_looked_for_in_commits_below_the_known_history",),
        ),
        (
            "for path in chain(paths, vectors))",
            "for path in paths)",
            ("core/vacuum/test_plan.py::test_a_deletion_vector_of_a_removed_file_is_looked_for_there_too",),
        ),
        (
            "    return removed_ms or (since_ms if written_once(name) else 0)",
            "    return since_ms",
            ("core/vacuum/test_plan.py::test_the_log_alone_tells_what_was_removed_since_the_last_vacuum",),
            "a file that failed or was kept is known by the time of its removal",
        ),
    ],
    "lakehouse/core/vacuum/plan.py": [
        (
            "        explanation=explanation if candidates else Reason.ALL_STAY.explain(files=len(planned.candidates)),",
            "explanation=planned.explanation,",
            ("engine/vacuum/test_faults.py::test_a_dry_run_takes_the_last_look_too",),
            "the sentence of a dry run is that of the files that would go",
        ),
        (
            "    if unknown := unknown_features(facts.log.snapshot.features):",
            "    if unknown := []:",
            ("engine/vacuum/test_adopted.py::test_under_a_feature_that_is_not_known_nothing_is_planned",),
        ),
        ("    _refuse_unsafe(facts, policy)\n", "", ("core/vacuum/test_plan.py::test_a_table_that_may_not_be_vacuumed_is_refused",)),
        (
            " and not policy.accepts_short_retention:",
            " and False:",
            ("engine/vacuum/test_faults.py::test_a_short_retention_needs_the_word_of_a_person",),
        ),
        (
            "    if not lacking:\n",
            "    if True:\n",
            ("core/vacuum/test_plan.py::test_a_report_without_a_live_file_is_refused_and_storage_without_one_is_broken",),
        ),
        (
            "if self._allows_any and self._allows(each)",
            "if self._allows(each)",
            ("core/vacuum/test_plan.py::test_what_later_facts_need_is_not_doomed_any_more",),
        ),
        (
            "_classifier(facts, now_ms=now_ms, horizon_ms=horizon_ms)\n        self._late",
            "_classifier(facts, now_ms=horizon_ms + (facts.table_files.retention_ms or 0), horizon_ms=horizon_ms)\n        self._late",
            ("core/vacuum/test_plan.py::test_what_later_facts_need_is_not_doomed_any_more",),
        ),
        (
            "classifier = _classifier(facts, now_ms=now_ms, horizon_ms=facts.held_ms)",
            "classifier = _classifier(facts, now_ms=now_ms, horizon_ms=None)",
            ("core/vacuum/test_plan.py::test_what_readers_have_not_read_stays_and_they_are_named",),
        ),
        (
            ", unplaced=facts.unplaced, landed=facts.landed)",
            ", landed=facts.landed)",
            ("core/vacuum/test_plan.py::test_what_later_facts_need_is_not_doomed_any_more",),
        ),
        (
            ", unplaced=facts.unplaced, landed=facts.landed)",
            ", unplaced=facts.unplaced)",
            ("core/vacuum/test_plan.py::test_landed_files_below_a_table_stay_and_are_told_of",),
        ),
        (
            " in RECLAIMABLE and not self._late.holds(name)",
            " in RECLAIMABLE",
            ("core/vacuum/test_plan.py::test_what_later_facts_need_is_not_doomed_any_more",),
        ),
    ],
    "lakehouse/core/vacuum/mode.py": [
        (
            '    if facts.log_only and mode != "LITE":\n',
            "    if False:\n",
            ("engine/vacuum/test_adopted.py::test_what_the_log_never_told_of_stays_unless_a_person_says_that_it_is_the_table_s",),
        ),
        (
            "if not log_covers(facts) and not facts.log_only:",
            "if False:",
            ("core/vacuum/test_plan.py::test_the_cheapest_valid_mode_is_taken",),
        ),
        (
            "if last is not None and report.created_ms <= last.ended_ms <= now_ms:",
            "if False:",
            ("core/vacuum/test_plan.py::test_the_cheapest_valid_mode_is_taken",),
        ),
        ("if age > policy.max_report_hours:", "if False:", ("core/vacuum/test_plan.py::test_the_cheapest_valid_mode_is_taken",)),
        (
            "if going > MOST_FILES:",
            "if False:",
            ("core/vacuum/test_plan.py::test_a_log_that_removed_more_than_one_vacuum_takes_is_no_reason_for_lite",),
        ),
        (
            "_EARLY = 0.9",
            "_EARLY = 1.0",
            ("core/vacuum/test_plan.py::test_a_daily_sweep_is_not_put_off_by_a_day_since_a_vacuum_began_a_little_early",),
        ),
    ],
    "lakehouse/core/vacuum/candidates.py": [
        (
            "modified_ms is None or modified_ms >= horizon_ms",
            "(modified_ms or 0) >= horizon_ms",
            ("core/vacuum/test_plan.py::test_what_stays_whatever_it_is",),
        ),
        (
            "modified_ms is None or modified_ms >= horizon_ms",
            "modified_ms is None",
            ("core/vacuum/test_plan.py::test_what_stays_whatever_it_is",),
        ),
        ('return {"", ".", ".."}.isdisjoint(own.split("/"))', "return True", ("core/vacuum/test_plan.py::test_what_stays_whatever_it_is",)),
        (
            "elif (owner := self._owners.table_of(name)) != table:",
            "elif (owner := self._owners.table_of(name)) is None:",
            ("core/vacuum/test_plan.py::test_what_stays_whatever_it_is",),
        ),
        (
            "self._nested |= table_roots([own])",
            "pass",
            ("engine/vacuum/test_faults.py::test_a_table_that_was_made_inside_the_folder_since_the_report_keeps_its_files",),
        ),
        ("elif _ODD.match(own):", "elif False:", ("core/vacuum/test_plan.py::test_a_name_that_cannot_be_told_stays_alone_and_is_told_of",)),
        (
            "self._lead_ms <= -_ZONE_MS",
            "self._lead_ms <= -100 * _ZONE_MS",
            ("engine/vacuum/test_faults.py::test_a_report_that_cannot_be_trusted_is_refused_and_a_listing_does_instead",),
        ),
        (
            "if len(self._going) >= MOST_FILES and candidate.name not in self._going:",
            "if False:",
            ("core/vacuum/test_plan.py::test_a_plan_holds_so_many_files_and_counts_the_others",),
        ),
        (
            "Random(facts.last.ended_ms if facts.last else 0)",
            "Random(0)",
            ("core/vacuum/test_plan.py::test_files_that_never_go_do_not_keep_the_others_for_ever",),
        ),
        (
            "if part not in RECLAIMABLE or modified_ms is None",
            "if modified_ms is None",
            ("core/vacuum/test_plan.py::test_what_stays_whatever_it_is",),
        ),
        (
            "modified_ms >= horizon_ms or self._late.holds(own):",
            "modified_ms >= horizon_ms:",
            ("core/vacuum/test_plan.py::test_what_a_version_within_the_retention_or_another_table_may_read_stays",),
        ),
    ],
}
