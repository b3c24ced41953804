"""Rules of the core: declarations, the log, plans of compactions, schedules, what tables downstream read."""

RULES = {
    "lakehouse/core/scheduling/read_losses.py": [
        (
            "        return lost > 0 and lost >= cost",
            "        return lost > 0 and lost >= 3 * cost",
            ("core/backtest/test_hindsight.py::test_the_rule_costs_at_most_twice_the_best_and_the_reads_that_set_its_compactions_off",),
        ),
        (
            "        return lost > 0 and lost >= cost",
            "        return lost > 0 and lost >= cost / 3",
            ("core/backtest/test_hindsight.py::test_the_rule_costs_at_most_twice_the_best_and_the_reads_that_set_its_compactions_off",),
            "no compaction runs before readers have lost what it takes",
        ),
    ],
    "lakehouse/core/scheduling/triggers.py": [
        (
            '    return state.readers != "unknown" and state.openings is not None',
            "    return state.openings is not None",
            ("core/scheduling/test_triggers.py::test_a_number_of_files_and_an_age_make_a_table_due_whatever_its_readers_lose",),
            "readers that are unknown are not counted as none",
        ),
    ],
    "lakehouse/core/scheduling/circuit_breaker.py": [
        (
            "    if (risk := commits_at_risk(write)) is not None:",
            "    if (risk := None) is not None:",
            ("cli/commands/test_addresses.py::test_any_table_is_looked_at_by_its_address_and_left_as_it_is",),
            "a table whose writers are unknown is never asked for by the sensor",
        ),
    ],
    "lakehouse/core/declaration/table.py": [
        (
            "        return self.inputs if isinstance(self.write, Overwrite) else self.inputs[1:]",
            "        return self.inputs",
            ("core/scheduling/test_read_rates.py::test_a_run_that_reads_changes_only_is_no_full_read",),
        ),
        (
            "    _check_shared_landings(found)\n    ordered",
            "    ordered",
            ("engine/ingest/test_retire.py::test_loaded_files_are_not_taken_away_from_another_table",),
        ),
    ],
    "lakehouse/core/declaration/landing.py": [
        (
            'return not any(part.startswith((".", "_")) for part in name.split("/"))',
            "return True",
            ("core/ingest/test_batches.py::test_a_batch",),
            "hidden files are not loaded",
        ),
        (
            'if (top := self.prefix.partition("/")[0]).lower() in _OWN_FOLDERS:',
            'if (top := self.prefix.partition("/")[0]) in ("bronze",):',
            ("core/declaration/test_table.py::test_a_declaration_that_cannot_be_meant_is_refused",),
        ),
    ],
    "lakehouse/core/declaration/vacuum_policy.py": [
        (
            "and not self.accepts_short_retention:\n            said",
            "and False:\n            said",
            ("core/vacuum/test_plan.py::test_a_knob_that_cannot_be_is_refused",),
        ),
    ],
    "lakehouse/core/declaration/strategy_properties.py": [
        (
            "if name in ours or name not in current}",
            "}",
            ("core/scheduling/test_strategies.py::test_only_what_was_set_here_is_taken_back",),
        ),
    ],
    "lakehouse/core/adoption/adopted.py": [
        (
            "    return bool(log_store) and not log_store.startswith(_DELTA_S_OWN)",
            "    return bool(log_store)",
            ("core/adoption/test_adopted_file.py::test_no_log_store_of_delta_s_own_is_believed_to_write_conditionally",),
        ),
    ],
    "lakehouse/core/compaction/plan.py": [
        (
            "    if unknown := unknown_features(snapshot.features):",
            "    if unknown := []:",
            ("engine/vacuum/test_adopted.py::test_under_a_feature_that_is_not_known_nothing_is_planned",),
        ),
        (
            'return "content" if bytes_removed <= COMPARED_BYTES else "rows"',
            'return "rows"',
            ("core/compaction/test_comparison.py::test_the_plan_says_what_is_compared_and_why",),
        ),
    ],
    "lakehouse/core/delta/commits.py": [
        (
            '_BRING_FILES_BACK = ("RESTORE", "CLONE")',
            '_BRING_FILES_BACK = ("RESTORE",)',
            ("core/delta/test_commits.py::test_which_operations_may_tell_rows_a_second_time",),
        ),
        (
            '_TOLD_ROW_BY_ROW = ("DELETE", "MERGE", "UPDATE")',
            '_TOLD_ROW_BY_ROW = ("DELETE", "MERGE", "UPDATE", "WRITE")',
            ("core/delta/test_commits.py::test_which_operations_may_tell_rows_a_second_time",),
        ),
        (
            "isinstance(version, int) and not isinstance(version, bool) else None",
            "isinstance(version, int) else None",
            ("core/delta/test_commits.py::test_what_this_lake_overwrites_is_followed_as_it_is",),
        ),
        (
            "return commits if len(commits) == upto - version else None",
            "return commits",
            ("core/delta/test_commits.py::test_the_commits_between_two_versions_are_all_there_or_unknown",),
        ),
        (
            "return commit.changed_data and brought_back_by(commit) is None",
            "return commit.changed_data",
            ("core/ingest/test_increments.py::test_a_compaction_and_its_undoing_are_no_news",),
        ),
        (
            "now = now | {commit.version} if restored is None else held.get(restored, frozenset())",
            "now = now | {commit.version} if restored is None else now",
            ("core/delta/test_commits.py::test_what_our_restores_undid_and_what_they_took_from_others_is_told",),
        ),
    ],
    "lakehouse/core/delta/retention.py": [
        (
            "return None if not spans or any(ms is None for _, ms in spans) else",
            "return",
            ("core/inventory/test_reconcile.py::test_the_retention_is_the_table_s_property",),
        ),
    ],
    "lakehouse/core/delta/paths.py": [
        (
            "    if not _NO_NAME.search(path):\n",
            "    if True:\n",
            ("core/delta/test_paths.py::test_a_uri_has_a_name_below_the_root_that_it_leads_to",),
        ),
        (
            '    return None if name == ".." or name.startswith("../") else name',
            "    return name",
            ("core/delta/test_paths.py::test_a_path_of_a_log_names_the_file_that_delta_reads",),
        ),
        (
            "name = plain_path(unquote(path))",
            "name = unquote(path)",
            ("engine/vacuum/test_places.py::test_a_name_that_is_spelt_oddly_in_the_log_is_the_file_that_delta_reads",),
        ),
    ],
    "lakehouse/core/delta/deletion_vectors.py": [
        (
            "_IN_TABLE.fullmatch(vector) is not None",
            "True",
            ("engine/delta_log/test_damaged_logs.py::test_a_deletion_vector_with_an_id_that_is_none_is_told",),
        ),
        (
            "except ValueError as error:",
            "except OverflowError as error:",
            ("engine/delta_log/test_damaged_logs.py::test_a_deletion_vector_whose_id_is_no_number_is_broken",),
        ),
    ],
    "lakehouse/engine/delta_log/actions.py": [
        (
            """return f"{identity}@{'' if offset is None else offset}\"""",
            'return identity if offset is None else f"{identity}@{offset}"',
            ("engine/delta_log/test_snapshots.py::test_a_deletion_vector_whose_name_ends_like_an_offset_is_found",),
        ),
    ],
    "lakehouse/core/settings.py": [
        (
            "    _refuse_credentials(environ)\n",
            "",
            ("core/test_settings.py::test_credentials_in_an_address_are_refused_with_their_place_and_not_repeated",),
        ),
        (
            're.compile(r"://[^;?]*@|://\\S*\\?\\S*=")',
            're.compile(r"://[^;?]*@")',
            ("core/test_settings.py::test_credentials_in_an_address_are_refused_with_their_place_and_not_repeated",),
        ),
        (
            're.compile(r"://[^;?]*@|://\\S*\\?\\S*=")',
            're.compile(r"://[^/;?]*@|://\\S*\\?\\S*=")',
            ("core/test_settings.py::test_credentials_in_an_address_are_refused_with_their_place_and_not_repeated",),
        ),
        (
            "_NOT_IN_SPARK.search(value)",
            "_NOT_IN_SPARK.fullmatch(value)",
            ("core/test_settings.py::test_a_token_or_a_session_for_spark_is_refused_and_not_repeated",),
        ),
        (
            '"LAKEHOUSE_SPARK", value.partition(";")[0])',
            '"LAKEHOUSE_SPARK", value)',
            ("core/test_settings.py::test_a_header_for_spark_is_taken_and_never_repeated",),
        ),
        ("    _refuse_unknown(environ)\n", "", ("core/test_settings.py::test_an_unknown_name_is_refused_with_the_nearest_known",)),
        (
            ' or {".", ".."} & set(prefix.split("/"))',
            "",
            ("core/test_settings.py::test_a_root_that_cannot_be_meant_is_refused_with_the_nearest_that_can",),
        ),
        (
            '_UNSAFE_IN_FOLDER = re.compile(r"[*?\\[\\]{}\\\\\\x00-\\x1f]")',
            '_UNSAFE_IN_FOLDER = re.compile(r"[\\x00-\\x1f]")',
            ("core/test_settings.py::test_a_root_that_cannot_be_meant_is_refused_with_the_nearest_that_can",),
        ),
    ],
    "lakehouse/core/text.py": [
        ("    if text.isprintable():\n", "    if True:\n", ("core/test_text.py::test_a_character_that_acts_is_shown_as_its_escape",)),
    ],
    "lakehouse/core/ingest/increments.py": [
        (
            "    if is_append and (repeating :=",
            "    if is_append and False and (repeating :=",
            ("core/ingest/test_increments.py::test_who_appends_never_reads_past_rows_that_it_may_have_had",),
        ),
        (
            "    if is_whole and any(version < consumed",
            "    if False and any(version < consumed",
            ("core/ingest/test_increments.py::test_who_read_the_rows_of_an_undone_compaction_reads_them_again",),
        ),
        (
            "    passed_over = tuple(version for version in undoing if version > changed[0])",
            "    passed_over = ()",
            ("core/ingest/test_increments.py::test_who_follows_changes_passes_over_the_undoing_of_a_compaction",),
        ),
        (
            "    if commits is None:",
            "    if commits is None and not history.commits:",
            ("core/ingest/test_increments.py::test_an_increment",),
            "changes that the log no longer tells are not taken for none",
        ),
    ],
}
