"""The safety rules that `benchmarks.mutants` breaks: a file, the text in it that makes the rule hold, the text that breaks it, and the tests.

A rule's promise is the name of the first of its tests, unless it has words of its own.
"""

from benchmarks.mutant_rules import (
    core,
    core_ingest,
    core_inventory,
    core_ledger,
    core_scheduling,
    core_vacuum,
    engine,
    engine_changes,
    engine_compaction,
    engine_facts,
    engine_ingest,
    engine_landed,
    engine_load,
    engine_quarantine,
    engine_spark,
    engine_store,
    engine_vacuum,
    engine_vacuum_facts,
    outer_rooms,
)
from benchmarks.mutant_rules.rule import Rule as Rule

RULES: tuple[Rule, ...] = (
    *core.RULES,
    *core_ingest.RULES,
    *core_inventory.RULES,
    *core_ledger.RULES,
    *core_scheduling.RULES,
    *core_vacuum.RULES,
    *engine.RULES,
    *engine_changes.RULES,
    *engine_compaction.RULES,
    *engine_facts.RULES,
    *engine_ingest.RULES,
    *engine_landed.RULES,
    *engine_load.RULES,
    *engine_quarantine.RULES,
    *engine_spark.RULES,
    *engine_store.RULES,
    *engine_vacuum.RULES,
    *engine_vacuum_facts.RULES,
    *outer_rooms.RULES,
)
