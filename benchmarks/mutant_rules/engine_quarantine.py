"""Rules of the engine: quarantine."""

RULES = {
    "lakehouse/engine/quarantine/isolate.py": [
        (
            "    if no_folder := _NO_FOLDER.search(",
            "    if False and _NO_FOLDER.search(",
            ("engine/quarantine/test_isolate.py::test_a_text_that_is_too_long_for_a_partition_stops_no_table",),
        ),
        (
            "    if not any(state.startswith(_OF_VALUES) for state in states):",
            "    if False:",
            ("engine/quarantine/test_isolate.py::test_only_what_is_about_values_sets_files_aside",),
        ),
        (
            " or told_batch(table.key, facts) >= batch.number",
            "",
            ("engine/quarantine/test_isolate.py::test_a_batch_that_is_in_the_table_loses_no_file_whatever_its_write_says",),
        ),
        (
            "    if not failing:",
            "    if False:",
            ("engine/quarantine/test_isolate.py::test_an_error_that_does_not_come_again_sets_nothing_aside",),
        ),
        (
            "    forget_batch(lake.store, table.key, batch.number)\n",
            "",
            ("long/test_isolate_changes.py::test_a_file_of_changes_stands_alone_and_nothing_that_it_deletes_is_remembered",),
            "deletions of a file that was not loaded are not remembered",
        ),
        (
            " or _holds_a_good_row(rows, table, uri)",
            "",
            ("engine/quarantine/test_isolate.py::test_files_that_each_hold_a_good_row_and_a_bad_one_are_set_aside_and_pin_no_schema",),
            "a batch of which some record can be written is not stopped by its files",
        ),
    ],
    "lakehouse/engine/quarantine/entries.py": [
        (
            "F.when(F.col(_FIELDS) != _fields(table), ",
            "F.when(F.lit(False), ",
            ("engine/quarantine/test_review.py::test_lines_of_csv_are_not_read_again_by_a_declaration_with_their_fields_in_another_order",),
        ),
        (
            '.otherwise(is_same("digest"))',
            '.otherwise(is_same("raw"))',
            ("engine/ingest/test_load.py::test_a_table_made_anew_by_another_declaration_loses_no_line",),
            "a line whose text is staged otherwise by another declaration stands in quarantine once",
        ),
        (
            "    if facts is not None and (has_some or not batch.files):",
            "    if False:",
            ("engine/ingest/test_load.py::test_a_table_made_anew_by_another_declaration_loses_no_line",),
            "a batch that is repeated, and a table that is made anew, put no line into quarantine twice",
        ),
        (
            "    transaction = None if has_some else",
            "    transaction = None if False else",
            ("engine/ingest/test_load.py::test_a_table_made_anew_by_another_declaration_loses_no_line",),
        ),
        (
            "_of_files(table_key, batch).app_id in facts.snapshot.transactions",
            "quarantined_batch(table_key, facts) >= batch.number",
            ("engine/quarantine/test_isolate.py::test_an_overwrite_keeps_its_rows_where_those_of_the_newest_file_cannot_be_written",),
            "a file whose batch is empty without it is quarantined though the run was killed before",
        ),
        (
            "else commit_rows.Transaction(app_id=_app_id(table.key), version=batch.number)",
            "else None",
            ("engine/ingest/test_load.py::test_a_batch_killed_at_any_step_is_there_once_after_the_next_run",),
        ),
        (
            "/{batch.number}-{mark}",
            "/{batch.number}",
            ("engine/quarantine/test_isolate.py::test_a_quarantine_that_is_older_than_the_ledger_gets_the_files_of_each_batch",),
            "files that are taken out of a batch go to a quarantine that knew another batch of its number",
        ),
        (
            "    if not batch.files and not batch.isolated:\n        transaction = _of_files(table.key, batch)\n",
            "",
            ("engine/quarantine/test_isolate.py::test_a_quarantine_that_is_older_than_the_ledger_gets_the_files_of_each_batch",),
            "a batch of refused files alone is done once they are in the quarantine, and not before",
        ),
    ],
    "lakehouse/engine/quarantine/retry_lines.py": [
        (
            '.dropDuplicates([*_LINE, "raw"])',
            "",
            ("engine/quarantine/test_review.py::test_a_retry_killed_around_its_commit_leaves_each_line_in_one_place_after_the_next",),
            "a line that stands in quarantine twice is loaded once",
        ),
        (
            "_parsed(table, _without_older(lines), added)",
            "_parsed(table, lines, added)",
            ("engine/quarantine/test_review.py::test_a_retry_killed_around_its_commit_leaves_each_line_in_one_place_after_the_next",),
            "a line that an older program put into quarantine, too, is loaded once",
        ),
        (
            'good.join(_loaded(spark, target.snapshot), [*_PLACE], "left_anti").select(*good.columns)',
            "good",
            ("engine/quarantine/test_review.py::test_a_retry_killed_around_its_commit_leaves_each_line_in_one_place_after_the_next",),
        ),
        (
            "distinct().count()) < row_count:",
            "distinct().count()) < 0:",
            ("engine/quarantine/test_review.py::test_a_retry_killed_around_its_commit_leaves_each_line_in_one_place_after_the_next",),
            "lines stay in quarantine where the table did not get all of them",
        ),
        (
            "loaded.select(_LINE).distinct()",
            "loaded.select(_LINE)",
            ("engine/quarantine/test_review.py::test_a_retry_killed_around_its_commit_leaves_each_line_in_one_place_after_the_next",),
            "a line that stands in quarantine twice does not stand for another one that the table did not get",
        ),
        (
            'F.when(~is_of_the_declaration(F.col("reason")), F.col("reason"))).alias("problem")',
            'F.lit(None)).alias("problem")',
            ("engine/quarantine/test_review.py::test_a_line_is_loaded_and_a_file_read_again_as_the_table_is_declared_now",),
            "a line whose text may be cut short is never made a row",
        ),
        (
            'marked.where(f"NOT {_OTHER}")',
            "marked",
            (
                "engine/quarantine/test_review.py::test_a_line_of_a_content_that_was_never_loaded_stays_though_another_one_has_a_row_at_its_place",
            ),
            "a line of another content than was loaded stays in quarantine",
        ),
        (
            'F.col("several")',
            "F.lit(False)",
            (
                "engine/quarantine/test_review.py::test_a_line_of_a_content_that_was_never_loaded_stays_though_another_one_has_a_row_at_its_place",
            ),
            "of several contents of a line, where nobody knows which was loaded, none is loaded",
        ),
        (
            "retry_app_id(table.key), 0), *told, 0) + 1",
            "retry_app_id(table.key), 0), 0) + 0",
            ("engine/quarantine/test_review.py::test_lines_that_a_table_is_put_back_without_are_in_its_quarantine_again_and_loaded_once",),
            "lines that are put back into a table after an older copy of it are told of once more",
        ),
    ],
    "lakehouse/engine/quarantine/review.py": [
        (
            "if (batch := unfinished_batch(lake, table, arrived_batch(table, target, ledger), ledger, batches)) is not None:",
            "if (batch := unfinished_batch(lake, table, arrived_batch(table, target, ledger), ledger, batches)) is not None and batch.number < 0:",
            ("engine/quarantine/test_review.py::test_nothing_is_read_again_while_a_batch_is_not_done",),
        ),
        (
            "elif seen is None or seen.is_taken:",
            "elif seen is None:",
            ("engine/quarantine/test_review.py::test_a_line_is_loaded_and_a_file_read_again_as_the_table_is_declared_now",),
            "a file that was loaded and has changed or is gone is not read again",
        ),
    ],
    "lakehouse/engine/spark/statements.py": [
        (
            " AND coalesce({digest} = source.digest, {digest} IS NULL)",
            "",
            (
                "engine/quarantine/test_review.py::test_a_line_of_a_content_that_was_never_loaded_stays_though_another_one_has_a_row_at_its_place",
            ),
            "a line that was loaded takes no line of another content out of the quarantine",
        ),
    ],
    "lakehouse/engine/ingest/load.py": [
        (
            "facts = put_back(lake, spark, table, facts, ledger := batches.ledger(), self._tell)",
            "ledger = batches.ledger()",
            ("engine/quarantine/test_review.py::test_lines_that_a_table_is_put_back_without_are_in_its_quarantine_again_and_loaded_once",),
            "lines that a table is put back without are in its quarantine again",
        ),
    ],
    "lakehouse/core/ingest/ledger_segments.py": [
        (
            "        retried=ledger.retried,",
            "",
            (
                "engine/journal/test_folding.py::test_lines_that_a_table_got_from_its_quarantine_stay_known_when_their_manifests_are_folded_twice",
            ),
            "lines that a table got from its quarantine are known for ever",
        ),
    ],
}
