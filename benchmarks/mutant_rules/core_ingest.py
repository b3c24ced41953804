"""Rules of the core: landed files."""

RULES = {
    "lakehouse/core/ingest/records.py": [
        (
            "with_texts(row, text, landing, fields).encode()",
            "line",
            ("core/ingest/test_records.py::test_a_text_column_gets_what_was_sent_and_not_what_a_double_makes_of_it",),
        ),
        (
            "        for chunk in compression.unpack(data):\n            size",
            "        for chunk in ():\n            size",
            (
                "core/ingest/test_records.py::test_a_damaged_gzip_gives_no_record_at_all",
                "core/ingest/test_records.py::test_what_unpacks_to_more_than_the_limit_is_not_unpacked_further",
            ),
        ),
        (
            "        for _ in _csv_record_bytes(_content(data, landing, compression), landing):\n            pass",
            "        for _ in ():\n            pass",
            ("core/ingest/test_records.py::test_a_file_with_a_stray_quote_gives_no_record_and_the_line_where_the_quote_opens",),
            "a CSV file is looked through before its first record is given",
        ),
        (
            "            if size > limit:",
            "            if False:",
            ("core/ingest/test_records.py::test_what_unpacks_to_more_than_the_limit_is_not_unpacked_further",),
        ),
        (
            "if _ESCAPED_SURROGATE.search(line) and _SURROGATE.search(json.dumps(found, ensure_ascii=False)):",
            "if False:",
            ("core/ingest/test_records.py::test_half_a_character_is_a_problem_and_not_a_question_mark",),
        ),
        (
            "rest, skipping = rest[-1:], True",
            "rest, skipping = rest[-1:], False",
            ("core/ingest/test_records.py::test_a_line_over_the_limit_is_one_record_with_its_problem_and_those_after_it_are_read",),
        ),
        (
            "    elif landing.encoding.lower() not in _UTF_8:",
            "    elif False:",
            ("core/ingest/test_records.py::test_a_file_that_is_not_of_its_encoding_gives_no_record_at_all",),
        ),
    ],
    "lakehouse/core/ingest/batches.py": [
        (
            "is_older or bool(known.etag and file.etag) or known.modified_ms in (None, file.modified_ms)",
            "True",
            ("core/ingest/test_batches.py::test_a_batch",),
            "a file that was written again is looked at again",
        ),
        (
            "return etag == other or not etag or not other",
            "return True",
            (
                "core/ingest/test_batches.py::test_a_batch",
                "engine/ingest/test_retire.py::test_a_file_of_another_etag_stays_though_its_size_and_time_are_those_of_the_one_that_was_loaded",
            ),
            "a file that was overwritten within one second, with as many bytes, is found by its etag",
        ),
        (
            "if known is not None and known.is_taken and known.as_loaded.size_bytes != file.size_bytes:",
            "if False:",
            ("core/ingest/test_batches.py::test_a_batch", "core/ingest/test_batches.py::test_a_file_is_set_aside_with_the_reason"),
            "a loaded file that changed its size is set aside and named",
        ),
        (
            "    if known is not None and known.is_taken:\n        same",
            "    if False:\n        same",
            ("core/ingest/test_batches.py::test_what_becomes_of_a_file_that_was_read",),
            "a file that was loaded is not loaded again whatever was written over it",
        ),
        (
            "is_same = is_older or ",
            "is_same = ",
            ("core/ingest/test_batches.py::test_a_batch",),
            "a loaded file of which no digest is known is not read again when its time alone differs",
        ),
        (
            "if is_overwrite and not row_count:",
            "if False:",
            ("core/ingest/test_batches.py::test_an_overwrite_takes_its_file_only_for_its_rows_and_leaves_older_ones_in_wait_without_any",),
        ),
        (
            "for path in before if path.startswith(landing.prefix) and path.endswith(landing.suffixes))",
            "for path in before)",
            ("core/ingest/test_batches.py::test_files_of_another_prefix_are_other_files",),
        ),
        (
            " and not (known.is_foreign and file.name.endswith(landing.suffixes))",
            "",
            ("core/ingest/test_batches.py::test_a_file_set_aside_for_its_format_waits_again_when_that_format_is_declared",),
        ),
        (
            "    if unfinished is not None:",
            "    if False:",
            ("core/ingest/test_batches.py::test_a_batch",),
            "a batch that was begun is finished before the next one",
        ),
        (
            "set_aside=aside, columns=plan.batch.columns if files else ())",
            "set_aside=aside, columns=plan.batch.columns)",
            ("core/ingest/test_batches.py::test_an_overwrite_takes_its_file_only_for_its_rows_and_leaves_older_ones_in_wait_without_any",),
            "a file of which nothing is loaded pins no schema",
        ),
        (
            "if files or not plan.batch.files else ()",
            "if files else ()",
            ("core/ingest/test_batches.py::test_an_overwrite_ends_with_a_late_file_that_is_older_than_the_one_taken",),
        ),
        (
            """    if "" in file.name.split("/"):""",
            "    if False:",
            ("core/ingest/test_batches.py::test_a_batch",),
            "an object whose name no store reads is set aside, and stops no table",
        ),
    ],
    "lakehouse/core/ingest/csv_fields.py": [
        (
            'return rb"(?:%b|[^%b%b\\r\\n][^%b\\r\\n]*+|)" % (quoted, mark, sign, sign)',
            'return rb"(?:[^%b\\r\\n]*+|)" % sign',
            ("core/ingest/test_records.py::test_a_field_in_quotes_is_never_split",),
        ),
        (
            '[^%b%b\\r\\n][^%b\\r\\n]*+|)" % (quoted, mark, sign, sign)',
            '[^%b\\r\\n]*+|)" % (quoted, sign)',
            ("core/ingest/test_records.py::test_a_file_with_a_stray_quote_gives_no_record_and_the_line_where_the_quote_opens",),
        ),
        (
            ".finditer(record + sign)",
            ".finditer(record)",
            ("core/ingest/test_undeclared.py::test_a_wider_header_of_csv_tells_which_fields_are_undeclared",),
        ),
        (
            "(not text and not landing.keeps_empty_texts)",
            "not text",
            ("core/ingest/test_undeclared.py::test_a_field_of_dms_that_holds_nothing_is_null_only_where_dms_writes_nulls_so",),
        ),
    ],
    "lakehouse/core/ingest/undeclared.py": [
        (
            "    if not _has_others(row, fields):\n        return None\n    for step in steps:",
            "    if True:\n        return None\n    for step in steps:",
            ("core/ingest/test_undeclared.py::test_declared_and_undeclared_fields_are_all_fields",),
            "a field that no schema names is kept with the value that was sent",
        ),
        (
            "        name not in fields or ((types := struct_types(fields[name])) and _has_others(_object_in(row, name), types))",
            "        name not in fields",
            ("core/ingest/test_undeclared.py::test_members_that_a_declared_struct_does_not_name_are_kept_too",),
        ),
        (
            "return _WHOLE if abs(value) <= _EXACT_IN_DOUBLE else _LARGE",
            "return _WHOLE",
            ("core/ingest/test_undeclared.py::test_added_columns_have_types_by_rule_and_names_that_are_free",),
            "no whole number that was looked at is rounded by the type of the column that is made for it",
        ),
    ],
    "lakehouse/core/ingest/ledger_segments.py": [
        (
            "        columns=ledger.columns,",
            "        columns=(),",
            ("core/ingest/test_ledger_segments.py::test_an_added_column_stays_known_in_its_place_though_its_batch_is_forgotten",),
            "a column that was added is known for ever, with its type",
        ),
    ],
    "lakehouse/core/ingest/inferred.py": [
        (
            "    if landing.schema is None and pinned:",
            "    if False:",
            ("core/ingest/test_inferred.py::test_a_pinned_schema_is_as_if_it_were_declared",),
            "a schema that was inferred is pinned, and never inferred anew",
        ),
        (
            "        if (name, kind) != (column.name, column.type):",
            "        if False:",
            ("core/ingest/test_inferred.py::test_a_declaration_that_differs_from_the_pinned_schema_loads_nothing",),
            "a declared schema that differs from the pinned one loads nothing",
        ),
        (
            "        if landing.schema is None and is_loaded:",
            "        if False:",
            ("core/ingest/test_inferred.py::test_a_schema_that_is_no_longer_declared_is_not_inferred_from_what_lands_next",),
        ),
        (
            "new.found.keys() - {RESCUED}",
            "new.found",
            ("core/ingest/test_inferred.py::test_the_first_files_give_columns_by_the_rules_of_added_ones",),
            "a header whose names can be no columns hides none that comes later",
        ),
    ],
    "lakehouse/core/ingest/isolation.py": [
        (
            "        if half:\n            groups += [group[half:], group[:half]]\n        else:\n            found[group[0]] = problem",
            "        found |= dict.fromkeys(group, problem)",
            (
                "core/ingest/test_isolation.py::test_exactly_the_files_that_fail_alone_are_found_in_tries_like_their_number_times_log2_of_all",
            ),
            "a file is set aside only if its rows alone cannot be written",
        ),
        (
            "    return any(why_not((file,)) is None for file in by_chance[:PROBES])",
            "    return True",
            ("core/ingest/test_isolation.py::test_a_few_tries_tell_that_everything_fails",),
            "nothing is set aside where everything fails",
        ),
        (
            "        set_aside=(*before, *aside),",
            "        set_aside=before,",
            ("core/ingest/test_isolation.py::test_a_batch_loses_the_files_that_fail_and_names_them_as_they_were_read",),
            "a file that is taken out of its batch stays named, for a person",
        ),
        (
            "        record_count=(batch.record_count or 0) - failing_records,",
            "        record_count=batch.record_count,",
            ("core/ingest/test_isolation.py::test_a_batch_loses_the_files_that_fail_and_names_them_as_they_were_read",),
            "the records of a smaller batch are counted as those of the others",
        ),
        (
            "        columns=batch.columns if files or has_table else (),",
            "        columns=batch.columns,",
            ("core/ingest/test_isolation.py::test_columns_that_came_with_files_of_which_none_is_loaded_go_where_no_table_has_them",),
            "files that cannot be written pin no schema where there is no table",
        ),
    ],
    "lakehouse/core/declaration/landing.py": [
        (
            "if isinstance(self.changes, Dms) and self.records_are_csv and self.null_value is None:",
            "if False:",
            ("core/declaration/test_table.py::test_a_declaration_that_cannot_be_meant_is_refused",),
            "CSV of DMS is read only where it is declared what stands for null",
        ),
    ],
}
