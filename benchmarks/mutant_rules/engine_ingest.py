"""Rules of the engine: records and writes."""

RULES = {
    "lakehouse/engine/spark/key_range.py": [
        (
            "    kept: Any = rows.localCheckpoint()",
            "    kept: Any = rows.select('*')",
            ("engine/spark/test_key_range.py::test_the_rows_that_are_merged_are_those_that_the_range_was_taken_of",),
            "the rows that are merged are those that their range was taken of",
        ),
        (
            'bytes(value).decode("ascii")',
            'bytes(value).decode("utf-8")',
            ("engine/spark/test_key_range.py::test_no_row_is_doubled_whatever_the_key",),
            "a text with other signs than ASCII at an end bounds nothing",
        ),
        (
            "(least, most, nulls) in found if not nulls]",
            "(least, most, nulls) in found]",
            ("engine/spark/test_key_range.py::test_no_row_is_doubled_whatever_the_key",),
            "a key that is null somewhere bounds nothing",
        ),
        (
            "lambda end: F.unix_micros(end)",
            "lambda end: F.unix_seconds(end) * 1_000_000",
            ("engine/spark/test_key_range.py::test_no_row_is_doubled_whatever_the_key",),
        ),
    ],
    "lakehouse/engine/ingest/write.py": [
        (
            " or increments.is_another(commits, consumed, increments.read_ms_of(_commits_of(lake, target), app_id, consumed))",
            "",
            ("engine/delta_log/test_far_behind.py::test_another_commit_in_the_place_of_the_one_that_was_read_long_ago_is_broken",),
            "what was consumed of an input is known by its commit",
        ),
        (
            "driver.history if consumed is None else history_since(lake.store, driver.history, consumed - 1)",
            "driver.history",
            ("engine/delta_log/test_far_behind.py::test_who_is_far_behind_reads_the_changes_since_and_not_all",),
        ),
        (
            "app_id in commit.applications for commit in _commits_of(lake, target)",
            "app_id in commit.applications for commit in (target.history.commits if target else ())",
            ("engine/delta_log/test_far_behind.py::test_who_followed_long_ago_is_still_known_to_follow",),
        ),
        (
            "consumed > version or increments.is_another(",
            "consumed > version + 1 or increments.is_another(",
            ("engine/delta_log/test_far_behind.py::test_an_input_that_is_older_than_what_was_read_of_it_is_broken",),
        ),
        (
            '            return not any(f"{snapshot.uri}/',
            '            return True or any(f"{snapshot.uri}/',
            ("engine/ingest/test_write.py::test_changes_are_gone_where_the_cause_says_so",),
        ),
        (
            "condition == _FILE_GONE and any(",
            'condition.startswith("FAILED_READ_FILE") and any(',
            ("engine/ingest/test_write.py::test_changes_are_gone_where_the_cause_says_so",),
        ),
        (
            "    for text, condition in causes_of(error):",
            "    for text, condition in causes_of(error)[:1]:",
            ("engine/ingest/test_write.py::test_changes_are_gone_where_the_cause_says_so",),
        ),
        (
            "history = facts.history if version is None else history_since(lake.store, facts.history, version - 1)",
            "history = facts.history",
            ("engine/delta_log/test_far_behind.py::test_an_overwrite_of_long_ago_is_not_done_again_for_nothing",),
        ),
        (
            "else newest_first(lake.store, target.history)",
            "else reversed(target.history.commits)",
            (
                "engine/delta_log/test_far_behind.py::test_an_overwrite_of_long_ago_is_not_done_again_for_nothing",
                "engine/delta_log/test_far_behind.py::test_another_commit_in_the_place_of_the_one_that_was_read_long_ago_is_broken",
            ),
            "what was consumed of an input long ago is known by its commit",
        ),
        (
            '.option("startingVersion", first).option("endingVersion", upto)',
            '.option("startingVersion", first)',
            ("engine/ingest/test_write.py::test_what_is_written_while_a_run_reads_is_left_to_the_next_run",),
        ),
        (
            "                commit_rows.write_rows(lake, table, rows, transaction)",
            "                commit_rows.write_rows(lake, table, rows)",
            ("engine/ingest/test_write.py::test_a_run_killed_at_its_commit_leaves_each_row_once",),
        ),
        (
            "**READ_WHOLE, ",
            "",
            (
                "engine/ingest/test_write.py::test_a_file_of_an_input_that_cannot_be_read_is_never_passed_over_whatever_the_server_is_set_to",
            ),
        ),
        (
            ", KEYS: increments.merge_keys(table)}",
            "}",
            ("engine/ingest/test_write.py::test_a_table_whose_write_is_declared_anew_gets_no_row_twice",),
            "a commit of rows tells the keys that they were merged by",
        ),
        (
            "    if version is not None and increments.is_another(history, version, read_ms):\n        version = None\n",
            "",
            ("engine/delta_log/test_far_behind.py::test_an_overwrite_of_long_ago_is_not_done_again_for_nothing",),
            "an overwrite sees another commit in the place of the one that it read",
        ),
        (
            ", increments.committed_ms(facts.history, version)]",
            "]",
            ("engine/ingest/test_write.py::test_an_older_copy_of_an_input_is_seen_also_after_it_was_written_to",),
            "an overwrite tells when the versions that it read were committed",
        ),
        (
            "sorted({key for key, _ in consumed} - self.inputs.keys())",
            "()",
            ("engine/ingest/test_write.py::test_an_overwrite_follows_each_of_its_inputs_and_somebody_elses_write",),
            "an overwrite is done again when an input is declared no more",
        ),
    ],
    "lakehouse/engine/ingest/misread.py": [
        (
            'found | raw.contains("\\\\") | ~is_object',
            "found",
            ("engine/ingest/test_formats.py::test_a_value_that_spark_would_read_as_another_one_goes_to_quarantine",),
            "values and names that are told by escapes are looked at, too",
        ),
        (
            "        why = why.when(is_too_large(raw, name, value(name)), UNFIT)",
            "        pass",
            ("engine/ingest/test_formats.py::test_a_value_that_spark_would_read_as_another_one_goes_to_quarantine",),
            "a number that is too large for a FLOAT or DOUBLE does not become infinite",
        ),
        (
            ' | (_is_endless(value) & text.rlike(r"\\d"))',
            "",
            ("engine/ingest/test_formats.py::test_a_value_that_spark_would_read_as_another_one_goes_to_quarantine",),
            "a number in CSV that is too large for a FLOAT or DOUBLE does not become infinite",
        ),
    ],
    "lakehouse/engine/ingest/parse_lines.py": [
        (
            "    why = why_misread(why, landing, F.col(RAW), _text, _value)",
            "    pass",
            ("engine/ingest/test_formats.py::test_a_value_that_spark_would_read_as_another_one_goes_to_quarantine",),
        ),
        (
            ', "enableDateTimeParsingFallback": "false"',
            "",
            ("engine/ingest/test_formats.py::test_a_value_that_spark_would_read_as_another_one_goes_to_quarantine",),
            "digits alone are no date in a nested type, either",
        ),
        (
            'F.when(text == "", ',
            "F.when(F.lit(False), ",
            ("engine/ingest/test_formats.py::test_an_empty_text_in_a_partition_column_goes_to_quarantine_and_does_not_become_null",),
        ),
        (
            ".when(text == _HIVE_NULL, ",
            ".when(F.lit(False), ",
            ("engine/ingest/test_formats.py::test_an_empty_text_in_a_partition_column_goes_to_quarantine_and_does_not_become_null",),
            "a text by which Delta means null in a partition column does not become null",
        ),
        (
            "        why = why.when(is_too_large(",
            "        continue\n        why = why.when(is_too_large(",
            ("engine/ingest/test_new_columns.py::test_an_added_column_keeps_its_type_and_is_there_once_after_kills",),
            "a number that is too large for an added column goes to quarantine",
        ),
    ],
    "lakehouse/engine/ingest/landed_rows.py": [
        (
            "        for _ in read(data, max_content_bytes):\n            pass",
            "        for _ in ():\n            pass",
            ("engine/ingest/test_landed_rows.py::test_a_damaged_file_gives_no_row_at_all",),
            "a damaged Parquet or Avro file gives no row at all",
        ),
        (
            ', coerce_int96_timestamp_unit="us"',
            "",
            ("engine/ingest/test_landed_rows.py::test_times_far_away_are_themselves_or_make_a_file_unreadable",),
        ),
        (
            "{str(_plain(name)): _plain(each)",
            "{str(name): _plain(each)",
            ("engine/ingest/test_landed_rows.py::test_what_json_has_no_word_for_is_written_so_that_spark_reads_it_back",),
            "a key of bytes in a map is written as its bytes are",
        ),
    ],
    "lakehouse/engine/ingest/commit_rows.py": [
        (
            "history_since(lake.store, after.history, known).commits",
            "after.history.commits",
            ("engine/delta_log/test_far_behind.py::test_rows_of_any_number_of_batches_are_counted",),
        ),
        (
            "{TRANSACTION_APP: transaction.app_id, TRANSACTION_VERSION: str(transaction.version)}",
            "{}",
            ("engine/ingest/test_write.py::test_a_run_killed_at_its_commit_leaves_each_row_once",),
        ),
        (
            ' if name.startswith("delta.")}',
            " if False}",
            ("engine/ingest/test_load.py::test_declared_properties_are_set_at_once_and_when_they_change",),
        ),
    ],
    "lakehouse/engine/ingest/table_properties.py": [
        (
            "if (was := snapshot.properties.get(CHANGE_KEYS)) is not None and",
            "if (was := snapshot.properties.get(CHANGE_KEYS)) is None and",
            ("engine/ingest/test_table_properties.py::test_change_data_is_merged_by_the_keys_that_the_table_was_made_with",),
            "change data is merged by the keys of before",
        ),
        (
            " if there.get(name) != value}",
            "}",
            ("engine/ingest/test_table_properties.py::test_a_table_that_has_what_it_needs_gets_no_commit",),
        ),
        (
            "    if LOG_RETENTION not in table.properties and _is_longer(there.get(LOG_RETENTION), wanted.get(LOG_RETENTION)):\n        del wanted[LOG_RETENTION]\n",
            "",
            ("engine/ingest/test_table_properties.py::test_a_table_whose_loaded_files_are_deleted_keeps_its_log_for_longer",),
            "a log that somebody keeps for longer is not cut to what a declaration needs",
        ),
    ],
    "lakehouse/engine/lake.py": [
        (
            "        if newest is not None and self.changed(key, newest):\n            return True\n",
            "",
            ("engine/ingest/test_retire.py::test_what_happens_between_plan_and_deletion_is_seen_by_the_last_look",),
            "a log that was put back between plan and deletion is read again",
        ),
    ],
    "lakehouse/core/ingest/increments.py": [
        (
            "written.get(KEYS, keys) != keys",
            "False",
            ("engine/delta_log/test_far_behind.py::test_rows_that_were_written_in_another_way_are_not_added_to",),
            "rows that were merged by other keys, or appended, are not merged into",
        ),
        (
            "if INPUTS in written or (is_increment",
            "if (is_increment",
            ("engine/delta_log/test_far_behind.py::test_rows_that_were_written_in_another_way_are_not_added_to",),
            "nothing is appended to rows that an overwrite wrote, or merged into them",
        ),
    ],
}
