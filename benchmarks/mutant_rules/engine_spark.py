"""Rules of the engine: sessions and statements."""

RULES = {
    "lakehouse/engine/spark/sessions.py": [
        (
            'spark.conf.set("spark.sql.session.timeZone", "UTC")',
            'spark.conf.get("spark.sql.session.timeZone")',
            ("engine/spark/test_sessions.py::test_every_session_reads_times_that_tell_no_zone_as_utc",),
            "times that tell no zone are read as UTC, whatever the server's zone is",
        ),
        (
            "    with late_interrupts():",
            "    if True:",
            ("runtime/test_interrupts.py::test_an_import_of_spark_s_client_is_not_broken_off",),
        ),
        (
            "_remote(settings, str(uuid.uuid4()))",
            '_remote(settings, "0d5b6f2e-52a5-4d0e-9a52-6ab3a1b0c001")',
            ("engine/spark/test_sessions.py::test_the_url_of_a_server_elsewhere_gets_a_user_and_a_session",),
            "each session is one that nobody else's interrupt can end",
        ),
    ],
    "lakehouse/engine/spark/frames.py": [
        (
            '.option("versionAsOf", snapshot.version if version is None else version)',
            "",
            ("engine/ingest/test_write.py::test_what_is_written_while_a_run_reads_is_left_to_the_next_run",),
        ),
    ],
    "lakehouse/engine/spark/statements.py": [
        ("{name.replace('`', '``')}", "{name}", ("engine/spark/test_statements.py::test_a_name_stays_between_its_backticks",)),
        (' or "${" in name:', ":", ("engine/spark/test_statements.py::test_a_name_that_no_column_can_have_is_refused",)),
        (
            're.compile(r"[\\\\\'$\\x00-\\x1f\\x7f]")',
            're.compile(r"[\\\\$\\x00-\\x1f\\x7f]")',
            ("engine/spark/test_statements.py::test_a_text_stays_between_its_quotes",),
        ),
        (
            're.compile(r"[\\\\\'$\\x00-\\x1f\\x7f]")',
            're.compile(r"[\'$\\x00-\\x1f\\x7f]")',
            ("engine/spark/test_statements.py::test_a_text_stays_between_its_quotes",),
        ),
        (
            're.compile(r"[\\\\\'$\\x00-\\x1f\\x7f]")',
            're.compile(r"[\\\\\'\\x00-\\x1f\\x7f]")',
            ("engine/spark/test_statements.py::test_a_text_stays_between_its_quotes",),
        ),
        (
            "    if not _TYPE.fullmatch(type_name):",
            "    if False:",
            ("engine/spark/test_statements.py::test_a_partition_type_that_is_no_plain_word_is_refused",),
        ),
        (
            " WHEN MATCHED AND {_newer(order_by)} THEN UPDATE SET *",
            " WHEN MATCHED THEN UPDATE SET *",
            ("engine/spark/test_statements.py::test_a_merge_replaces_by_a_newer_row_only",),
        ),
        (
            'f"WHEN MATCHED AND {newer} AND source.{quote(deleted)} THEN DELETE "',
            'f"WHEN MATCHED AND source.{quote(deleted)} THEN DELETE "',
            ("engine/spark/test_statements.py::test_a_change_deletes_or_replaces_an_older_row_only",),
            "an old deletion does not take out a newer row",
        ),
        (
            'f"WHEN MATCHED AND {newer} THEN UPDATE SET * WHEN NOT MATCHED AND NOT source',
            'f"WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND NOT source',
            ("engine/spark/test_statements.py::test_a_change_deletes_or_replaces_an_older_row_only",),
            "a late change does not replace a newer row",
        ),
        (
            'return " AND ".join(f"target.{quote(key)} <=> source.{quote(key)}" for key in keys)',
            'return " AND ".join(f"target.{quote(key)} = source.{quote(key)}" for key in keys)',
            ("engine/spark/test_statements.py::test_a_merge_replaces_by_a_newer_row_only",),
        ),
        (' DRY RUN"', '"', ("engine/spark/test_statements.py::test_a_statement_repeats_what_chose_its_victims",)),
        (
            " FULL USING INVENTORY (",
            " USING INVENTORY (",
            ("engine/spark/test_statements.py::test_a_statement_repeats_what_chose_its_victims",),
        ),
        (
            'condition += f" AND source_file IN',
            'condition += f" OR source_file IN',
            ("engine/spark/test_statements.py::test_a_statement_repeats_what_chose_its_victims",),
        ),
        (
            'f" WHERE {predicate}" if predicate else ""',
            '""',
            ("engine/spark/test_statements.py::test_a_statement_repeats_what_chose_its_victims",),
        ),
    ],
    "lakehouse/engine/spark/session_settings.py": [
        (
            "        yield\n    except BaseException as error:\n        if is_lost(error):\n            discarded.add(spark)",
            "        yield\n    except BaseException as error:\n        if is_lost(error):\n            pass",
            ("engine/spark/test_session_settings.py::test_a_session_that_was_lost_inside_a_block_is_not_handed_out_again",),
        ),
        (
            "            if value is None:\n",
            "            if True:\n",
            ("engine/spark/test_session_settings.py::test_after_a_block_a_session_has_what_it_had_before",),
        ),
    ],
}
