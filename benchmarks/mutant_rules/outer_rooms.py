"""Rules of the terminal, of Dagster's definitions, of the replay and of what keeps processes alive."""

RULES = {
    "lakehouse/defs/keys.py": [
        (
            "    if isinstance(table.write, Adopted) and table.write.pool:\n",
            "    if False:\n",
            ("defs/adoption/test_maintain.py::test_the_compaction_waits_for_its_writer_in_the_writer_s_pool",),
        ),
    ],
    "lakehouse/defs/adoption/maintain.py": [
        (
            "known = [*_TABLES[settings.root].values()]",
            "known = [*tables]",
            ("defs/adoption/test_maintain.py::test_a_vacuum_keeps_the_files_that_a_table_of_another_call_borrows",),
        ),
        (
            'if writers == "none" and pool is None:',
            "if False:",
            ("defs/adoption/test_maintain.py::test_an_asset_without_a_pool_is_no_writer_that_waits",),
        ),
        (
            "        known += _adopted_beside(known, settings)\n",
            "",
            ("defs/adoption/test_maintain.py::test_a_vacuum_keeps_the_files_that_an_adopted_table_borrows",),
        ),
        (
            "if both := [key for key in beside if key in by_key]:",
            "if both := []:",
            ("defs/adoption/test_maintain.py::test_an_adopted_table_of_a_key_that_is_maintained_holds_the_vacuum_back",),
        ),
    ],
    "lakehouse/defs/dagster_records.py": [
        (
            "        if limit != 1\n",
            "        if limit is None\n",
            ("defs/adoption/test_maintain.py::test_a_pool_that_lets_two_in_holds_the_compaction_back",),
        ),
        (
            'for record in records if "lakehouse/state" in _metadata(record)',
            "for record in records",
            ("defs/adoption/test_observed.py::test_what_its_writer_records_of_it_does_not_hide_what_we_know",),
        ),
    ],
    "lakehouse/defs/compaction.py": [
        (
            "for risk in pools_at_risk(context.instance, [table]).values():",
            "for risk in ():",
            ("defs/adoption/test_maintain.py::test_a_pool_that_lets_two_in_holds_the_compaction_back",),
        ),
        (
            "        context.instance.add_run_tags(context.run.run_id, process_tag(context.run.run_id))\n",
            "",
            ("defs/test_compaction_sensor.py::test_runs_that_were_refused_since_their_window_had_closed_never_use_up_the_tries",),
        ),
    ],
    "lakehouse/defs/adoption/observed.py": [
        (
            "lake.has_moved_on(table.key, before.newest)",
            "lake.has_version(table.key, before.newest.version + 1)",
            ("defs/adoption/test_observed.py::test_a_table_that_was_made_anew_is_read_again_though_its_versions_went_back",),
        ),
    ],
    "lakehouse/defs/metadata/markdown.py": [
        (
            're.compile(r"[\\\\`*_\\[\\]<>&|~]")',
            're.compile(r"[\\\\`*_\\[\\]<>&~]")',
            ("defs/metadata/test_markdown.py::test_the_cells_of_a_table_show_what_they_were_given_whatever_it_is",),
        ),
        (
            're.compile(r"[\\\\`*_\\[\\]<>&|~]")',
            're.compile(r"[\\\\`*_\\[\\]>&|~]")',
            ("defs/metadata/test_markdown.py::test_the_cells_of_a_table_show_what_they_were_given_whatever_it_is",),
        ),
        (
            "printable(text)))",
            "text))",
            ("defs/metadata/test_markdown.py::test_the_cells_of_a_table_show_what_they_were_given_whatever_it_is",),
        ),
        (
            "*([*map(markdown_text, row)] for row in rows)",
            "*([*map(Markdown, row)] for row in rows)",
            ("defs/metadata/test_markdown.py::test_the_cells_of_a_table_show_what_they_were_given_whatever_it_is",),
        ),
    ],
    "lakehouse/cli/output.py": [
        ("        click.echo(printable(line))", "        click.echo(line)", ("cli/test_output.py::test_a_name_makes_no_line_of_its_own",)),
        (
            'click.echo(printable(text, keep="\\n\\t"), err=True)',
            "click.echo(text, err=True)",
            ("cli/test_output.py::test_nothing_that_a_command_shows_acts_on_the_terminal",),
        ),
        (
            "kept = [[printable(cell) for cell in row] for row in rows]",
            "kept = [list(row) for row in rows]",
            ("cli/test_output.py::test_nothing_that_a_command_shows_acts_on_the_terminal",),
        ),
    ],
    "lakehouse/cli/commands/quarantine.py": [
        (
            "if not dry_run:",
            "if not dry_run and (done.rows or done.files):",
            ("cli/test_through_dagster.py::test_landing_to_gold_and_compaction_as_planned",),
            "a retry tells what follows of its rows, also where one before it was killed",
        ),
    ],
    "lakehouse/runtime/processes.py": [
        (
            "            return fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)",
            "            return None",
            ("engine/test_races.py::test_a_table_that_is_held_makes_others_wait_and_names_its_holder",),
        ),
        (
            "return _born(self.pid) == self.born",
            "return _born(self.pid) is not None",
            ("runtime/test_server.py::test_two_processes_are_the_same_only_if_pid_and_birth_are",),
        ),
        (
            "            if self.is_alive:\n                with",
            "            if True:\n                with",
            ("runtime/test_server.py::test_a_pid_that_came_back_as_another_process_is_not_the_server_and_is_not_stopped",),
        ),
    ],
    "lakehouse/runtime/server.py": [
        (
            "        state = status(settings)\n        if state.supervisor is not None:",
            "        state = status(settings)\n        if False:",
            ("runtime/test_server.py::test_a_server_that_another_process_supervises_is_not_stopped",),
        ),
    ],
    "lakehouse/runtime/server_state.py": [
        (
            "    if state.port != settings.spark_port:",
            "    if False:",
            ("runtime/test_server.py::test_a_server_at_another_port_or_told_of_another_storage_does_not_serve",),
        ),
        (
            "if settings.on_s3 and state.storage not in (None, wanted := storage_of(settings)):",
            "if False and (wanted := storage_of(settings)):",
            ("runtime/test_server.py::test_a_server_at_another_port_or_told_of_another_storage_does_not_serve",),
        ),
    ],
    "lakehouse/runtime/spark_settings.py": [
        ("0o600", "0o644", ("engine/spark/test_sessions.py::test_what_spark_is_told_is_readable_by_its_owner_only",)),
        (
            '"spark.connect.grpc.binding.address": "127.0.0.1"',
            '"spark.connect.grpc.binding.address": "0.0.0.0"',
            ("engine/spark/test_sessions.py::test_a_server_is_told_to_stay_on_loopback_and_gets_no_secret",),
        ),
        (
            '"spark.databricks.delta.write.txnVersion.autoReset.enabled": "true"',
            '"spark.databricks.delta.write.txnVersion.autoReset.enabled": "false"',
            ("engine/spark/test_sessions.py::test_a_server_is_told_to_stay_on_loopback_and_gets_no_secret",),
            "no write is taken for one that was made before",
        ),
    ],
    "lakehouse/runtime/jars.py": [
        (
            "if _digest(folder / name) != digest)",
            "if not (folder / name).exists())",
            ("runtime/test_jars.py::test_a_spoilt_jar_is_named_and_replaced",),
        ),
        (
            "        bad = set(wrong_jars(fresh)).intersection(wrong)",
            "        bad = set[str]()",
            ("runtime/test_jars.py::test_fetched_jars_that_are_not_the_pinned_ones_are_not_put_in_place",),
        ),
        (
            "    return tuple(folder / name for name in pinned())",
            '    return tuple(sorted(folder.glob("*.jar")))',
            ("runtime/test_jars.py::test_a_spoilt_jar_is_named_and_replaced",),
            "a jar that is not listed is on no class path",
        ),
        (
            "            (fresh / jar).replace(folder / jar)",
            "            (folder / jar).write_bytes((fresh / jar).read_bytes())",
            ("runtime/test_jars.py::test_a_spoilt_jar_is_named_and_replaced",),
            "a running server keeps the jar that it has open",
        ),
    ],
    "lakehouse/runtime/supervisor.py": [
        ("    die_with_parent()\n", "", ("runtime/test_foreground.py::test_a_killed_supervisor_takes_its_command_with_it",)),
        (
            "            os.killpg(os.getpgrp(), signal.SIGINT)  # all of them, as a terminal does",
            "            child.kill()",
            ("runtime/test_foreground.py::test_a_closed_pipe_interrupts_the_command_and_ends_what_it_left_behind",),
        ),
    ],
    "lakehouse/runtime/foreground.py": [
        (
            "            with _stopped_by_signals() as check_stop, _spark(settings, say) as spark:\n                prepare(home)\n                with _dagster(settings, home) as page:",
            "            with _stopped_by_signals() as check_stop, _dagster(settings, home) as page:\n                prepare(home)\n                with _spark(settings, say) as spark:",
            ("runtime/test_foreground.py::test_dagster_ends_before_the_server",),
        ),
        (
            "        if asked.is_set():",
            "        if False:",
            ("runtime/test_foreground.py::test_an_interrupt_that_was_dropped_on_the_way_ends_the_lake_all_the_same",),
        ),
    ],
    "lakehouse/replay/play.py": [
        (
            "store.put_if_absent(file.name, file.content)",
            "store.put(file.name, file.content) is None",
            ("replay/test_play.py::test_a_file_that_is_there_already_is_left_as_it_is",),
        ),
        (
            "            _record(store, ReplayPosition(start=stand.start, next=hour + HOUR))",
            "            _record(store, stand)",
            ("replay/test_play.py::test_an_hour_that_has_landed_never_lands_again",),
        ),
        (
            "    if stand.start != start:",
            "    if False:",
            ("replay/test_play.py::test_a_start_other_than_the_lakes_own_is_refused_with_both",),
        ),
        (
            "                files=played.files + _land(store, landing),",
            "                files=played.files + (_record(store, ReplayPosition(start=stand.start, next=hour + HOUR)) or _land(store, landing)),",
            ("replay/test_play.py::test_a_replay_that_was_killed_goes_on_where_it_stopped",),
        ),
    ],
    "lakehouse/defs/landing.py": [
        (
            "unfinished = unfinished_batch(self._lake",
            "unfinished = None and unfinished_batch(self._lake",
            ("defs/test_landing.py::test_a_batch_of_refused_files_alone_whose_run_was_killed_is_asked_for_again",),
        ),
    ],
    "lakehouse/defs/run_ownership.py": [
        (" or not _was_here(run)", "", ("defs/test_run_ownership.py::test_only_a_compaction_whose_process_was_here_is_taken_for_lost",)),
        (" or process.is_alive:", ":", ("defs/test_run_ownership.py::test_only_a_compaction_whose_process_was_here_is_taken_for_lost",)),
        (
            "return not newest or not 0 <= now_ms - newest[0].timestamp * 1000 < _SILENT_MS",
            "return True",
            ("defs/test_run_ownership.py::test_a_run_that_waits_for_its_next_try_is_not_lost",),
        ),
    ],
    "lakehouse/defs/table_assets.py": [
        (
            " | (~any_rows_changed).newly_true()",
            "",
            ("defs/test_table_assets.py::test_rows_that_come_while_a_follower_is_asked_for_or_runs_set_it_off_once_more",),
            "rows that come with the request of a follower set it off once more",
        ),
        (
            "handled = condition.newly_requested() |",
            "handled = condition.newly_requested() | condition.newly_updated() |",
            ("defs/test_table_assets.py::test_rows_that_come_while_a_follower_is_asked_for_or_runs_set_it_off_once_more",),
            "rows that come while a follower runs set it off once more",
        ),
        (
            ".newly_true() | failed",
            ".newly_true()",
            ("defs/test_table_assets.py::test_a_follower_whose_run_failed_is_asked_for_again_after_a_while",),
            "a derived table whose run failed is asked for again",
        ),
        (
            'f"{changes[-1].version}@{changes[-1].committed_ms}"',
            "str(changes[-1].version)",
            ("defs/test_table_assets.py::test_a_table_that_was_made_anew_by_as_many_commits_has_another_data_version",),
            "what follows a table is asked for when that was made anew",
        ),
    ],
}
