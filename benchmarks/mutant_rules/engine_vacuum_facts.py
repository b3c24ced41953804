"""Rules of the engine: what is known before a vacuum."""

RULES = {
    "lakehouse/engine/vacuum/lake_facts.py": [
        (
            "self._unshown if self._is_shown_whole(table) else self._listed",
            "set[str]() if self._is_shown_whole(table) else self._listed",
            ("engine/vacuum/test_faults.py::test_an_old_clone_that_no_report_shows_keeps_what_it_reads_though_its_first_commits_are_gone",),
        ),
        (
            " and not self._may_never_have_been(table):",
            " and False:",
            ("engine/vacuum/test_adopted.py::test_nothing_goes_while_the_storage_of_an_adopted_table_may_be_away",),
        ),
        (
            'not self.lake.store.list(f"{_FOUND}/{table}") and ',
            "",
            ("engine/vacuum/test_adopted.py::test_nothing_goes_while_an_adopted_table_is_not_where_a_vacuum_found_it",),
        ),
        (
            "        self._read_tables(self._inside)\n",
            "",
            ("engine/vacuum/test_adopted.py::test_what_a_table_in_its_own_folder_borrows_stays",),
        ),
        (
            "        return bool(young) and not problem",
            "        return not problem",
            ("engine/vacuum/test_adopted.py::test_what_a_deep_clone_borrows_stays_in_a_lake_of_adopted_tables_alone",),
        ),
        (
            '        if "_delta_log" in names:',
            "        if False:",
            ("engine/vacuum/test_places.py::test_a_table_at_the_root_of_the_lake_holds_back_every_vacuum",),
        ),
        (
            "            if self.lake.holds_files(key):",
            "            if False:",
            ("engine/vacuum/test_adopted.py::test_nothing_goes_while_a_table_of_the_lake_is_hidden_behind_the_key_of_one_elsewhere",),
        ),
        (
            "self._unshown if self._is_shown_whole(table) else self._listed",
            "self._unshown",
            ("engine/vacuum/test_faults.py::test_a_clone_that_was_made_where_reports_have_stopped_is_found_by_a_listing",),
        ),
        (
            "if known is None or self.lake.has_moved_on(table, known.facts.newest):",
            "if known is None:",
            ("engine/vacuum/test_lake.py::test_a_commit_between_two_vacuums_of_a_run_is_seen_and_no_other_log_is_read_again",),
        ),
        (
            "return now_ms() - (self._current_ms or 0) >= max(",
            "return False and now_ms() - (self._current_ms or 0) >= max(",
            ("engine/vacuum/test_lake.py::test_a_clone_that_is_made_between_two_vacuums_of_a_run_is_seen_ten_seconds_later",),
        ),
        (
            "            if name != table:\n",
            "            if False:\n",
            ("engine/vacuum/test_meanwhile.py::test_a_neighbour_that_cannot_be_read_any_more_stops_it",),
        ),
        (
            "{*other, *self._unread, *(self._folders() - self._newest.keys())}",
            "{*other, *self._unread}",
            ("engine/vacuum/test_meanwhile.py::test_what_a_clone_that_was_made_meanwhile_reads_stays",),
        ),
        (
            "if not self._was_asked or self._is_old():",
            "if not self._was_asked:",
            ("engine/vacuum/test_meanwhile.py::test_the_neighbours_are_asked_again_while_batches_go",),
        ),
    ],
    "lakehouse/engine/vacuum/log_state.py": [
        (
            ", commits=facts.history.commits, now_ms=now_ms())",
            ")",
            ("engine/vacuum/test_faults.py::test_what_an_older_version_of_a_clone_reads_stays_though_a_checkpoint_dropped_its_tombstone",),
            "the commits of a clone tell what its older versions read where a checkpoint does not any more",
        ),
        (
            "    return lake.has_version(table, known.version + 1)",
            "    return False",
            ("engine/vacuum/test_faults.py::test_writers_beside_take_nothing_from_the_plan_and_a_restore_what_it_needs",),
        ),
    ],
    "lakehouse/engine/vacuum/table_facts.py": [
        (
            "        if log_only and file is not None and file.modified_ms > (each.modified_ms or 0):",
            "        if False:",
            ("engine/vacuum/test_adopted.py::test_a_file_that_was_written_after_its_name_was_removed_is_none_that_the_log_told_of",),
        ),
        (
            " or not is_own(each.key.removeprefix(above))",
            "",
            ("engine/vacuum/test_places.py::test_what_a_removed_name_reaches_through_a_link_is_another_table_s_file_and_stays",),
        ),
        (
            'log_only=isinstance(table.write, Adopted) and table.write.orphans == "keep",',
            "",
            ("engine/vacuum/test_adopted.py::test_what_the_log_never_told_of_stays_unless_a_person_says_that_it_is_the_table_s",),
        ),
        (
            "        unplaced=run.unplaced,\n",
            "",
            ("engine/vacuum/test_places.py::test_what_a_clone_reads_stays_however_it_spells_the_path",),
        ),
        (
            "        landed=run.landed,\n",
            "",
            ("engine/vacuum/test_places.py::test_landed_files_stay_where_the_landing_is_a_link_into_a_table",),
        ),
        (
            "return by_log if known.facts.on_s3 else _on_disk(lake, table, by_log, log_only=known.facts.log_only)",
            "return by_log",
            ("engine/vacuum/test_meanwhile.py::test_a_removed_file_that_was_written_again_before_the_listing_is_not_planned",),
        ),
        (
            "if note is not None and (made :=",
            "if False and (made :=",
            ("engine/vacuum/test_faults.py::test_what_a_compaction_removed_stays_until_its_rows_were_compared",),
        ),
        (
            "since(consumed).between(",
            "log.facts.history.between(",
            (
                "engine/delta_log/test_far_behind.py::test_a_vacuum_keeps_what_a_follower_far_behind_and_an_unverified_compaction_still_read",
            ),
        ),
        (
            "(made := since(note.version).marked(",
            "(made := log.facts.history.marked(",
            (
                "engine/delta_log/test_far_behind.py::test_a_vacuum_keeps_what_a_follower_far_behind_and_an_unverified_compaction_still_read",
            ),
        ),
        (
            "if _ends_before(lake, log, last.version) or is_another",
            "if is_another",
            ("engine/vacuum/test_meanwhile.py::test_a_log_that_was_put_back_since_the_last_vacuum_stops_the_next",),
        ),
        (
            " or is_another(log.facts.history, last.version, last.committed_ms):",
            ":",
            ("engine/vacuum/test_meanwhile.py::test_a_log_that_was_put_back_since_the_last_vacuum_stops_the_next",),
        ),
        (
            "if consumed is not None and _ends_before(run.lake, log, consumed):",
            "if False:",
            ("engine/vacuum/test_meanwhile.py::test_a_reader_that_is_ahead_of_the_log_stops_it",),
        ),
    ],
}
