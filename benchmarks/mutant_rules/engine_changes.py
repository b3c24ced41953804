"""Rules of the engine: change data."""

RULES = {
    "lakehouse/engine/changes/deleted_keys.py": [
        (
            "    if not numbers and lake.store.stat(_mark(table_key)) is not None:",
            "    if False:",
            ("engine/changes/test_apply.py::test_a_memory_of_deletions_that_is_lost_stops_the_load_and_one_that_never_was_does_not",),
        ),
        (
            "store.delete([_mark(table_key), *_listed(store, table_key)[0]])",
            "store.delete(_listed(store, table_key)[0])",
            ("engine/changes/test_apply.py::test_a_memory_of_deletions_that_is_lost_stops_the_load_and_one_that_never_was_does_not",),
            "a table that is made anew misses no memory of deletions",
        ),
        (
            "        found = found.unionByName(older.where(F.col(REMEMBERED_AT) >= since))",
            "        pass",
            ("engine/changes/test_read.py::test_a_deleted_key_stays_deleted_when_an_older_change_of_it_comes_batches_later",),
            "a batch that deletes takes over what was remembered before it",
        ),
        (
            "default=max(numbers, default=0))",
            "default=0)",
            ("engine/changes/test_read.py::test_a_deleted_key_stays_deleted_when_an_older_change_of_it_comes_batches_later",),
            "a table that is put back from a copy keeps what is remembered of its deletions",
        ),
        (
            "if number < batch.number]",
            "if number <= batch.number]",
            ("engine/changes/test_apply.py::test_a_batch_that_dies_at_any_step_ends_the_same",),
            "a batch that is repeated does not take its own deletions for older ones",
        ),
        (
            'if deletions is None or (marks := deletions.where(f"{REMEMBERED_AT} IS NULL")).isEmpty():',
            "if True:",
            ("engine/changes/test_read.py::test_a_late_full_load_brings_no_key_back_whose_deletion_may_be_forgotten",),
        ),
        (
            "found = found.unionByName(last, allowMissingColumns=True)",
            "pass",
            ("engine/changes/test_read.py::test_a_late_full_load_brings_no_key_back_whose_deletion_may_be_forgotten",),
            "that a deletion was forgotten stays known",
        ),
        (
            ".when(is_unknown & has_waited, _WHY_WAITED)",
            "",
            ("engine/changes/test_read.py::test_a_file_that_waited_while_deletions_were_forgotten_brings_no_row_back",),
        ),
        (
            "(F.col(OWN[2]) <= F.col(_UNTIL_TIME)) & ",
            "",
            ("engine/changes/test_read.py::test_a_file_that_waited_while_deletions_were_forgotten_brings_no_row_back",),
            "a row that landed after what is forgotten is loaded",
        ),
        (
            " & (F.col(POSITION) <= F.col(_UNTIL_POSITION))",
            "",
            ("engine/changes/test_read.py::test_a_file_that_waited_while_deletions_were_forgotten_brings_no_row_back",),
            "a row whose position is above those of forgotten deletions is loaded, however long it waited",
        ),
        (
            'later.join(own, [OWN[0]], "left_anti").select(*map(quote, later.columns))',
            "later",
            ("engine/changes/test_read.py::test_a_deleted_key_stays_deleted_when_an_older_change_of_it_comes_batches_later",),
            "a batch that was tried before does not take its own deletions for older ones",
        ),
    ],
    "lakehouse/engine/changes/apply.py": [
        (
            "is_told = F.col(DELETED) & F.col(_BEFORE).isNotNull()",
            "is_told = F.lit(False)",
            ("engine/changes/test_read.py::test_a_soft_deletion_that_tells_the_key_alone_keeps_the_values",),
            "a row that is marked as deleted keeps its values",
        ),
        (
            "        if older is not None:\n            # A",
            "        if False:\n            # A",
            ("engine/changes/test_read.py::test_a_deleted_key_stays_deleted_when_an_older_change_of_it_comes_batches_later",),
        ),
        (
            " AND NOT source.{DELETED}",
            "",
            ("engine/changes/test_read.py::test_a_deletion_that_is_told_again_takes_effect",),
            "a deletion that is told again is never left out: the table may have its row again",
        ),
        (
            "        forget(lake.store, table.key)",
            "        pass",
            ("engine/changes/test_read.py::test_a_deleted_key_stays_deleted_when_an_older_change_of_it_comes_batches_later",),
            "what was deleted from a table that is no more is not held against the one that is made anew",
        ),
        (
            '        changes = changes.alias("source").join(there, F.expr(statements.not_older(keys, ORDER)), "left_anti")',
            "        pass",
            ("engine/changes/test_read.py::test_a_soft_deletion_that_tells_the_key_alone_keeps_the_values",),
            "a change that is older than the table's row is no value of the deletion after it",
        ),
        (
            "            told = _without_fallbacks(changes, values)\n",
            "            told = changes\n",
            ("engine/changes/test_read.py::test_a_soft_deletion_that_tells_the_key_alone_keeps_the_values",),
            "what stands for a value that was not told is none",
        ),
    ],
    "lakehouse/engine/changes/debezium.py": [
        (
            "        why = why_misread(why, landing, F.col(RAW), replace(self, root=_AS_TEXTS).value, self.value)",
            "        pass",
            (
                "engine/changes/test_read.py::test_enveloped_events_of_mysql_are_ordered_by_file_number_and_position_and_all_that_is_none_is_told",
            ),
            "no value of an event is read as another one",
        ),
        (
            'F.when(self.is_change(), parts["ts_ms"])',
            'parts["ts_ms"]',
            (
                "engine/changes/test_read.py::test_enveloped_events_of_mysql_are_ordered_by_file_number_and_position_and_all_that_is_none_is_told",
            ),
            "a row of a snapshot that only its time orders takes no place among changes",
        ),
        (
            "_BYTES.hex(), ",
            "",
            (
                "engine/changes/test_read.py::test_enveloped_events_of_mysql_are_ordered_by_file_number_and_position_and_all_that_is_none_is_told",
            ),
            "a value that was not sent is none in hex, too",
        ),
    ],
    "lakehouse/engine/changes/dms.py": [
        (
            'parts = {"file_name": F.substring_index(OWN[0], "/", -1), "path"',
            'parts = {"path"',
            ("engine/changes/test_read.py::test_dms_without_position_follows_files_and_lines_and_malformed_lines_are_told",),
            "the order of files is that of their names, wherever they lie",
        ),
        (
            "is_ordered & _filled(F.col(quote(name))).isNotNull()",
            "is_ordered & F.col(quote(name)).isNotNull()",
            ("engine/changes/test_read.py::test_dms_tells_a_null_by_its_word_and_an_empty_text_by_nothing",),
            "an empty position of DMS is none",
        ),
        (
            "_filled(told).isNull()",
            "told.isNull()",
            ("engine/changes/test_read.py::test_dms_without_position_follows_files_and_lines_and_malformed_lines_are_told",),
        ),
    ],
    "lakehouse/engine/changes/read.py": [
        (
            'is_told = not found["truncates"] and not found["key_changes"] and',
            "is_told =",
            ("engine/changes/test_apply.py::test_a_batch_that_dies_at_any_step_ends_the_same",),
            "a batch that touches keys beyond its own is not bounded by them",
        ),
        (
            "why = why.when(has_key & F.col(quote(key)).isNull(),",
            "why = why.when(F.lit(False),",
            (
                "engine/changes/test_read.py::test_enveloped_events_of_mysql_are_ordered_by_file_number_and_position_and_all_that_is_none_is_told",
            ),
            "a change without a key is no change",
        ),
        (
            "why = why.when(~is_tombstone & ~F.col(IS_PLACED),",
            "why = why.when(F.lit(False),",
            (
                "engine/changes/test_read.py::test_enveloped_events_of_mysql_are_ordered_by_file_number_and_position_and_all_that_is_none_is_told",
            ),
            "a change without a position is no change",
        ),
    ],
}
