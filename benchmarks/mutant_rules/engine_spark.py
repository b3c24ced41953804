"""Rules of the engine: sessions and statements."""

from benchmarks.mutant_rules.rule import Rule

RULES = (
    Rule(
        "lakehouse/engine/spark/sessions.py",
        'spark.conf.set("spark.sql.session.timeZone", "UTC")',
        'spark.conf.get("spark.sql.session.timeZone")',
        ("engine/spark/test_sessions.py::test_every_session_reads_times_that_tell_no_zone_as_utc",),
        "times that tell no zone are read as UTC, whatever the server's zone is",
    ),
    Rule(
        "lakehouse/engine/spark/frames.py",
        '.option("versionAsOf", snapshot.version if version is None else version)',
        "",
        ("engine/ingest/test_write.py::test_what_is_written_while_a_run_reads_is_left_to_the_next_run",),
    ),
    Rule(
        "lakehouse/engine/spark/statements.py",
        "{name.replace('`', '``')}",
        "{name}",
        ("engine/spark/test_statements.py::test_a_name_stays_between_its_backticks",),
    ),
    Rule(
        "lakehouse/engine/spark/statements.py",
        ' or "${" in name:',
        ":",
        ("engine/spark/test_statements.py::test_a_name_that_no_column_can_have_is_refused",),
    ),
    Rule(
        "lakehouse/engine/spark/statements.py",
        're.compile(r"[\\\\\'$\\x00-\\x1f\\x7f]")',
        're.compile(r"[\\\\$\\x00-\\x1f\\x7f]")',
        ("engine/spark/test_statements.py::test_a_text_stays_between_its_quotes",),
    ),
    Rule(
        "lakehouse/engine/spark/statements.py",
        're.compile(r"[\\\\\'$\\x00-\\x1f\\x7f]")',
        're.compile(r"[\'$\\x00-\\x1f\\x7f]")',
        ("engine/spark/test_statements.py::test_a_text_stays_between_its_quotes",),
    ),
    Rule(
        "lakehouse/engine/spark/statements.py",
        're.compile(r"[\\\\\'$\\x00-\\x1f\\x7f]")',
        're.compile(r"[\\\\\'\\x00-\\x1f\\x7f]")',
        ("engine/spark/test_statements.py::test_a_text_stays_between_its_quotes",),
    ),
    Rule(
        "lakehouse/engine/spark/statements.py",
        "    if not _TYPE.fullmatch(type_name):",
        "    if False:",
        ("engine/spark/test_statements.py::test_a_partition_type_that_is_no_plain_word_is_refused",),
    ),
    Rule(
        "lakehouse/engine/spark/statements.py",
        " WHEN MATCHED AND {_newer(order_by)} THEN UPDATE SET *",
        " WHEN MATCHED THEN UPDATE SET *",
        ("engine/spark/test_statements.py::test_a_merge_replaces_by_a_newer_row_only",),
    ),
    Rule(
        "lakehouse/engine/spark/statements.py",
        'f"WHEN MATCHED AND {newer} AND source.{quote(deleted)} THEN DELETE "',
        'f"WHEN MATCHED AND source.{quote(deleted)} THEN DELETE "',
        ("engine/spark/test_statements.py::test_a_change_deletes_or_replaces_an_older_row_only",),
        "an old deletion does not take out a newer row",
    ),
    Rule(
        "lakehouse/engine/spark/statements.py",
        'f"WHEN MATCHED AND {newer} THEN UPDATE SET * WHEN NOT MATCHED AND NOT source',
        'f"WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND NOT source',
        ("engine/spark/test_statements.py::test_a_change_deletes_or_replaces_an_older_row_only",),
        "a late change does not replace a newer row",
    ),
    Rule(
        "lakehouse/engine/spark/statements.py",
        'return " AND ".join(f"target.{quote(key)} <=> source.{quote(key)}" for key in keys)',
        'return " AND ".join(f"target.{quote(key)} = source.{quote(key)}" for key in keys)',
        ("engine/spark/test_statements.py::test_a_merge_replaces_by_a_newer_row_only",),
    ),
    Rule(
        "lakehouse/engine/spark/statements.py",
        ' DRY RUN"',
        '"',
        ("engine/spark/test_statements.py::test_a_statement_repeats_what_chose_its_victims",),
    ),
    Rule(
        "lakehouse/engine/spark/statements.py",
        " FULL USING INVENTORY (",
        " USING INVENTORY (",
        ("engine/spark/test_statements.py::test_a_statement_repeats_what_chose_its_victims",),
    ),
    Rule(
        "lakehouse/engine/spark/statements.py",
        'condition += f" AND source_file IN',
        'condition += f" OR source_file IN',
        ("engine/spark/test_statements.py::test_a_statement_repeats_what_chose_its_victims",),
    ),
    Rule(
        "lakehouse/engine/spark/statements.py",
        'f" WHERE {predicate}" if predicate else ""',
        '""',
        ("engine/spark/test_statements.py::test_a_statement_repeats_what_chose_its_victims",),
    ),
    Rule(
        "lakehouse/engine/spark/sessions.py",
        "    with late_interrupts():",
        "    if True:",
        ("runtime/test_interrupts.py::test_an_import_of_spark_s_client_is_not_broken_off",),
    ),
    Rule(
        "lakehouse/engine/spark/sessions.py",
        "_remote(settings, str(uuid.uuid4()))",
        '_remote(settings, "0d5b6f2e-52a5-4d0e-9a52-6ab3a1b0c001")',
        ("engine/spark/test_sessions.py::test_the_url_of_a_server_elsewhere_gets_a_user_and_a_session",),
        "each session is one that nobody else's interrupt can end",
    ),
    Rule(
        "lakehouse/engine/spark/session_settings.py",
        "        yield\n    except BaseException as error:\n        if is_lost(error):\n            discarded.add(spark)",
        "        yield\n    except BaseException as error:\n        if is_lost(error):\n            pass",
        ("engine/spark/test_session_settings.py::test_a_session_that_was_lost_inside_a_block_is_not_handed_out_again",),
    ),
    Rule(
        "lakehouse/engine/spark/session_settings.py",
        "            if value is None:\n",
        "            if True:\n",
        ("engine/spark/test_session_settings.py::test_after_a_block_a_session_has_what_it_had_before",),
    ),
)
