"""Rules of the engine: what is read of logs, of the journal and of reports."""

RULES = {
    "lakehouse/engine/inventory/log_locations.py": [
        (
            '{"": lake.settings.spark_root, **lake.elsewhere}',
            '{"": lake.settings.spark_root}',
            ("engine/adoption/test_guard.py::test_a_file_of_a_table_elsewhere_has_the_table_s_key_for_a_place",),
        ),
        (
            'os.path.realpath(root) if root.startswith("/") else root',
            "root",
            ("engine/vacuum/test_places.py::test_a_clone_by_the_real_path_lends_and_misses_by_name",),
        ),
        (
            "os.path.realpath(path) if os.path.islink(path) else path",
            "path",
            ("engine/vacuum/test_places.py::test_what_a_clone_reads_stays_however_it_spells_the_path",),
        ),
        (
            "return tuple(sorted(prefixes | real))",
            "return tuple(sorted(prefixes))",
            ("engine/vacuum/test_places.py::test_landed_files_stay_where_the_landing_is_a_link_into_a_table",),
        ),
    ],
    "lakehouse/engine/inventory/stored_reports.py": [
        (
            "    if len(data) != part.size_bytes:\n",
            "    if False:\n",
            ("engine/inventory/test_reports.py::test_a_data_file_that_is_not_the_manifest_s_is_refused",),
        ),
        (
            ".hexdigest()) != part.md5:",
            '.hexdigest()) == "":',
            ("engine/inventory/test_reports.py::test_a_data_file_that_is_not_the_manifest_s_is_refused",),
        ),
        (
            "or (checksum := checksum_of(store, found, stamp)) is None:",
            'or (checksum := checksum_of(store, found, stamp) or "") is None:',
            ("engine/inventory/test_reports.py::test_the_newest_complete_report_comes_first_and_an_unfinished_one_is_not_read",),
        ),
    ],
    "lakehouse/engine/inventory/parse_report.py": [
        (
            'if others := set(columns["bucket"]) - {report.bucket}:',
            "if others := set():",
            ("engine/inventory/test_reports.py::test_rows_that_cannot_be_trusted_are_refused",),
        ),
    ],
    "lakehouse/engine/inventory/scan.py": [
        (
            "if not store.put_if_absent(name, data):",
            "store.put(name, data)\n        if False:",
            ("engine/inventory/test_reports.py::test_two_scans_of_one_minute_are_two_reports_the_later_one_newest",),
        ),
        (
            "_remove_expired(store, folder, now_ms=now_ms)",
            '_remove_expired(store, folder.replace(SCAN, "daily"), now_ms=now_ms)',
            ("engine/inventory/test_reports.py::test_old_scans_go_with_the_next_one_and_reports_of_others_stay",),
        ),
        (
            '        store.put(f"{folder}/hive/dt={began:%Y-%m-%d-%H-%M}/symlink.txt", links.encode())\n        checksum = hashlib.md5(data, usedforsecurity=False).hexdigest()\n        store.put(f"{folder}/{began:%Y-%m-%dT%H-%MZ}/manifest.checksum", f"{checksum}\\n".encode())\n',
            '        checksum = hashlib.md5(data, usedforsecurity=False).hexdigest()\n        store.put(f"{folder}/{began:%Y-%m-%dT%H-%MZ}/manifest.checksum", f"{checksum}\\n".encode())\n        store.put(f"{folder}/hive/dt={began:%Y-%m-%d-%H-%M}/symlink.txt", links.encode())\n',
            ("engine/inventory/test_reports.py::test_a_scan_killed_in_the_middle_leaves_no_complete_report",),
        ),
    ],
    "lakehouse/engine/inventory/reports_table.py": [
        (
            'f"{REPORTS}/_loading/{lake.store.bucket}"',
            'f"{REPORTS}/{lake.store.bucket}"',
            ("engine/inventory/test_reports.py::test_what_killed_writes_left_beside_reports_and_rows_goes_when_it_is_old",),
        ),
        (
            '{PARTITIONS_OVERWRITTEN: "dynamic"}',
            "{}",
            (
                "engine/inventory/test_reports_table.py::test_csv_orc_and_parquet_reports_give_the_listing_to_the_row_and_a_day_is_there_once",
            ),
        ),
        (
            "            _clear(lake)\n            files",
            "            files",
            ("engine/inventory/test_reports_table.py::test_a_load_that_dies_is_made_good_by_the_next",),
            "loads of a report that die leave the rows of one report, not of each",
        ),
    ],
    "lakehouse/engine/journal/landed_batches.py": [
        (
            "        if carried is not None or is_passed_over or not named < files or not files - named <= taken_out & aside:",
            "        if False:",
            (
                "engine/journal/test_landed_batches.py::test_a_manifest_is_replaced_only_by_one_of_the_same_files_while_it_lies_there_by_itself",
            ),
        ),
        (
            "        is_passed_over = not named and batch.number != listing.newest",
            "        is_passed_over = False",
            (
                "engine/journal/test_landed_batches.py::test_a_batch_that_others_follow_keeps_a_file_so_that_its_quarantine_is_not_passed_over",
            ),
        ),
        (
            "if batch.number not in listing.manifests or batch.number <= listing.segment:",
            "if False:",
            (
                "engine/journal/test_landed_batches.py::test_a_manifest_is_replaced_only_by_one_of_the_same_files_while_it_lies_there_by_itself",
            ),
            "no manifest takes the place of one that is folded",
        ),
        (
            "if batch.number <= newest or not self._store.put_if_absent(name, encode_manifest(batch)):",
            "if self._store.put(name, encode_manifest(batch)):",
            ("engine/journal/test_landed_batches.py::test_of_a_race_for_one_number_only_one_manifest_stays",),
        ),
        (
            "!= data:",
            "!= data and False:",
            ("engine/journal/test_folding.py::test_manifests_go_only_when_the_segment_that_was_written_is_read_back_equal",),
        ),
        (
            "if lost := lost_files(",
            'if (lost := [""])[1:] and lost_files(',
            ("engine/journal/test_folding.py::test_manifests_of_files_that_the_segment_does_not_know_stay",),
        ),
        (
            "if number <= segment.forgotten_batch:",
            "if False:",
            (
                "engine/journal/test_folding.py::test_batches_of_a_table_that_was_deleted_are_done_again_from_the_segment_unless_files_of_them_are_forgotten",
            ),
        ),
        (
            "if batch.number > newest + 1:",
            "if False:",
            (
                "engine/journal/test_landed_batches.py::test_a_batch_that_another_process_planned_meanwhile_is_a_lost_race_and_one_beyond_the_next_is_broken",
            ),
        ),
    ],
    "lakehouse/engine/journal/journal.py": [
        (
            "        self._store.delete(older)\n",
            "        self._store.delete([file.name for file in self._store.list(CHANGES)][:-1])\n",
            ("engine/journal/test_journal.py::test_two_writers_of_markers_at_once_never_bring_back_names_that_a_reader_has_seen",),
        ),
        (
            "key=lambda name: (_told_ms(name) < latest_ms, name)",
            "key=None",
            ("engine/journal/test_journal.py::test_what_a_clock_that_was_ahead_told_hides_nothing_newer_and_goes_first",),
            "a record of now is not the first to go",
        ),
        (
            "and not file.name.startswith(PAUSES)]",
            "]",
            (
                "engine/journal/test_journal.py::test_between_two_looks_one_listing_tells_whether_there_is_something_new_and_a_sweep_finds_what_has_no_marker",
            ),
        ),
    ],
    "lakehouse/engine/journal/batch_manifest.py": [
        (
            "        raise damaged(name, error) from error\n    if batch.number",
            "        return Batch(number=number, files=()), None\n    if batch.number",
            ("engine/journal/test_landed_batches.py::test_a_damaged_or_missing_manifest_is_broken_and_named",),
        ),
    ],
    "lakehouse/engine/delta_log/__init__.py": [
        (
            "        except (LogChanged, FileNotFoundError) as error:",
            "        except LogChanged as error:",
            ("engine/delta_log/test_snapshots.py::test_a_log_that_is_cleaned_up_while_it_is_read_is_listed_again",),
        ),
    ],
    "lakehouse/engine/delta_log/commits.py": [
        (
            "(file.modified_ms < asked_ms - _SETTLED_MS and store",
            "(store",
            ("engine/delta_log/test_kept_commits.py::test_no_young_commit_of_the_same_size_and_time_is_mistaken_for_another",),
        ),
        (
            " and store.stat(file.name) == file",
            "",
            ("engine/delta_log/test_kept_commits.py::test_what_was_read_while_another_file_lay_there_is_not_kept",),
        ),
        (
            "        yield from portion",
            "        break",
            ("engine/delta_log/test_far_behind.py::test_who_is_far_behind_reads_the_changes_since_and_not_all",),
        ),
    ],
    "lakehouse/engine/delta_log/checkpoint.py": [
        (
            "    if column.null_count or not is_kind(column.type):",
            "    if not is_kind(column.type):",
            ("engine/delta_log/test_damaged_logs.py::test_a_field_that_is_null_in_a_parquet_checkpoint_is_told",),
        ),
        (
            'number(vector, "cardinality") for vector in vectors',
            '(vector.get("cardinality") or 0) for vector in vectors',
            ("engine/delta_log/test_damaged_logs.py::test_a_field_that_is_null_in_a_parquet_checkpoint_is_told",),
        ),
    ],
    "lakehouse/engine/delta_log/fields.py": [
        (
            "    if not isinstance(value, int) or isinstance(value, bool) or value < 0:",
            "    if not isinstance(value, int) or value < 0:",
            ("engine/delta_log/test_damaged_logs.py::test_a_field_that_is_damaged_is_told_or_does_not_matter",),
        ),
        (
            "    if not isinstance(value, int) or isinstance(value, bool) or value < 0:",
            "    if not isinstance(value, int) or isinstance(value, bool):",
            ("engine/delta_log/test_damaged_logs.py::test_a_field_that_is_damaged_is_told_or_does_not_matter",),
        ),
        (
            "    if not isinstance(value, bool):",
            "    if value is None:",
            ("engine/delta_log/test_damaged_logs.py::test_a_field_that_is_damaged_is_told_or_does_not_matter",),
        ),
        (
            "MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)",
            "MALFORMED = (ValueError, KeyError, TypeError, AttributeError)",
            (
                "engine/delta_log/test_damaged_logs.py::test_a_schema_that_cannot_be_read_is_told_by_table_and_version_unless_a_newer_one_is_there",
            ),
        ),
    ],
    "lakehouse/engine/delta_log/fold.py": [
        (
            "            key = (action.path, action.vector)",
            "            key = (action.path, None)",
            ("engine/delta_log/test_snapshots.py::test_a_file_with_a_vector_in_the_checkpoint_can_go_and_change_after_it",),
        ),
        (
            " for place in set(adds.places)}",
            " for place in range(len(adds.pairs))}",
            (
                "engine/delta_log/test_snapshots.py::test_a_table_that_was_overwritten_with_another_partitioning_is_read_before_its_next_checkpoint",
            ),
        ),
    ],
    "lakehouse/engine/delta_log/missing_files.py": [
        (
            "uri = unquote(path) if is_absolute(path)",
            "uri = path if is_absolute(path)",
            ("engine/delta_log/test_snapshots.py::test_a_deletion_vector_with_a_path_of_its_own_is_looked_for_under_its_decoded_name",),
        ),
    ],
    "lakehouse/engine/delta_log/schema.py": [
        (
            "    except MALFORMED as error:",
            "    except KeyError as error:",
            (
                "engine/delta_log/test_damaged_logs.py::test_a_schema_that_cannot_be_read_is_told_by_table_and_version_unless_a_newer_one_is_there",
            ),
        ),
        (
            "    if reader > _READER_WITH_FEATURES or read - COUNTABLE:",
            "    if reader > _READER_WITH_FEATURES:",
            ("engine/delta_log/test_snapshots.py::test_what_cannot_be_counted_is_refused_by_name",),
        ),
        (
            "is_required=reader == _READER_WITH_FEATURES",
            "is_required=False",
            ("engine/delta_log/test_damaged_logs.py::test_features_that_a_protocol_has_to_name_are_not_taken_for_none",),
        ),
    ],
    "lakehouse/engine/delta_log/log_segment.py": [
        (
            "    if missing := version - checkpoint_version - len(there):",
            "    if False and (missing := 0):",
            ("engine/delta_log/test_snapshots.py::test_a_gap_in_the_versions_is_broken_and_named",),
        ),
        (
            " and len(files) == int(kind)",
            " and True",
            ("engine/delta_log/test_snapshots.py::test_an_unfinished_multi_part_checkpoint_is_passed_over",),
        ),
    ],
    "lakehouse/engine/delta_log/actions.py": [
        (
            'else any_text(action, "configuration")',
            'else text(action, "configuration")',
            ("engine/delta_log/test_damaged_logs.py::test_a_domain_s_configuration_may_be_empty",),
        ),
    ],
}
