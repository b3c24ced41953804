"""Rules of the engine: change data."""

from benchmarks.mutant_rules.rule import Rule

RULES = (
    Rule(
        "lakehouse/engine/changes/deleted_keys.py",
        "    if not numbers and lake.store.stat(_mark(table_key)) is not None:",
        "    if False:",
        ("engine/changes/test_apply.py::test_a_memory_of_deletions_that_is_lost_stops_the_load_and_one_that_never_was_does_not",),
    ),
    Rule(
        "lakehouse/engine/changes/deleted_keys.py",
        "store.delete([_mark(table_key), *_files(store, table_key)])",
        "store.delete(_files(store, table_key))",
        ("engine/changes/test_apply.py::test_a_memory_of_deletions_that_is_lost_stops_the_load_and_one_that_never_was_does_not",),
        "a table that is made anew misses no memory of deletions",
    ),
    Rule(
        "lakehouse/engine/changes/apply.py",
        "is_told = F.col(DELETED) & F.col(_BEFORE).isNotNull()",
        "is_told = F.lit(False)",
        ("engine/changes/test_read.py::test_a_soft_deletion_that_tells_the_key_alone_keeps_the_values",),
        "a row that is marked as deleted keeps its values",
    ),
    Rule(
        "lakehouse/engine/changes/debezium.py",
        "        why = why_misread(why, landing, F.col(RAW), replace(self, root=_AS_TEXTS).value, self.value, UNFIT)",
        "        pass",
        (
            "engine/changes/test_read.py::test_enveloped_events_of_mysql_are_ordered_by_file_number_and_position_and_all_that_is_none_is_told",
        ),
        "no value of an event is read as another one",
    ),
    Rule(
        "lakehouse/engine/changes/debezium.py",
        'F.when(self.is_change(), parts["ts_ms"])',
        'parts["ts_ms"]',
        (
            "engine/changes/test_read.py::test_enveloped_events_of_mysql_are_ordered_by_file_number_and_position_and_all_that_is_none_is_told",
        ),
        "a row of a snapshot that only its time orders takes no place among changes",
    ),
    Rule(
        "lakehouse/engine/changes/apply.py",
        "            if older is not None:",
        "            if False:",
        ("engine/changes/test_read.py::test_a_deleted_key_stays_deleted_when_an_older_change_of_it_comes_batches_later",),
    ),
    Rule(
        "lakehouse/engine/changes/deleted_keys.py",
        "        frames.append(older.where(F.col(REMEMBERED_AT) >= since))",
        "        pass",
        ("engine/changes/test_read.py::test_a_deleted_key_stays_deleted_when_an_older_change_of_it_comes_batches_later",),
        "a batch that deletes takes over what was remembered before it",
    ),
    Rule(
        "lakehouse/engine/changes/apply.py",
        " AND NOT source.{DELETED}",
        "",
        ("engine/changes/test_apply.py::test_a_batch_that_dies_at_any_step_ends_the_same",),
        "a deletion that is told again is never left out: the table may have its row again",
    ),
    Rule(
        "lakehouse/engine/changes/apply.py",
        "        forget(lake.store, table.key)",
        "        pass",
        ("engine/changes/test_read.py::test_a_deleted_key_stays_deleted_when_an_older_change_of_it_comes_batches_later",),
        "what was deleted from a table that is no more is not held against the one that is made anew",
    ),
    Rule(
        "lakehouse/engine/changes/deleted_keys.py",
        "default=max(numbers, default=0))",
        "default=0)",
        ("engine/changes/test_read.py::test_a_deleted_key_stays_deleted_when_an_older_change_of_it_comes_batches_later",),
        "a table that is put back from a copy keeps what is remembered of its deletions",
    ),
    Rule(
        "lakehouse/engine/changes/dms.py",
        'parts = {"file_name": F.substring_index(OWN[0], "/", -1), "path"',
        'parts = {"path"',
        ("engine/changes/test_read.py::test_dms_without_position_follows_files_and_lines_and_malformed_lines_are_told",),
        "the order of files is that of their names, wherever they lie",
    ),
    Rule(
        "lakehouse/engine/changes/deleted_keys.py",
        "if number < before]",
        "if number <= before]",
        ("engine/changes/test_apply.py::test_a_batch_that_dies_at_any_step_ends_the_same",),
        "a batch that is repeated does not take its own deletions for older ones",
    ),
    Rule(
        "lakehouse/engine/changes/read.py",
        "is_told = not found[3] and not found[4] and",
        "is_told =",
        ("engine/changes/test_apply.py::test_a_batch_that_dies_at_any_step_ends_the_same",),
        "a batch that touches keys beyond its own is not bounded by them",
    ),
    Rule(
        "lakehouse/engine/changes/read.py",
        "why = why.when(has_key & F.col(quote(key)).isNull(),",
        "why = why.when(F.lit(False),",
        (
            "engine/changes/test_read.py::test_enveloped_events_of_mysql_are_ordered_by_file_number_and_position_and_all_that_is_none_is_told",
        ),
        "a change without a key is no change",
    ),
    Rule(
        "lakehouse/engine/changes/read.py",
        "why = why.when(~is_tombstone & ~F.col(IS_PLACED),",
        "why = why.when(F.lit(False),",
        (
            "engine/changes/test_read.py::test_enveloped_events_of_mysql_are_ordered_by_file_number_and_position_and_all_that_is_none_is_told",
        ),
        "a change without a position is no change",
    ),
    Rule(
        "lakehouse/engine/changes/apply.py",
        'return changes.alias("source").join(there, F.expr(statements.not_older(write.keys, ORDER)), "left_anti")',
        "return changes",
        ("engine/changes/test_read.py::test_a_soft_deletion_that_tells_the_key_alone_keeps_the_values",),
        "a change that is older than the table's row is no value of the deletion after it",
    ),
    Rule(
        "lakehouse/engine/changes/dms.py",
        "is_ordered & _filled(name).isNotNull()",
        "is_ordered & F.col(quote(name)).isNotNull()",
        ("engine/changes/test_read.py::test_dms_tells_a_null_by_its_word_and_an_empty_text_by_nothing",),
        "an empty position of DMS is none",
    ),
    Rule(
        "lakehouse/engine/changes/dms.py",
        "else _filled(changes.committed_at)",
        "else F.col(quote(changes.committed_at))",
        ("engine/changes/test_read.py::test_dms_without_position_follows_files_and_lines_and_malformed_lines_are_told",),
    ),
    Rule(
        "lakehouse/engine/changes/late_full_load.py",
        "if deletions is None or not has_forgotten(deletions):",
        "if True:",
        ("engine/changes/test_read.py::test_a_late_full_load_brings_no_key_back_whose_deletion_may_be_forgotten",),
    ),
    Rule(
        "lakehouse/engine/changes/deleted_keys.py",
        "frames.append(older.where(F.coalesce(F.col(REMEMBERED_AT) < since, F.lit(True))).limit(1).select(*nothing))",
        "pass",
        ("engine/changes/test_read.py::test_a_late_full_load_brings_no_key_back_whose_deletion_may_be_forgotten",),
        "that a deletion was forgotten stays known",
    ),
)
