"""Rules of the engine: compactions."""

RULES = {
    "lakehouse/engine/compaction/run.py": [
        (
            '    refuse_commits(lake, spark, table, asked=f"compaction of {table.key}")\n',
            "",
            ("engine/adoption/test_guard.py::test_nothing_is_committed_while_a_commit_of_others_could_be_lost",),
        ),
        (
            "replace(facts, history=history_since(lake.store, facts.history, version))",
            "facts",
            ("engine/delta_log/test_far_behind.py::test_a_compaction_finds_its_commit_below_any_number_of_others",),
        ),
        (
            "    expect_verification(lake, table.key, mark, version=before.snapshot.version)",
            "    pass",
            ("engine/compaction/test_verify.py::test_a_commit_whose_run_ended_before_it_was_verified_is_verified_by_the_next",),
        ),
        (
            "            verify_left(lake, spark, table.key)\n",
            "",
            ("engine/compaction/test_verify.py::test_a_commit_whose_run_ended_before_it_was_verified_is_verified_by_the_next",),
        ),
    ],
    "lakehouse/engine/compaction/content_hash.py": [
        (
            '    return file.path, file.deletion_vector or ""',
            '    return file.path, ""',
            ("engine/compaction/test_content_hash.py::test_what_was_read_ahead_is_of_those_files_as_they_were",),
        ),
        (
            " if file.deletion_vector is None else _visible(rows, hidden[file.deletion_vector])",
            "",
            ("engine/compaction/test_content_hash.py::test_rows_that_a_deletion_vector_hides_are_not_there",),
        ),
        (
            "max(sizes, default=0) > _MOST_BYTES or ",
            "",
            ("engine/compaction/test_content_hash.py::test_what_arrow_cannot_tell_is_nothing",),
        ),
        (
            "        start += len(table)\n        yield table.filter",
            "        yield table.filter",
            ("engine/compaction/test_content_hash.py::test_rows_that_a_deletion_vector_hides_are_not_there",),
        ),
        (
            "if len(hidden) and hidden[-1] >= start:",
            "if False:",
            (
                "engine/compaction/test_content_hash.py::test_a_deletion_vector_that_is_damaged_or_hides_another_number_of_rows_tells_nothing",
            ),
        ),
        (" > _MOST_DELETED_ROWS:", " < 0:", ("engine/compaction/test_content_hash.py::test_what_arrow_cannot_tell_is_nothing",)),
        (
            "hash_array(values, categorize=False)",
            "hash_array(values)",
            ("engine/compaction/test_content_hash.py::test_a_value_that_takes_the_place_of_another_has_another_sum",),
        ),
    ],
    "lakehouse/engine/delta_log/deletion_vectors.py": [
        (
            " if len(bitmap) == count else None",
            "",
            (
                "engine/compaction/test_content_hash.py::test_a_deletion_vector_that_is_damaged_or_hides_another_number_of_rows_tells_nothing",
            ),
        ),
        (
            'if zlib.crc32(data) != int.from_bytes(content[end : end + _WORD], "big"):',
            "if False:",
            (
                "engine/compaction/test_content_hash.py::test_a_deletion_vector_that_is_damaged_or_hides_another_number_of_rows_tells_nothing",
            ),
        ),
        (
            "hidden[vector] = places",
            "hidden |= dict.fromkeys(counts, places)",
            (
                "engine/compaction/test_content_hash.py::test_a_file_that_is_there_twice_has_the_rows_that_each_of_its_deletion_vectors_leaves",
            ),
        ),
    ],
    "lakehouse/engine/compaction/verify.py": [
        (
            "    if not {*range(faulty.version, newest + 1)} <= {commit.version for commit in commits}:",
            "    if False:",
            ("engine/compaction/test_undo.py::test_nothing_is_restored_over_what_somebody_wrote_after_it",),
        ),
        (
            "    if not (missing := history.missing_after(newest)):",
            "    if (missing := history.missing_after(newest)) is not None:",
            ("engine/compaction/test_undo.py::test_what_somebody_writes_beside_the_restore_is_named",),
        ),
        (
            "    if failure is None or is_lost(failure):",
            "    if failure is None:",
            ("engine/compaction/test_undo.py::test_a_restore_that_fails_is_told_as_what_it_is_known_to_be",),
        ),
        (
            "history = history_since(lake.store, now.history, before.version)",
            "history = now.history",
            ("engine/compaction/test_undo.py::test_a_restore_is_found_below_any_number_of_later_commits",),
        ),
        (
            " or (facts := lake.facts(table_key)) is None:\n        return\n",
            ':\n        return\n    if (facts := lake.facts(table_key)) is None:\n        return lake.store.delete([f"_lakehouse/unverified/{table_key}.json"])\n',
            ("engine/compaction/test_unverified_commits.py::test_what_lies_on_a_disk_that_is_away_is_still_to_be_verified",),
        ),
        (
            "if not is_final or lake.facts(table_key) is None:",
            "if not is_final:",
            ("engine/compaction/test_unverified_commits.py::test_what_lies_on_a_disk_that_is_away_is_still_to_be_verified",),
        ),
        (
            'json.dumps({"restored": version, "mark": mark})',
            'json.dumps({"mark": mark})',
            ("engine/compaction/test_verify.py::test_an_undone_compaction_gives_an_append_downstream_no_row_twice",),
        ),
        (
            '    by_log = all(each is not None and each.verify == "rows" for each in predictions)',
            "    by_log = True",
            ("engine/compaction/test_verify.py::test_a_compaction_that_changes_rows_is_undone_and_said",),
        ),
        (
            "    if lacking := sorted(wanted.difference(file.path for file in files)):",
            "    if lacking := []:",
            ("engine/compaction/test_verify.py::test_a_file_that_a_commit_names_and_its_version_lacks_is_an_error",),
        ),
        (
            "between is not None and wanted.isdisjoint(path for each in between for path in (*each.added_paths, *each.removed_paths))",
            "between is not None",
            ("engine/compaction/test_verify.py::test_a_file_that_a_commit_names_and_its_version_lacks_is_an_error",),
        ),
        (
            "    history = history_since(lake.store, facts.history, -1 if note.version is None else note.version)",
            "    history = facts.history",
            ("engine/compaction/test_unverified_commits.py::test_a_compaction_is_compared_however_many_commits_came_after_it",),
        ),
        (
            "if note.version is not None and history.between(",
            "if False and history.between(",
            ("engine/compaction/test_unverified_commits.py::test_a_compaction_of_which_the_log_tells_no_more_is_told_once",),
        ),
        (
            "is_final = isinstance(error, Refused) or is_missing(error)",
            "is_final = isinstance(error, Exception)",
            ("engine/compaction/test_unverified_commits.py::test_only_what_is_gone_for_good_ends_the_comparison_for_good",),
        ),
        (
            "            if old != new:",
            "            if False:",
            ("engine/compaction/test_verify.py::test_a_compaction_that_changes_rows_is_undone_and_said",),
        ),
        (
            "                sums += spark_sums(lake, spark, before, added)",
            "                raise error",
            ("engine/compaction/test_verify.py::test_a_compaction_whose_files_could_not_be_read_once_stays",),
        ),
    ],
    "lakehouse/engine/compaction/unverified_commits.py": [
        (
            "        if note is not None and note.mark == mark:",
            "        if True:",
            ("engine/compaction/test_unverified_commits.py::test_what_another_compaction_committed_meanwhile_is_still_to_be_verified",),
        ),
        (
            "    except Broken:",
            "    except BaseException:",
            ("engine/compaction/test_unverified_commits.py::test_only_a_verdict_settles_it",),
        ),
    ],
    "lakehouse/engine/compaction/spark_content.py": [
        (
            "    if row_count_of(lake.store, snapshot, file) == 0:",
            "    if True:",
            ("engine/compaction/test_verify.py::test_a_file_that_the_answer_lacks_has_no_rows_only_if_it_says_so_itself",),
        ),
        (
            'return unquote(path) if is_absolute(path) else f"{snapshot.uri}/{unquote(path)}"',
            'return unquote(path) if is_absolute(path) else f"{snapshot.uri}/{path}"',
            ("engine/compaction/test_verify.py::test_a_path_of_the_log_and_one_of_spark_are_decoded_once_each",),
        ),
        (
            "    table = table_at(spark, snapshot, version=version)\n    if not snapshot.partition_columns:",
            '    table = spark.read.format("delta").load(snapshot.uri)\n    if not snapshot.partition_columns:',
            ("engine/compaction/test_run.py::test_deleted_rows_are_left_out_and_their_vectors_go_whatever_the_files_are_called",),
        ),
    ],
    "lakehouse/engine/compaction/log_comparison.py": [
        (
            "if row_count != other_count or any(",
            "if any(",
            ("engine/compaction/test_log_comparison.py::test_counts_bounds_and_nulls_are_compared",),
        ),
        (
            "            if file.row_count is None:\n                return None\n            row_count += file.row_count - file.deleted_row_count",
            "            row_count += (file.row_count or 0) - file.deleted_row_count",
            ("engine/compaction/test_log_comparison.py::test_a_file_whose_rows_nobody_counted_is_not_taken_for_empty",),
        ),
        (
            "row_count += file.row_count - file.deleted_row_count",
            "row_count += file.row_count",
            ("engine/compaction/test_log_comparison.py::test_deleted_rows_count_as_gone_and_loosen_the_bounds",),
        ),
        (
            "before.keys() != after.keys()",
            "False",
            ("engine/compaction/test_log_comparison.py::test_a_row_that_moved_to_another_partition_is_not_passed_over",),
        ),
        (
            "any(facts[each] != others[each] for each in facts.keys() & others.keys())",
            "False",
            ("engine/compaction/test_log_comparison.py::test_counts_bounds_and_nulls_are_compared",),
        ),
    ],
    "lakehouse/engine/compaction/read_probe.py": [
        (
            "    record_probe(lake, attempt, known)\n",
            "",
            ("engine/compaction/test_read_probe.py::test_a_scan_that_fails_or_is_killed_is_made_again_after_ten_more_compactions",),
        ),
    ],
}
