"""Rules of the engine: vacuums."""

RULES = {
    "lakehouse/engine/vacuum/recheck.py": [
        (
            "linked = {each.name for each in going if not is_own(each.name)}",
            "linked = set[str]()",
            ("engine/vacuum/test_meanwhile.py::test_files_whose_folder_was_replaced_by_a_link_to_another_table_s_stay",),
        ),
        (
            "return {each.name for each in candidates if not made.isdisjoint(folders_above(each.name))}",
            "return set()",
            ("engine/vacuum/test_meanwhile.py::test_files_that_a_new_table_took_over_stay",),
        ),
        (
            "now.modified_ms >= too_late_ms or (is_size_known",
            "(is_size_known",
            ("engine/vacuum/test_meanwhile.py::test_a_removed_file_that_is_written_again_and_not_committed_yet_stays",),
        ),
        (
            " or (is_size_known and now.size_bytes != each.size_bytes)",
            "",
            ("engine/vacuum/test_meanwhile.py::test_an_orphan_that_is_replaced_by_another_of_old_times_stays",),
        ),
        (
            'return store.stat(f"{log}/{0:020}.json") is not None if asked[folder] else bool(store.list(log))',
            "return False",
            ("engine/vacuum/test_meanwhile.py::test_files_that_a_new_table_took_over_stay",),
        ),
        (
            "asked = [each for each in going if not self._facts.on_s3 or not written_once(each.name)]",
            "asked = []",
            ("engine/vacuum/test_meanwhile.py::test_a_removed_file_that_is_written_again_and_not_committed_yet_stays",),
        ),
        (
            "        self._ask_the_lake()\n        inside",
            "        inside",
            ("engine/vacuum/test_meanwhile.py::test_what_a_clone_that_was_made_meanwhile_reads_stays",),
        ),
        (
            "        self._ask_the_log()\n        return",
            "        return",
            ("engine/vacuum/test_meanwhile.py::test_a_retention_that_is_raised_meanwhile_holds",),
        ),
        (
            "table_files=log.table_files, log=log.facts)",
            "table_files=log.table_files, log=replace(log.facts, history=self._facts.log.history))",
            ("engine/vacuum/test_meanwhile.py::test_what_was_brought_back_and_removed_again_meanwhile_stays_though_its_tombstone_is_gone",),
        ),
        (
            "        return self._allowed(going)",
            "        return going",
            ("engine/vacuum/test_faults.py::test_writers_beside_take_nothing_from_the_plan_and_a_restore_what_it_needs",),
        ),
    ],
    "lakehouse/engine/vacuum/run.py": [
        (
            '        refuse_owned(lake, table.write.uri, asked=f"vacuum of {table.key}")',
            "        pass",
            ("engine/vacuum/test_adopted.py::test_a_table_of_another_lake_is_not_vacuumed",),
        ),
        (
            "            if has_newer_version(lake, known.facts.log):\n                known, planned = _planned(run, table, mode)\n",
            "",
            ("engine/vacuum/test_lake.py::test_a_commit_before_the_guard_was_taken_is_planned_by",),
        ),
        (
            "sorted({*self.spared, *planned.lent}) if planned.log_only else []",
            "[]",
            ("engine/vacuum/test_adopted.py::test_what_was_borrowed_goes_once_the_clone_is_gone",),
            "what another table reads of an adopted table goes once that table is gone",
        ),
        (
            "    going = agreed(spark, uri, planned.table, planned.candidates)\n",
            "    going = [*planned.candidates]\n",
            ("engine/vacuum/test_meanwhile.py::test_what_delta_keeps_stays",),
        ),
        (
            "rest = recheck.still_going(going)",
            "rest = [*going]",
            ("engine/vacuum/test_meanwhile.py::test_a_retention_that_is_raised_meanwhile_holds",),
        ),
        (
            "if abs(off_ms) > _CLOCK_OFF_MS:",
            "if off_ms > _CLOCK_OFF_MS:",
            ("engine/vacuum/test_faults.py::test_the_clock_of_another_world_stops_the_vacuum",),
        ),
        (" and not planned.left_count\n", "\n", ("engine/vacuum/test_meanwhile.py::test_more_than_one_vacuum_takes_goes_with_the_next",)),
        (
            'planned.mode != "FULL" and any',
            "any",
            ("engine/vacuum/test_s3.py::test_files_that_were_gone_before_make_the_count_an_upper_bound_where_nobody_listed_them",),
        ),
        (
            "    check_clock(lake, table.key)\n    work",
            "    work",
            ("engine/vacuum/test_meanwhile.py::test_a_clock_of_another_world_stops_it_before_anything_goes",),
        ),
        (
            "work.journal(known, planned, is_complete=False)",
            "pass",
            ("engine/vacuum/test_meanwhile.py::test_what_went_before_an_error_is_journalled_and_the_next_vacuum_takes_the_rest",),
        ),
        (
            "rest = recheck.still_going(going)",
            "rest = going if tried else recheck.still_going(going)",
            ("engine/vacuum/test_meanwhile.py::test_a_further_try_is_checked_anew",),
        ),
    ],
    "lakehouse/engine/vacuum/delta.py": [
        (
            "return [each for each in candidates if (each.goes_with or each.name) in names]",
            "return [*candidates]",
            ("engine/vacuum/test_meanwhile.py::test_if_delta_keeps_everything_or_names_another_file_nothing_is_deleted",),
        ),
        (
            "    if own and not names:\n",
            "    if False:\n",
            ("engine/vacuum/test_meanwhile.py::test_if_delta_keeps_everything_or_names_another_file_nothing_is_deleted",),
        ),
        (
            "if strangers := {*answer} - names.keys() - false:",
            "if strangers := set[str]():",
            ("engine/vacuum/test_meanwhile.py::test_if_delta_keeps_everything_or_names_another_file_nothing_is_deleted",),
        ),
        (
            "return {names[path] for path in {*answer} - false}",
            "return {names[path] for path in {*answer}}",
            ("engine/vacuum/test_meanwhile.py::test_what_delta_takes_for_folders_of_a_deep_file_is_no_file_that_it_gives_up",),
        ),
    ],
    "lakehouse/core/vacuum/candidates.py": [
        (
            "plausible_ms(each.modified_ms, now_ms=horizon_ms)",
            "each.modified_ms",
            ("engine/vacuum/test_meanwhile.py::test_a_file_of_a_time_that_cannot_be_stays",),
        ),
    ],
}
