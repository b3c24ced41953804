"""The verdict of the check `lifecycle`: whether a bucket's rules spare a table's live files."""

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.core.check_result import CheckResult
from lakehouse.core.text import count_of, printable, size_text
from lakehouse.core.tiers.lifecycle_rules import (
    Lifecycle,
    LiveObjects,
    harms_of,
    rules_by_unknown_tags,
)
from lakehouse.core.units import DAY_MS

_NAME = "lifecycle"
# An upload that is unfinished for this long counts as abandoned. A younger upload may belong to a
# running writer.
_ABANDONED_MS = DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenUpload:
    """An unfinished multipart upload, with the total size of its parts (`None`: unknown)."""

    key: str
    started_ms: int
    size_bytes: int | None


def unknown_lifecycle(table: str, reason: str) -> CheckResult:
    """The result if the rules or the tags cannot be read: the check does not pass."""
    sentence = f"it is unknown whether lifecycle rules spare the files of {table}: {reason}"
    return CheckResult(name=_NAME, ok=False, sentence=sentence)


def assess_lifecycle(
    lifecycle: Lifecycle, live: LiveObjects, uploads: Sequence[OpenUpload] | None, *, now_ms: int
) -> CheckResult:
    """Whether all rules spare the files that the table needs, and a rule ends unfinished uploads.

    A rule that would harm the table is an error. A needed file with `TIER_TAG` is a warning, and so
    are uploads that are unfinished for a day or longer, if no rule ends them. `uploads` are those
    below the table's folder; `None` if they cannot be listed.
    """
    harms = harms_of(lifecycle, live)
    problems = [harm.sentence(live) for harm in harms]
    if live.tagged:
        problems.append(
            f"the tag of dead files is set on {count_of(len(live.tagged), 'needed file')} of "
            f"{live.table}, for example {printable(min(live.tagged))}, because an older version "
            "was restored, or another table reads such a file. Use `lakehouse tiers apply "
            f"{live.table}`, which removes the tag"
        )
    rule_count = count_of(len(lifecycle.rules), "rule")
    notes = [f"no rule of the bucket ({rule_count}) deletes or archives live files of {live.table}"]
    unknown_rules = rules_by_unknown_tags(lifecycle, live)
    if unknown_rules:
        names = ", ".join(repr(name) for name in unknown_rules)
        notes.append(f"rules for tags that this program does not set on its files: {names}")
    abandoned = [each for each in uploads or () if each.started_ms <= now_ms - _ABANDONED_MS]
    size_bytes = sum(each.size_bytes or 0 for each in abandoned)
    if uploads is None:
        notes.append("unfinished uploads cannot be listed without s3:ListBucketMultipartUploads")
    elif not lifecycle.aborts_uploads(live.folder):
        advice = "Use a rule with AbortIncompleteMultipartUpload, for instance after 7 days"
        if abandoned:
            unfinished = count_of(len(abandoned), "upload")
            problems.append(
                f"unfinished for more than a day: {unfinished} ({size_text(size_bytes)}), and no "
                f"rule ends unfinished uploads. {advice}"
            )
        else:
            notes.append(f"no rule ends unfinished uploads. {advice}")
    return CheckResult(
        name=_NAME,
        ok=not problems,
        sentence="; ".join(problems or notes),
        is_error=bool(harms),
        numbers={
            "harmful_rules": len(harms),
            "tagged_live_files": len(live.tagged),
            "unfinished_uploads": len(abandoned),
            "unfinished_bytes": size_bytes,
        },
    )
