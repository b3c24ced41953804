"""Rules of the core: what stays known of landed files, and which of them leave."""

RULES = {
    "lakehouse/core/ingest/batches.py": [
        (
            "same = known.as_loaded.digest == read.digest",
            "same = known.digest == read.digest",
            ("core/ingest/test_ledger_segments.py::test_a_name_that_was_loaded_is_refused_each_time_that_another_file_is_written_over_it",),
            "what was written over a loaded file is never taken for what was loaded",
        ),
        (
            " and known.loaded is None",
            "",
            ("core/ingest/test_ledger_segments.py::test_a_name_that_was_loaded_is_refused_each_time_that_another_file_is_written_over_it",),
            "a loaded name that is written over twice, each time with one size, is refused twice",
        ),
    ],
    "lakehouse/core/ingest/ledger_segments.py": [
        (
            "else replace(of_now, loaded=loaded)",
            "else of_now",
            ("engine/journal/test_landed_batches.py::test_a_loaded_file_is_known_by_its_time_and_its_content_or_its_name",),
            "a loaded file that was moved is known though another one was written to its name",
        ),
        (
            "found[loaded.modified_ms, mark].append(path)",
            "found[loaded.modified_ms, mark] = [path]",
            ("engine/journal/test_landed_batches.py::test_a_loaded_file_is_known_by_its_time_and_its_content_or_its_name",),
            "of two loaded files that are alike, the one that was moved is not loaded again",
        ),
        (
            "if lying and path not in lying and path not in kept",
            "if lying and path not in kept",
            ("core/ingest/test_ledger_segments.py::test_a_file_stays_known_as_long_as_it_may_be_asked_for",),
        ),
        (
            "if lying and path not in lying and path not in kept",
            "if path not in lying and path not in kept",
            ("core/ingest/test_ledger_segments.py::test_a_file_stays_known_as_long_as_it_may_be_asked_for",),
            "no file is forgotten while the landing area looks empty",
        ),
        (
            "batch.number > arrived or batch.number in whole",
            "batch.number in whole",
            ("core/ingest/test_ledger_segments.py::test_a_file_stays_known_as_long_as_it_may_be_asked_for",),
            "no file of a batch that did not arrive is forgotten",
        ),
        (
            "{fingerprint(path) for path in gone if ledger.seen[path].is_taken}",
            "{fingerprint(path) for path in ()}",
            (
                "core/ingest/test_ledger_segments.py::test_a_file_that_is_gone_and_old_leaves_a_fingerprint_and_one_that_was_set_aside_leaves_nothing",
            ),
        ),
        (
            "if aside.why.startswith(MOVED):",
            "if False:",
            ("engine/journal/test_landed_batches.py::test_a_loaded_file_is_known_by_its_time_and_its_content_or_its_name",),
            "a loaded file that was moved twice is not loaded again",
        ),
        (
            "was_loaded=path not in seen and fingerprint(path) in before.forgotten",
            "was_loaded=False",
            ("core/ingest/test_ledger_segments.py::test_a_forgotten_name_that_comes_back_is_refused_however_often_it_changes",),
        ),
        (
            "if not (was_loaded if before is None else before.is_taken):",
            "if not (was_loaded if before is None else False):",
            ("engine/journal/test_landed_batches.py::test_a_name_that_changed_its_size_is_known_by_the_last_one_and_stays_taken",),
        ),
    ],
    "lakehouse/core/ingest/retirement.py": [
        (
            "if now_ms - committed_ms < landing.keep_days * DAY_MS:",
            "if now_ms - committed_ms < 0:",
            ("engine/ingest/test_retire.py::test_files_are_archived_byte_for_byte_once_their_commit_is_old_enough",),
            "a loaded file stays until its commit is as old as the declaration says",
        ),
        (
            "(file.size_bytes, file.modified_ms) != (now.size_bytes, now.modified_ms)",
            "False",
            ("engine/ingest/test_retire.py::test_a_file_stays",),
            "a file that is not the one that was loaded stays in the landing area",
        ),
        ("if not file.digest or is_other:", "if is_other:", ("engine/ingest/test_retire.py::test_a_file_stays_by_its_manifest",)),
        (
            'return "they, or lines of them, are in quarantine" if is_held else ""',
            'return ""',
            ("engine/ingest/test_retire.py::test_a_file_stays",),
            "a landed file stays while it or a line of it is in quarantine",
        ),
        (
            "arrivals.newest >= batch.number and ",
            "",
            ("engine/ingest/test_retire.py::test_a_file_of_a_batch_that_the_log_does_not_know_stays",),
        ),
        (
            "arrivals.first_ms if arrival is None else",
            "0 if arrival is None else",
            ("engine/ingest/test_retire.py::test_the_age_of_a_commit_that_the_log_has_forgotten_is_that_of_the_oldest_it_holds",),
        ),
        (
            'if not is_told and landing.after_load == "delete":',
            "if False:",
            ("engine/ingest/test_retire.py::test_where_the_log_has_forgotten_what_happened_files_are_archived_and_never_deleted",),
        ),
        (
            "commit if commit.added_paths else replace(commit, added_paths=commit.removed_paths)",
            "commit",
            (
                "engine/ingest/test_retire.py::test_files_stay_whose_rows_somebody_took_out_without_others_in_their_place_however_many_commits_ago",
            ),
        ),
        (
            "since = arrival.version if arrival is not None and is_told else 0",
            "since = arrival.version if arrival is not None else 0",
            ("engine/ingest/test_retire.py::test_what_the_log_still_tells_keeps_files_of_batches_that_it_has_forgotten",),
        ),
        (
            "if not is_told and arrivals.is_partial:",
            "if False:",
            ("engine/ingest/test_retire.py::test_files_of_a_table_with_many_commits_go_and_its_older_ones_are_read_once_a_day",),
            "commits that were not read are no reason to delete a landed file",
        ),
        (
            "    if any(file.modified_ms > committed_ms + _CLOCKS_APART_MS for file in batch.files):",
            "    if False:",
            ("engine/ingest/test_retire.py::test_a_file_stays_by_its_manifest",),
        ),
        (
            "return bool(batch.refused_count)",
            "return False",
            ("engine/ingest/test_retire.py::test_files_with_lines_that_were_refused_stay_where_no_quarantine_has_them",),
            "lines that a batch refused keep its files as its manifest tells, where the rows do not",
        ),
    ],
    "lakehouse/engine/ingest/retire.py": [
        (
            'if Places(lake)(f"{lake.settings.spark_root}/{prefix}") != prefix:',
            "if False:",
            ("engine/ingest/test_retire.py::test_files_behind_a_link_stay",),
        ),
    ],
    "lakehouse/engine/quarantine/entries.py": [
        (
            "            if may_take_rows(commit):\n                return told\n",
            "",
            ("engine/ingest/test_retire.py::test_files_with_lines_that_were_refused_stay_where_no_quarantine_has_them",),
            "what a RESTORE of the quarantine may have taken out is not in it",
        ),
        (
            "        if not oldest:\n            return told\n",
            "",
            ("engine/ingest/test_retire.py::test_files_with_lines_that_were_refused_stay_where_no_quarantine_has_them",),
            "a quarantine that was made anew has what its log tells alone",
        ),
    ],
}
