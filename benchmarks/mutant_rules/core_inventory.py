"""Rules of the core: inventories."""

RULES = {
    "lakehouse/core/delta/snapshot.py": [
        (
            "else max(before, ms)",
            "else min(before, ms)",
            ("core/inventory/test_reconcile.py::test_the_books_of_a_layout",),
            "of several removals of one file the last one counts",
        ),
    ],
    "lakehouse/core/inventory/table_files.py": [
        (
            "dropped_stones=frozenset(name for path in dropped if (name := names.own(path))),",
            "",
            ("engine/vacuum/test_faults.py::test_what_an_older_version_of_a_clone_reads_stays_though_a_checkpoint_dropped_its_tombstone",),
        ),
        (
            "self.removed_vectors, self.dropped_stones) if inner",
            "self.removed_vectors) if inner",
            ("engine/vacuum/test_faults.py::test_what_an_older_version_of_a_clone_reads_stays_though_a_checkpoint_dropped_its_tombstone",),
            "what an older version of a table around it reads stays though a checkpoint dropped its tombstone",
        ),
        (
            '            self.unplaced.add(name.rpartition("/")[2])\n',
            "",
            ("engine/vacuum/test_places.py::test_what_a_clone_reads_stays_however_it_spells_the_path",),
        ),
        (
            '            self._remember(place and f"{place}/{last}", name, reference)\n',
            "",
            ("engine/vacuum/test_places.py::test_what_a_table_reads_through_a_link_in_its_own_folder_stays",),
        ),
        (
            "            self.kept_elsewhere.add(place)\n",
            "            pass\n",
            ("engine/vacuum/test_places.py::test_what_an_older_version_of_a_clone_reads_stays_however_it_spells_the_path",),
        ),
        (
            "self.elsewhere.keys() | self.kept_elsewhere | within",
            "self.elsewhere.keys() | self.kept_elsewhere",
            ("engine/vacuum/test_places.py::test_what_a_table_around_it_reads_stays_and_is_not_missing",),
        ),
        (
            'return f"{self.place or self.table}/{name}"',
            'return f"{self.table}/{name}"',
            ("engine/vacuum/test_places.py::test_what_a_clone_reads_of_a_table_whose_folder_is_a_link_stays",),
        ),
        (
            "name.partition(_LOG)[0] for name in names if _LOG in name",
            'name.partition(_LOG)[0] for name in names if name.endswith("0.json")',
            ("core/inventory/test_reconcile.py::test_every_folder_with_a_log_is_a_table",),
        ),
    ],
    "lakehouse/core/delta/retention.py": [
        (
            '"microsecond": Fraction(1, 1_000),',
            '"microsecond": 0,',
            ("core/inventory/test_reconcile.py::test_the_retention_is_the_table_s_property",),
            "a retention in microseconds is as long as it says",
        ),
    ],
    "lakehouse/core/inventory/classify.py": [
        (
            "kept_since_ms if horizon_ms is None else min(kept_since_ms, horizon_ms)",
            "kept_since_ms if horizon_ms is None else horizon_ms",
            ("core/vacuum/test_plan.py::test_the_horizon_moves_back_with_the_clock_and_never_on",),
        ),
        (
            "kept_since_ms = 0 if table_files.retention_ms is None else now_ms - table_files.retention_ms",
            "kept_since_ms = now_ms - (table_files.retention_ms or 0)",
            ("core/inventory/test_reconcile.py::test_without_a_known_retention_nothing_is_past_it",),
        ),
        (
            "if place in self._lent or",
            "if",
            ("core/vacuum/test_plan.py::test_what_a_version_within_the_retention_or_another_table_may_read_stays",),
        ),
        (
            "return ms is None or ms >= self.horizon_ms",
            "return ms is not None and ms >= self.horizon_ms",
            ("core/inventory/test_reconcile.py::test_every_object_is_told_apart",),
        ),
        (
            "unplaced | table_files.unplaced",
            "unplaced",
            ("core/vacuum/test_plan.py::test_what_a_version_within_the_retention_or_another_table_may_read_stays",),
        ),
        (
            "        if self._hidden.match(own):\n            return Part.HIDDEN\n",
            "",
            ("engine/vacuum/test_faults.py::test_hidden_files_that_delta_would_take_from_an_inventory_stay",),
        ),
        (
            'rf"metadata/|(?:^|.*/)',
            'rf"(?:^|.*/)',
            ("engine/vacuum/test_faults.py::test_the_metadata_that_is_written_for_readers_of_iceberg_stays",),
        ),
        ("if own.startswith(_LOG):", "if False:", ("core/inventory/test_reconcile.py::test_every_object_is_told_apart",)),
    ],
    "lakehouse/core/inventory/expiry.py": [
        (
            "if kept_ms is None or kept_ms < reports_ms:",
            "if False:",
            ("core/inventory/test_checks.py::test_of_our_old_scans_only_what_they_wrote_goes",),
        ),
        (
            "if began_ms is not None and began_ms < reports_ms:",
            "if began_ms is not None:",
            ("core/inventory/test_checks.py::test_of_our_old_scans_only_what_they_wrote_goes",),
        ),
        (
            '_DATA = re.compile(r"data/[0-9a-f-]{36}\\.parquet")',
            '_DATA = re.compile(r"data/.*")',
            ("core/inventory/test_checks.py::test_of_our_old_scans_only_what_they_wrote_goes",),
        ),
        (
            "and modified_ms < data_ms:",
            "and modified_ms < reports_ms:",
            ("core/inventory/test_checks.py::test_of_our_old_scans_only_what_they_wrote_goes",),
        ),
        (
            'key=lambda name: (not name.endswith("manifest.checksum"), name)',
            'key=lambda name: (name.endswith("manifest.checksum"), name)',
            ("core/inventory/test_checks.py::test_a_report_loses_its_checksum_first",),
        ),
    ],
    "lakehouse/core/inventory/report_manifest.py": [
        ("if said != is_:", "if False:", ("core/inventory/test_reconcile.py::test_a_manifest_that_cannot_be_trusted_is_refused_by_name",)),
        (
            "if found.bucket != bucket:",
            "if False:",
            ("core/inventory/test_reconcile.py::test_a_manifest_that_cannot_be_trusted_is_refused_by_name",),
        ),
        (
            "if found.created_ms > now_ms + _AHEAD_MS:",
            "if False:",
            ("core/inventory/test_reconcile.py::test_a_manifest_that_cannot_be_trusted_is_refused_by_name",),
        ),
    ],
    "lakehouse/core/inventory/objects.py": [
        (
            "_FIRST_MS <= modified_ms <= now_ms + DAY_MS",
            "modified_ms",
            ("core/inventory/test_reconcile.py::test_seconds_and_microseconds_are_no_times",),
        ),
    ],
    "lakehouse/engine/inventory/parse_report.py": [
        (
            'key and unquote_plus(key, errors="strict")',
            'key and unquote_plus(unquote_plus(key, errors="strict"))',
            ("engine/inventory/test_reports.py::test_a_report_of_any_format_gives_the_listing_to_the_row",),
        ),
    ],
    "lakehouse/engine/inventory/stored_reports.py": [
        (
            "                if is_current(each):",
            "                if True:",
            ("engine/inventory/test_reports.py::test_a_log_of_which_only_versions_are_left_makes_no_table",),
        ),
    ],
}
