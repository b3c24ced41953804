"""Rules of the engine: queues and the landing area, what files hold, the journal of batches."""

RULES = {
    "lakehouse/engine/ingest/staging.py": [
        (
            "return twin[1] if all(here and there and here.content == there.content for here, there in pairs) else None",
            "return twin[1] if [*pairs] else None",
            ("engine/ingest/test_staging.py::test_of_a_file_that_lies_packed_beside_itself_before_it_is_loaded_one_is_read",),
            "a packed file is loaded beside one of its time and name that has other records",
        ),
        (
            " or _packed_as(store, packed.get(mark), path, data, landing)",
            "",
            ("engine/ingest/test_staging.py::test_of_a_file_that_lies_packed_beside_itself_before_it_is_loaded_one_is_read",),
            "of a file that lies packed beside itself one is loaded, though both have landed at once",
        ),
        (
            "        if before != path:",
            "        if True:",
            ("engine/ingest/test_staging.py::test_of_a_file_that_lies_packed_beside_itself_before_it_is_loaded_one_is_read",),
            "a packed file is loaded beside one that was written over a loaded one and is refused",
        ),
        (
            "before = None if loaded_as is None else loaded_as(file, digest) or _packed_as(",
            "before = (loaded_as and loaded_as(file, digest)) or _packed_as(",
            ("engine/ingest/test_staging.py::test_of_a_file_that_lies_packed_beside_itself_before_it_is_loaded_one_is_read",),
            "a batch that was planned is staged again with all of its files",
        ),
        (
            "        if now.problem is not None:",
            "        if False:",
            ("engine/ingest/test_staging.py::test_a_file_that_another_declaration_cannot_read_stops_a_table_that_is_made_anew",),
        ),
        (
            "    _check_unchanged(table_key, batch, stage(store, table_key, batch, landing, loaded_as=lambda file, _: file.name).files)\n",
            "",
            ("engine/ingest/test_staging.py::test_what_was_read_of_a_file_that_changed_is_never_taken_for_what_the_batch_was",),
        ),
        (
            " or len(self._rows) == _PART_RECORDS",
            "",
            ("engine/ingest/test_staging.py::test_a_part_is_full_of_records_however_short_they_are_and_of_fields_that_no_schema_names",),
        ),
        (
            ' + len(record.undeclared or "")',
            "",
            ("engine/ingest/test_staging.py::test_a_part_is_full_of_records_however_short_they_are_and_of_fields_that_no_schema_names",),
            "fields that no schema names count for a part of staged records",
        ),
    ],
    "lakehouse/engine/journal/landed_batches.py": [
        (
            "            return now.etag != loaded.etag if now.etag and loaded.etag else now.modified_ms != loaded.modified_ms",
            "            return False",
            ("engine/journal/test_landed_batches.py::test_a_loaded_file_is_known_by_its_time_and_its_content_or_its_name",),
            "a loaded file that was renamed is not loaded again though another one has its name now",
        ),
        (
            "            return next(chain(packed, (each for each in alike if has_left(each))), None)",
            "            return None",
            ("engine/journal/test_landed_batches.py::test_a_loaded_file_is_known_by_its_time_and_its_content_or_its_name",),
            "a loaded file that was moved, renamed, packed or unpacked is not loaded again",
        ),
        (
            "(each for each in alike if has_left(each))",
            "alike",
            ("engine/journal/test_landed_batches.py::test_a_loaded_file_is_known_by_its_time_and_its_content_or_its_name",),
            "a file is loaded though one of its content and time is, which still lies there",
        ),
    ],
    "lakehouse/engine/ingest/retire.py": [
        (
            "{file.name}\\0{file.modified_ms}\\0{file.digest}",
            "{file.digest}",
            ("engine/ingest/test_retire.py::test_a_batch_of_many_bytes_is_archived_in_parts",),
            "files of one content in one batch are archived side by side",
        ),
    ],
    "lakehouse/engine/ingest/landed_rows.py": [
        (
            "if count > 1]:",
            "if count > 2]:",
            ("engine/ingest/test_landed_rows.py::test_a_column_name_that_stands_twice_makes_a_file_unreadable",),
            "no column of a file hides another of its name",
        ),
        (
            "            if size > limit:",
            "            if False:",
            ("engine/ingest/test_unpacked_size.py::test_values_that_stand_once_in_a_parquet_file_count_as_often_as_rows_have_them",),
            "rows are counted before they are made",
        ),
        (
            "    check_avro(data, limit)\n",
            "",
            ("engine/ingest/test_unpacked_size.py::test_an_avro_block_is_not_unpacked_beyond_the_limit",),
        ),
    ],
    "lakehouse/engine/landing/discovery.py": [
        (
            "        if unfinished is not None:\n            return ()\n",
            "",
            ("engine/landing/test_discovery.py::test_a_message_goes_when_its_batch_has_arrived_and_not_before",),
            "a message of a queue is deleted only after its batch arrived",
        ),
        (
            " if not any(name in self._waiting[key].files for key, name in places)]",
            "]",
            (
                "engine/landing/test_discovery.py::test_two_tables_of_one_queue_each_have_their_files_and_a_message_waits_for_both",
                "engine/landing/test_discovery.py::test_a_process_that_dies_loses_nothing",
            ),
            "a message of a queue stays as long as one of its files waits",
        ),
        (
            "*(landed_file(file, waiting.landing) for file in store.find(hints))",
            "*(LandedFile(name=name, size_bytes=2, modified_ms=0) for name in waiting.files)",
            ("engine/landing/test_discovery.py::test_a_forged_message_loads_nothing_and_goes",),
            "a message of a queue is a hint that is checked against the store",
        ),
        (
            "        if not 0 <= now - waiting.swept < SWEEP_SECONDS:",
            "        if waiting.swept < 0:",
            ("engine/landing/test_discovery.py::test_what_no_message_told_is_found_within_the_hour",),
        ),
        (
            "        if keys is None:\n            return False\n",
            "        if keys is None:\n            keys = ()\n",
            ("engine/landing/test_discovery.py::test_a_message_that_nobody_can_read_is_named_once_and_stays",),
            "a message that is none of S3's is not deleted",
        ),
        (
            "    if batch != (0 if newest is None else newest.number) + 1:\n        return None\n",
            "",
            ("engine/landing/test_discovery.py::test_a_run_that_comes_late_or_twice_lists",),
        ),
    ],
    "lakehouse/core/declaration/landing.py": [
        (
            """ or "@" in str(self.queue):""",
            ":",
            ("core/declaration/test_table.py::test_a_declaration_that_cannot_be_meant_is_refused",),
            "the address of a queue holds no password",
        ),
    ],
    "lakehouse/engine/ingest/unpacked_size.py": [
        (
            "            dictionaries.append(column.path)",
            "            pass",
            ("engine/ingest/test_unpacked_size.py::test_values_that_stand_once_in_a_parquet_file_count_as_often_as_rows_have_them",),
        ),
        (
            "    if content_bytes > limit:",
            "    if False:",
            ("engine/ingest/test_unpacked_size.py::test_values_that_stand_once_in_a_parquet_file_count_as_often_as_rows_have_them",),
            "a Parquet file tells in its footer that it is too large",
        ),
        (
            "            row_bytes += max((chunk.total_uncompressed_size for chunk in chunks), default=0)",
            "            pass",
            ("engine/ingest/test_unpacked_size.py::test_so_do_values_that_only_tell_how_they_differ_and_those_that_a_codec_makes_small",),
        ),
        (
            "        if size > limit:\n            break",
            "        if False:\n            break",
            ("engine/ingest/test_unpacked_size.py::test_an_avro_block_is_not_unpacked_beyond_the_limit",),
            "an Avro block is unpacked in parts",
        ),
        (
            "        if size > limit:\n            raise",
            "        if False:\n            raise",
            ("engine/ingest/test_unpacked_size.py::test_an_avro_block_is_not_unpacked_beyond_the_limit",),
            "an Avro file that is too large is not read",
        ),
        (
            "    _takes_no_bytes(file.writer_schema, {})\n",
            "",
            ("engine/ingest/test_unpacked_size.py::test_avro_rows_and_items_of_no_bytes_are_not_made_by_the_million",),
        ),
        (
            "size += max(row_count, ",
            "size += max(0, ",
            ("engine/ingest/test_unpacked_size.py::test_avro_rows_and_items_of_no_bytes_are_not_made_by_the_million",),
            "an Avro row of no bytes counts",
        ),
    ],
    "lakehouse/engine/ingest/parse_lines.py": [
        (
            'value = F.when(is_empty, F.lit("")).otherwise(value)',
            "pass",
            ("engine/changes/test_read.py::test_dms_tells_a_null_by_its_word_and_an_empty_text_by_nothing",),
        ),
    ],
}
