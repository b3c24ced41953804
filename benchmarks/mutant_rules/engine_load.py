"""Rules of the engine: loads of landed files, batch by batch."""

RULES = {
    "lakehouse/engine/ingest/staging.py": [
        (
            ' and batch.shape in ("", _shape(landing)):',
            ":",
            ("engine/ingest/test_staging.py::test_records_are_staged_anew_where_the_declaration_would_stage_them_otherwise",),
        ),
        (
            'if now.size_bytes != file.size_bytes or file.digest not in ("", now.digest):',
            "if False:",
            ("engine/ingest/test_load.py::test_a_batch_that_was_killed_has_the_records_that_were_read_whatever_becomes_of_its_files",),
        ),
        (
            'problem or "not UTF-8"',
            "problem",
            ("engine/ingest/test_bad_input.py::test_every_record_of_the_corpus_and_of_drawn_files_is_a_row_or_in_quarantine",),
        ),
    ],
    "lakehouse/engine/ingest/arrival.py": [
        (
            "    if arrived is None and not ledger.last_taken and facts.snapshot.file_count:",
            "    if False:",
            ("engine/ingest/test_arrival.py::test_a_table_whose_log_does_not_tell_its_batches_or_forgets_them_is_not_loaded",),
            "a table with rows of which no batch is known is not loaded",
        ),
        (
            "if arrived is None and ledger.last_taken:",
            "if False:",
            ("engine/ingest/test_load.py::test_a_table_that_does_not_tell_its_batches_is_loaded_only_after_a_person_has_told_them",),
        ),
        (
            "if retention := facts.snapshot.properties.get(TRANSACTION_RETENTION):",
            'if retention := "":',
            ("engine/ingest/test_arrival.py::test_a_table_whose_log_does_not_tell_its_batches_or_forgets_them_is_not_loaded",),
        ),
        (
            "if arrived is not None and arrived > newest:",
            "if False:",
            ("engine/ingest/test_arrival.py::test_a_table_whose_log_does_not_tell_its_batches_or_forgets_them_is_not_loaded",),
            "a table whose manifests are lost is not loaded again",
        ),
        (
            "if after is None or arrived < number:",
            "if after is None:",
            ("engine/ingest/test_arrival.py::test_a_commit_is_held_against_its_batch_however_many_others_made_since",),
            "a write that leaves no trace of its batch or has other rows is not repeated",
        ),
        (
            "if rows is not None and counts and counts[-1] != rows:",
            "if False:",
            ("engine/ingest/test_arrival.py::test_a_commit_is_held_against_its_batch_however_many_others_made_since",),
            "a write that leaves no trace of its batch or has other rows is not repeated",
        ),
        (
            "return None if quarantine_arrived(lake, table.key, newest) else newest",
            "return None",
            ("engine/ingest/test_load.py::test_a_file_set_aside_alone_is_quarantined_though_the_run_was_killed_before",),
        ),
        (
            "history_since(lake.store, after.history, -1 if before is None else before.snapshot.version).commits",
            "after.history.commits",
            ("engine/ingest/test_arrival.py::test_a_commit_is_held_against_its_batch_however_many_others_made_since",),
        ),
    ],
    "lakehouse/engine/ingest/load.py": [
        (
            "    commit_rows.check_shape(shape, table, snapshot, new=missing_columns(shape, added, snapshot))\n",
            "",
            ("engine/ingest/test_load.py::test_a_declaration_that_differs_from_the_table_is_refused_before_anything_is_written",),
        ),
        (
            "        quarantine_isolated(lake, spark, table.key, batch)\n",
            "        pass\n",
            (
                "engine/quarantine/test_isolate.py::test_a_file_with_a_row_that_cannot_be_written_stands_alone_through_kills_and_is_loaded_once_after_a_retry",
            ),
            "lines of a file that is read again as a whole are not in quarantine beside it",
        ),
        (
            "if row_count + bad_count != batch.record_count:",
            "if False:",
            ("engine/ingest/test_load.py::test_a_write_of_other_rows_than_were_staged_is_not_repeated",),
        ),
        (
            "        commit_rows.write_rows(lake, table, rows, transaction)",
            "        commit_rows.write_rows(lake, table, rows)",
            ("engine/ingest/test_load.py::test_a_batch_killed_at_any_step_is_there_once_after_the_next_run",),
        ),
        (
            "        if handed is None:\n            with suppress(Transient, Refused):  # the rows are in the table",
            "        if True:\n            with suppress(Transient, Refused):  # the rows are in the table",
            ("engine/ingest/test_load.py::test_what_is_handed_over_is_loaded_alone_and_once_and_a_listing_alone_folds_the_ledger",),
            "a load of files that were handed over forgets no other file",
        ),
        (
            "            arrived_batch(table, facts, ledger)  #",
            "            #",
            (
                "engine/ingest/test_load.py::test_loaded_files_leave_the_landing_area_with_the_next_load_and_are_not_loaded_again_when_they_come_back",
            ),
            "a log of other batches is told before a landed file goes by it",
        ),
    ],
    "lakehouse/engine/ingest/retire.py": [
        (
            "[file for file in wanted if file in planned]",
            "[*wanted]",
            ("engine/ingest/test_retire.py::test_what_happens_between_plan_and_deletion_is_seen_by_the_last_look",),
        ),
        (
            "if blake2b(data, digest_size=16).hexdigest() == file.digest]",
            "]",
            (
                "engine/ingest/test_retire.py::test_a_file_whose_content_is_another_though_size_and_time_are_the_same_is_not_archived_and_stays",
            ),
        ),
        (
            "if not pq.read_table(BytesIO(lake.store.read(name))).equals(table):",
            "if False:",
            ("engine/ingest/test_retire.py::test_nothing_is_deleted_where_the_archive_does_not_hold_it",),
        ),
        (
            "newest_first(lake.store, facts.history)",
            "reversed(facts.history.commits)",
            (
                "engine/ingest/test_retire.py::test_files_stay_whose_rows_somebody_took_out_without_others_in_their_place_however_many_commits_ago",
            ),
            "what somebody did to a table long ago keeps its landed files",
        ),
        (
            "if any(lake.has_moved_on(key, newest) for key, newest in look.logs.items()):",
            "if False:",
            ("engine/ingest/test_retire.py::test_what_happens_between_plan_and_deletion_is_seen_by_the_last_look",),
        ),
        (
            "going = _lying_as_loaded(lake, table.key, batch.prefix, [file for file in wanted if file in planned])",
            "going = [file for file in wanted if file in planned]",
            ("engine/ingest/test_retire.py::test_what_happens_between_plan_and_deletion_is_seen_by_the_last_look",),
            "each landed file is asked about before it is deleted",
        ),
        (
            "        and may_be_same(now.etag, file.etag)\n",
            "",
            (
                "engine/ingest/test_retire.py::test_a_file_of_another_etag_stays_though_its_size_and_time_are_those_of_the_one_that_was_loaded",
            ),
        ),
    ],
}
