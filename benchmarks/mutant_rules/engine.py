"""Rules of the engine: locks, owners, adopted tables."""

RULES = {
    "lakehouse/engine/table_lock.py": [
        (
            "            _check_it_can_be_ended(lake.settings, asked=owner)\n",
            "",
            ("engine/test_races.py::test_a_driver_in_this_process_is_refused_while_the_server_may_still_write_for_a_dead_client",),
            "no driver in a process writes a table that the home's server may still write for a dead client",
        ),
        (
            "            interrupt_session(lake.settings, before.session_id, before.operations, note=note)",
            "            pass",
            ("engine/test_kills.py::test_a_statement_whose_client_was_killed_is_ended_by_whoever_takes_the_table_next",),
        ),
        (
            "            if not is_lost(error) and _interrupted(spark):",
            "            if _interrupted(spark):",
            ("engine/test_kills.py::test_who_fails_beside_a_statement_of_its_own_stays_on_record",),
        ),
        (
            "        return not spark.interruptAll()",
            "        return spark.interruptAll() is not None",
            ("engine/test_kills.py::test_who_fails_beside_a_statement_of_its_own_stays_on_record",),
        ),
        (
            "interrupt_session(lake.settings, before.session_id, before.operations, note=note)",
            "interrupt_session(lake.settings, before.session_id, before.operations)",
            ("engine/test_kills.py::test_a_statement_in_its_commit_is_waited_for_by_all_who_come_while_it_goes_on",),
        ),
        (
            "interrupt_session(lake.settings, before.session_id, before.operations, note=note)",
            "interrupt_session(lake.settings, before.session_id, note=note)",
            ("engine/test_kills.py::test_a_statement_in_its_commit_is_waited_for_by_all_who_come_while_it_goes_on",),
        ),
        (
            "    claim(lake, asked=owner)\n",
            "",
            ("engine/test_lake_owner.py::test_whoever_takes_a_table_to_write_it_is_the_owner_or_refused_before_anything_else",),
        ),
        (
            "        journal.record_session(table_key, mine, owner)\n",
            "",
            ("engine/test_races.py::test_the_session_is_on_record_for_as_long_as_the_table_is_held",),
        ),
    ],
    "lakehouse/engine/journal/journal.py": [
        (
            " and record.session_id == session_id:",
            ":",
            ("engine/journal/test_journal.py::test_a_session_is_remembered_until_it_is_forgotten_and_no_other_takes_it_away",),
        ),
    ],
    "lakehouse/engine/adoption/adopt.py": [
        (
            "    if own is None and wanted is not None and lake.holds_files(wanted):",
            "    if False:",
            ("cli/commands/test_adopt.py::test_the_key_of_a_table_that_lies_in_the_lake_is_given_to_no_other",),
        ),
        ("        if _may_be_table(above):", "        if False:", ("cli/commands/test_adopt.py::test_a_table_inside_another_is_refused",)),
    ],
    "lakehouse/engine/adoption/guard.py": [
        (
            "        root, *below = real_address(address).rsplit",
            "        root, *below = address.rsplit",
            ("engine/adoption/test_guard.py::test_a_table_of_another_lake_is_refused_through_a_link",),
        ),
        (
            "        if not commits_conditionally(log_store):",
            "        if False:",
            ("journeys/test_example.py::test_conditional_writers_are_believed_where_spark_commits_so_too",),
        ),
        (
            "        if store_at(root).stat(RECORD) is not None:",
            "        if False:",
            ("engine/adoption/test_guard.py::test_a_table_of_another_lake_is_refused",),
        ),
        (
            "    if (risk := commits_at_risk(table.write)) is not None:\n        raise",
            "    if False:\n        raise",
            ("engine/adoption/test_guard.py::test_nothing_is_committed_while_a_commit_of_others_could_be_lost",),
        ),
    ],
    "lakehouse/engine/declared_tables.py": [
        (
            "for above in folders_above(place) if above in by_place",
            "for above in folders_above(place) if False",
            ("cli/commands/test_adopt.py::test_a_hand_written_entry_inside_another_table_or_the_lake_is_refused_wherever_it_is_read",),
        ),
        (
            '        if place != f"{root}/{key}" and (',
            "        if False and (",
            ("cli/commands/test_adopt.py::test_a_hand_written_entry_inside_another_table_or_the_lake_is_refused_wherever_it_is_read",),
        ),
    ],
    "lakehouse/engine/lake_owner.py": [
        (
            "lake.store.put_if_absent(RECORD, _encoded(mine))",
            "lake.store.put(RECORD, _encoded(mine))",
            ("engine/test_lake_owner.py::test_of_two_homes_that_claim_a_new_lake_at_once_the_first_gets_it",),
        ),
        (
            "if owner is None or owner.driver != mine.driver:",
            "if owner is None:",
            ("engine/test_lake_owner.py::test_a_second_home_is_refused_with_both_names_and_the_way_out_and_nothing_changes",),
        ),
        (
            "(id {_identity(settings)}, machine {machine})",
            "(machine {machine})",
            ("engine/test_lake_owner.py::test_a_home_that_was_copied_or_made_anew_is_another",),
        ),
        (
            'driver = f"the home {home} (id',
            'driver = f"the home (id',
            ("engine/test_lake_owner.py::test_a_home_that_was_copied_or_made_anew_is_another",),
        ),
        (
            "(id {_identity(settings)}, machine {machine})",
            "(id {_identity(settings)})",
            ("engine/test_lake_owner.py::test_the_same_home_at_the_same_path_of_another_machine_is_another",),
        ),
        (
            "    except (ValueError, TypeError) as error:\n",
            "    except (ValueError, TypeError) as error:\n        return None\n",
            ("engine/test_lake_owner.py::test_a_record_that_cannot_be_read_lets_nobody_write_until_it_is_taken_over",),
        ),
        (
            "        if state.pid is not None:",
            "        if False:",
            ("engine/test_lake_owner.py::test_a_lake_is_not_taken_over_from_a_server_that_runs_on_this_machine",),
        ),
    ],
    "lakehouse/engine/delta_log/schema.py": [
        (
            "sorted((read | written) & _CATALOG)",
            "sorted(read & _CATALOG)",
            ("engine/delta_log/test_snapshots.py::test_what_cannot_be_counted_is_refused_by_name",),
        ),
    ],
    "lakehouse/engine/lake.py": [
        (
            '            return "is gone"\n',
            '            return ""\n',
            ("engine/vacuum/test_meanwhile.py::test_a_log_that_was_put_back_meanwhile_stops_it",),
        ),
        (
            " or abs(now.modified_ms - known.modified_ms) > self.times_apart_ms(key)",
            "",
            ("engine/vacuum/test_meanwhile.py::test_a_log_that_was_put_back_meanwhile_stops_it",),
        ),
        (
            "        if newest is not None and self.changed(key, newest):\n            return True\n",
            "",
            ("engine/vacuum/test_meanwhile.py::test_what_a_clone_that_was_made_meanwhile_reads_stays",),
            "another table in the place of a neighbour, with no more versions than it had, is read",
        ),
    ],
}
