"""The safety rules that `benchmarks.mutants` breaks: what holds, the text that makes it hold, the text that breaks it, and the tests."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule; `file` is below the project's root, `tests` below `lakehouse_tests/`."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


_INGEST = "engine/test_ingest.py::test_"
_BATCH = "core/test_ingest.py::test_"
_RECORD = "core/test_records.py::test_"

RULES: tuple[Rule, ...] = (
    Rule(
        name="a file that was loaded and touched is compared by its content",
        file="lakehouse/core/ingest.py",
        old="known.modified_ms in (None, file.modified_ms) or (known.is_taken and not known.digest)",
        new="True",
        tests=(f"{_BATCH}a_batch",),
    ),
    Rule(
        name="a file that was loaded and has another size is not read",
        file="lakehouse/core/ingest.py",
        old="if known is not None and known.is_taken and known.size_bytes != file.size_bytes:",
        new="if False:",
        tests=(f"{_BATCH}a_batch", f"{_BATCH}a_file_is_set_aside_with_the_reason"),
    ),
    Rule(
        name="a file that was loaded is never loaded again",
        file="lakehouse/core/ingest.py",
        old="    if known is not None and known.is_taken:\n        same",
        new="    if False:\n        same",
        tests=(f"{_BATCH}what_becomes_of_a_file_that_was_read",),
    ),
    Rule(
        name="a file set aside is tried again when it changes",
        file="lakehouse/core/ingest.py",
        old="    return known.modified_ms in (None, file.modified_ms)",
        new="    return True or known.modified_ms in (None, file.modified_ms)",
        tests=(f"{_BATCH}a_batch",),
    ),
    Rule(
        name="an Overwrite without a row keeps the table",
        file="lakehouse/core/ingest.py",
        old="if is_overwrite and not row_count:",
        new="if False:",
        tests=(f"{_BATCH}an_overwrite_takes_its_file_only_for_its_rows_and_leaves_older_ones_in_wait_without_any",),
    ),
    Rule(
        name="files of another prefix are other files",
        file="lakehouse/core/ingest.py",
        old='before = ledger.last_taken.removeprefix(landing.prefix) if is_ours else ""',
        new="before = ledger.last_taken.removeprefix(landing.prefix)",
        tests=(f"{_BATCH}files_of_another_prefix_are_other_files",),
    ),
    Rule(
        name="hidden names are not looked at",
        file="lakehouse/core/ingest.py",
        old='return not any(part.startswith((".", "_")) for part in name.split("/"))',
        new="return True",
        tests=(f"{_BATCH}a_batch",),
    ),
    Rule(
        name="an unfinished batch comes first",
        file="lakehouse/core/ingest.py",
        old="    if unfinished is not None:",
        new="    if False:",
        tests=(f"{_BATCH}a_batch",),
    ),
    Rule(
        name="a CSV field in quotes is not split",
        file="lakehouse/core/records.py",
        old='"(?:[^"]++|"")*+"[ \\t]*+|',
        new="",
        tests=(f"{_RECORD}a_field_in_quotes_is_never_split",),
    ),
    Rule(
        name="nothing is read behind a quote that leaves open where the record ends",
        file="lakehouse/core/records.py",
        old='[^",\\r\\n][^,\\r\\n]*+|)',
        new="[^,\\r\\n]*+|)",
        tests=(f"{_RECORD}nothing_is_read_behind_a_quote_that_leaves_open_where_the_record_ends",),
    ),
    Rule(
        name="gzip is read to its end before a record of it is given",
        file="lakehouse/core/records.py",
        old="        for chunk in _gunzip(data):\n            size",
        new="        for chunk in ():\n            size",
        tests=(f"{_RECORD}a_damaged_gzip_gives_no_record_at_all", f"{_RECORD}what_unpacks_to_more_than_the_limit_is_not_unpacked_further"),
    ),
    Rule(
        name="what gzip unpacks to is bounded",
        file="lakehouse/core/records.py",
        old="            if size > limit:",
        new="            if False:",
        tests=(f"{_RECORD}what_unpacks_to_more_than_the_limit_is_not_unpacked_further",),
    ),
    Rule(
        name="half a character is a problem",
        file="lakehouse/core/records.py",
        old="halved = _ESCAPED_SURROGATE.search(line) and _is_halved(found)",
        new="halved = False",
        tests=(f"{_RECORD}half_a_character_is_a_problem_and_not_a_question_mark",),
    ),
    Rule(
        name="a line over the limit is cut, and what follows up to its end is of it",
        file="lakehouse/core/records.py",
        old="rest, skipping = rest[-1:], True",
        new="rest, skipping = rest[-1:], False",
        tests=(f"{_RECORD}a_line_over_the_limit_is_one_record_with_its_problem_and_those_after_it_are_read",),
    ),
    Rule(
        name="a batch's manifest is created only if it is absent",
        file="lakehouse/engine/journal.py",
        old="if not self._store.put_if_absent(name, encode_manifest(batch, ledger)):",
        new="if self._store.put(name, encode_manifest(batch, ledger)):",
        tests=("engine/test_journal.py::test_of_a_race_for_one_number_only_one_manifest_stays",),
    ),
    Rule(
        name="manifests have no gap",
        file="lakehouse/engine/journal.py",
        old="if batch.number > newest + 1:",
        new="if False:",
        tests=("engine/test_journal.py::test_a_batch_beyond_the_next_is_broken",),
    ),
    Rule(
        name="what was taken stays taken",
        file="lakehouse/engine/manifest.py",
        old="is_taken=path in seen and seen[path].is_taken",
        new="is_taken=False",
        tests=("engine/test_journal.py::test_a_name_that_changed_its_size_is_known_by_the_last_one_and_stays_taken",),
    ),
    Rule(
        name="a damaged manifest stops the load",
        file="lakehouse/engine/manifest.py",
        old="        raise damaged(name, error) from error",
        new="        return Batch(number=number, files=()), None",
        tests=("engine/test_journal.py::test_a_damaged_manifest_is_broken_and_named",),
    ),
    Rule(
        name="a table that does not tell its batches is not loaded",
        file="lakehouse/engine/arrival.py",
        old="if arrived is None and ledger.last_taken:",
        new="if False:",
        tests=(f"{_INGEST}a_table_that_does_not_tell_its_batches_is_loaded_only_after_a_person_has_told_them",),
    ),
    Rule(
        name="a table that forgets its batches is not loaded",
        file="lakehouse/engine/arrival.py",
        old="if retention := facts.layout.properties.get(TRANSACTION_RETENTION):",
        new='if retention := "":',
        tests=(f"{_INGEST}a_table_that_does_not_tell_its_batches_is_loaded_only_after_a_person_has_told_them",),
    ),
    Rule(
        name="a ledger older than the table stops the load",
        file="lakehouse/engine/arrival.py",
        old="if arrived is not None and arrived > newest:",
        new="if False:",
        tests=(f"{_INGEST}a_table_whose_manifests_are_lost_is_not_loaded_again",),
    ),
    Rule(
        name="a write without its number stops the load",
        file="lakehouse/engine/arrival.py",
        old="if after is None or arrived < number:",
        new="if after is None:",
        tests=(f"{_INGEST}a_write_that_leaves_no_trace_of_its_batch_or_has_other_rows_is_not_repeated",),
    ),
    Rule(
        name="a commit has as many rows as its batch",
        file="lakehouse/engine/arrival.py",
        old="if counts and counts[-1] != row_count:",
        new="if False:",
        tests=(f"{_INGEST}a_write_that_leaves_no_trace_of_its_batch_or_has_other_rows_is_not_repeated",),
    ),
    Rule(
        name="all staged records are rows or quarantined",
        file="lakehouse/engine/ingest.py",
        old="if row_count + bad_count != record_count:",
        new="if False:",
        tests=(f"{_INGEST}a_write_that_leaves_no_trace_of_its_batch_or_has_other_rows_is_not_repeated",),
    ),
    Rule(
        name="a changed file of an unfinished batch stops the load",
        file="lakehouse/engine/ingest.py",
        old='if now.size_bytes != file.size_bytes or file.digest not in ("", now.digest):',
        new="if False:",
        tests=(f"{_INGEST}a_batch_that_was_killed_has_the_records_that_were_read_whatever_becomes_of_its_files",),
    ),
    Rule(
        name="rows carry their batch's number",
        file="lakehouse/engine/ingest.py",
        old="transaction=rows.Transaction(app_id=ingest_app_id(table.key), version=batch.number),",
        new="transaction=None,",
        tests=(f"{_INGEST}a_batch_killed_at_any_step_is_there_once_after_the_next_run",),
    ),
    Rule(
        name="a file set aside alone reaches quarantine after a kill",
        file="lakehouse/engine/ingest.py",
        old="unfinished = None if quarantine_arrived(lake, table.key, ledger.newest.number) else ledger.newest",
        new="unfinished = None",
        tests=(f"{_INGEST}a_file_set_aside_alone_is_quarantined_though_the_run_was_killed_before",),
    ),
    Rule(
        name="quarantined lines carry their batch's number",
        file="lakehouse/engine/quarantine.py",
        old="transaction=rows.Transaction(app_id=_app_id(table_key), version=batch.number),",
        new="transaction=None,",
        tests=(f"{_INGEST}a_batch_killed_at_any_step_is_there_once_after_the_next_run",),
    ),
    Rule(
        name="a record that is not UTF-8 is no row",
        file="lakehouse/engine/staging.py",
        old='problem or "not UTF-8"',
        new="problem",
        tests=("engine/test_bad_input.py",),
    ),
)
