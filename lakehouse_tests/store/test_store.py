"""One contract for every store, and what is special about each."""

import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError
from urllib3 import HTTPResponse

from lakehouse.base.errors import Refused, Transient
from lakehouse.store import ArchivedError, DiskStore, S3Store, Store, store_at


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_either_region_name_is_read(name: str, aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv(name, "eu-west-3")
    assert S3Store("bucket", "lake").client.meta.region_name == "eu-west-3"


def names(store: Store, prefix: str = "") -> list[str]:
    return [file.name for file in store.list(prefix)]


def test_what_is_put_is_read_and_listed_with_its_size(store: Store) -> None:
    store.put("a/b/one.json", b"12345")
    assert store.read("a/b/one.json") == b"12345"
    (file,) = store.list("a")
    assert (file.name, file.size_bytes) == ("a/b/one.json", 5)
    assert file.modified_ms > 1_700_000_000_000
    store.put("a/b/one.json", b"new")
    assert (store.read("a/b/one.json"), names(store)) == (b"new", ["a/b/one.json"])


def test_an_etag_of_s3_changes_with_the_content_and_is_the_same_in_a_listing(store: Store) -> None:
    found: list[str] = []
    for data in (b"old", b"new"):
        store.put("a", data)
        [listed], seen = store.list(""), store.stat("a")
        assert seen is not None and seen.etag == listed.etag and '"' not in listed.etag
        found.append(listed.etag)
    assert found == ["", ""] if store.bucket == "local" else found[0] != found[1]


def test_a_list_is_sorted_recursive_and_bounded_by_whole_folders(store: Store) -> None:
    for name in ("t/b", "t/a/z", "t2/x", "t/.hidden", "t/_log/0", "other"):
        store.put(name, b"")
    assert names(store, "t") == names(store, "t/") == ["t/.hidden", "t/_log/0", "t/a/z", "t/b"]
    assert names(store) == ["other", "t/.hidden", "t/_log/0", "t/a/z", "t/b", "t2/x"]
    assert names(store, "absent") == []


def test_folders_are_those_right_in_a_folder(store: Store) -> None:
    for name in ("a/b/1", "a/b/c/2", "a/b!/3", "a/d/4", "a/file", "ab/5"):
        store.put(name, b"x")
    assert list(store.folders("a")) == ["b", "b!", "d"]
    assert [*store.folders("a/d"), *store.folders("nothing")] == []
    assert list(store.folders("")) == ["a", "ab"]


def test_a_walk_has_what_a_list_has_with_the_bucket_s_keys(store: Store) -> None:
    for name in ("t/b", "t/a b/+z", "t2/x", "other"):
        store.put(name, b"123")
    walked = sorted(store.walk(""), key=lambda each: each.key)
    assert [(each.key, each.size_bytes, each.modified_ms) for each in walked] == [
        (store.prefix + file.name, file.size_bytes, file.modified_ms) for file in store.list("")
    ]
    assert {each.bucket for each in walked} == {store.bucket}
    below = sorted(each.key.removeprefix(store.prefix) for each in store.walk("t"))
    assert below == ["t/a b/+z", "t/b"]


def test_a_walk_of_a_disk_has_unfinished_writes_and_a_list_has_files_alone(tmp_path: Path) -> None:
    unfinished, odd = f"a/.{'0' * 32}.lakehouse-put", os.fsdecode(b"bad-\xff")
    (tmp_path / "a").mkdir()
    (tmp_path / unfinished).write_bytes(b"12")
    (tmp_path / odd).write_bytes(b"1")
    store = DiskStore(tmp_path)
    walked = sorted((each.key, each.size_bytes) for each in store.walk(""))
    assert walked == [(unfinished, 2), ("bad-\\udcff", 1)]
    assert names(store) == [odd]


def test_a_walk_of_a_bucket_has_markers_of_folders_and_storage_classes(bucket: str) -> None:
    store = S3Store(bucket, "lake")
    store.client.put_object(Bucket=bucket, Key="lake/folder/", Body=b"")
    store.client.put_object(Bucket=bucket, Key="lake/cold", Body=b"1", StorageClass="STANDARD_IA")
    walked = [(each.key, each.is_dir, each.storage_class) for each in store.walk("")]
    assert walked == [("lake/cold", False, "STANDARD_IA"), ("lake/folder/", True, "STANDARD")]
    assert (names(store), names(store, "folder")) == (["cold"], [])


def test_odd_names_survive(store: Store) -> None:
    odd = ["d=a b/x", "d=100%/x", "d=a%2Fb/x", "d=ä€😀/x", "d=a+b/x", "d=#?&=/x", "d='\"/x"]
    for name in odd:
        store.put(name, name.encode())
    assert names(store) == sorted(odd)
    assert [store.read(name).decode() for name in odd] == odd
    store.delete(odd)
    assert names(store) == []


def test_a_missing_file_is_file_not_found(store: Store) -> None:
    store.put("folder/file", b"")
    for name in ("absent", "folder", "folder/file/below"):
        with pytest.raises(FileNotFoundError):
            store.read(name)


def test_many_are_read_in_the_order_of_their_names(store: Store) -> None:
    names = [f"n/{number}" for number in range(39, -1, -1)]
    for name in names:
        store.put(name, name.encode())
    assert [content.decode() for content in store.read_many(names)] == names
    assert list(store.read_many([])) == []
    with pytest.raises(FileNotFoundError):
        list(store.read_many(["n/1", "absent", "n/2"]))


def test_a_copy_has_the_content_and_replaces_what_had_its_name(store: Store) -> None:
    store.put("a/ä b+%.json", b"12345")
    store.put("b/c", b"old")
    [source] = store.list("a")
    store.copy(source, "b/c")
    [copied] = store.list("b")
    assert (store.read("b/c"), copied.size_bytes) == (b"12345", 5)
    assert names(store) == ["a/ä b+%.json", "b/c"]
    store.delete([source.name])
    with pytest.raises(FileNotFoundError):
        store.copy(source, "b/d")
    assert names(store) == ["b/c"]


def test_a_copy_on_disk_has_its_own_time_and_no_rewritten_file_is_copied(tmp_path: Path) -> None:
    """Files that no log names are deleted by their age."""
    store = DiskStore(tmp_path)
    store.put("a", b"12345")
    os.utime(tmp_path / "a", ns=(0, 1_600_000_000_123_456_789))
    [source] = store.list("")
    store.copy(source, "b")
    assert (tmp_path / "b").stat().st_mtime_ns > 1_700_000_000_000_000_000
    store.put("a", b"54321")
    with pytest.raises(Transient, match="a was written again while it was copied"):
        store.copy(source, "b")
    assert (store.read("b"), names(store)) == (b"12345", ["a", "b"])


def test_an_object_that_was_written_again_is_not_copied_and_its_class_stays(bucket: str) -> None:
    store = S3Store(bucket, "lake")
    store.client.put_object(Bucket=bucket, Key="lake/a", Body=b"1", StorageClass="STANDARD_IA")
    [source] = store.list("")
    store.copy(source, "b")
    assert store.list("")[1].storage_class == "STANDARD_IA"
    answering(store.client, "CopyObject", (412, error_xml("PreconditionFailed")))
    with pytest.raises(Transient, match="lake/a: the object was written again meanwhile"):
        store.copy(source, "c")
    answering(store.client, "CopyObject", (403, error_xml("AccessDenied")))
    with pytest.raises(Refused, match="Grant s3:PutObject and s3:GetObject"):
        store.copy(source, "c")


def test_a_file_of_another_store_is_copied(bucket: str, tmp_path: Path) -> None:
    pairs = (
        (DiskStore(tmp_path / "a"), DiskStore(tmp_path / "b")),
        (S3Store(bucket, "a"), S3Store(bucket, "b")),
    )
    for store, other in pairs:
        other.put("x/y", b"12345")
        [source] = other.list("x")
        store.copy(source, "z", of=other)
        assert (store.read("z"), names(store)) == (b"12345", ["z"])


def test_put_if_absent_writes_once(store: Store) -> None:
    assert store.put_if_absent("m/1", b"first") is True
    assert store.put_if_absent("m/1", b"second") is False
    assert store.read("m/1") == b"first"
    assert names(store, "m") == ["m/1"]


def test_a_link_that_nfs_made_and_then_denied_is_known_as_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, real = DiskStore(tmp_path), os.link

    def denied(source: Path, target: Path) -> None:
        real(source, target)
        raise FileExistsError

    monkeypatch.setattr(os, "link", denied)
    assert store.put_if_absent("x", b"1") is True
    assert store.put_if_absent("x", b"1") is False


def test_of_many_put_if_absent_at_once_exactly_one_wins(tmp_path: Path) -> None:
    """On disk only: moto looks and writes in two steps, so on it two may win."""
    store = DiskStore(tmp_path)
    barrier = threading.Barrier(8)

    def race(number: int) -> bool:
        barrier.wait()
        return store.put_if_absent("m/1", str(number).encode())

    with ThreadPoolExecutor(max_workers=8) as threads:
        won = [*threads.map(race, range(8))]
    assert (won.count(True), won[int(store.read("m/1"))]) == (1, True)


def test_delete_takes_thousands_and_does_not_mind_what_is_gone(store: Store) -> None:
    for name in ("d/0000", "d/0999", "d/1000", "d/1004", "kept"):
        store.put(name, b"")  # a request of S3 takes a thousand names
    store.delete([*(f"d/{number:04}" for number in range(1_005)), "never/there"])
    assert names(store) == ["kept"]
    store.delete([])


@pytest.mark.parametrize(
    "name", ["", "/", "/etc/passwd", "a/../b", "a/../..", "..", "a//b", "./a", "a/", "a\0b"]
)
def test_names_that_leave_the_root_are_refused(store: Store, name: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.read(name),
        lambda: store.put(name, b""),
        lambda: store.put_if_absent(name, b""),
        lambda: store.delete([name]),
    ]
    if name not in ("", "a/"):  # these are folders
        calls.append(lambda: store.list(name))
    for call in calls:
        with pytest.raises(Refused, match="is not the name of a file inside the lake"):
            call()


def test_a_failing_disk_write_leaves_the_old_content_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DiskStore(tmp_path)
    store.put("a/done", b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Transient, match="No space left"):
        store.put("a/done", b"new")
    assert store.read("a/done") == b"old"
    assert os.listdir(tmp_path / "a") == ["done"]


@pytest.mark.parametrize("write", [DiskStore.put, DiskStore.put_if_absent])
def test_a_disk_write_is_on_the_disk_before_it_has_its_name_and_its_folder_after(
    write: Callable[[DiskStore, str, bytes], bool | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flushed, flush = list[tuple[str, bool]](), os.fsync

    def noted(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        flushed.append((kind, (tmp_path / "x").exists()))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    write(DiskStore(tmp_path), "x", b"new")
    assert flushed == [("file", False), ("folder", True)]


def test_who_reads_a_file_that_is_put_anew_reads_the_old_one_whole(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    store.put("x", b"old")
    with (tmp_path / "x").open("rb") as reader:
        store.put("x", b"new")
        assert reader.read() == b"old"


def test_what_a_disk_could_not_delete_is_named_and_the_rest_is_gone(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    for name in ("folder/x", "a"):
        store.put(name, b"")
    assert store.delete_each(["folder", "a"]).keys() == {"folder"}
    with pytest.raises(Refused, match="1 of 1 file could not be deleted, for example folder "):
        store.delete(["folder"])
    assert names(store) == ["folder/x"]


def test_links_out_of_the_root_are_neither_listed_nor_followed(tmp_path: Path) -> None:
    outside, lake = tmp_path / "outside", tmp_path / "lake"
    for folder in (outside, lake):
        folder.mkdir()
    (outside / "secret").write_bytes(b"x")
    (lake / "folder").symlink_to(outside)
    (lake / "file").symlink_to(outside / "secret")
    store = DiskStore(lake)
    assert names(store) == list(store.folders("")) == []
    for call in (
        lambda: store.read("folder/secret"),
        lambda: store.read("file"),
        lambda: store.put("folder/new", b""),
        lambda: store.delete(["folder/secret"]),
        lambda: store.list("folder"),
        lambda: store.folders("folder"),
    ):
        with pytest.raises(Refused, match="link"):
            call()
    assert (outside / "secret").read_bytes() == b"x"


def test_a_root_that_is_itself_a_link_works(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "lake").symlink_to(tmp_path / "real")
    store = DiskStore(tmp_path / "lake")
    store.put("a/b", b"x")
    assert store.read("a/b") == b"x"
    assert names(store) == ["a/b"]


def test_an_address_chooses_the_store_and_two_lakes_in_one_bucket_do_not_see_each_other(
    bucket: str, tmp_path: Path
) -> None:
    store_at(str(tmp_path / "lake")).put("x", b"")
    assert names(DiskStore(tmp_path)) == ["lake/x"]
    store_at(f"s3://{bucket}/my/lake").put("x", b"1")
    store_at(f"s3://{bucket}/my/lake2").put("y", b"2")
    assert names(S3Store(bucket, "my/lake")) == ["x"]
    assert names(store_at(f"s3://{bucket}")) == ["my/lake/x", "my/lake2/y"]


def test_a_missing_bucket_is_refused_by_name(aws: str) -> None:
    message = "s3://no-such-bucket/lake/x: there is no such bucket"
    with pytest.raises(Refused, match=message) as caught:
        S3Store("no-such-bucket", "lake").read("x")
    assert isinstance(caught.value.__cause__, ClientError)


def test_a_server_that_is_down_is_transient(aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(Transient, match="s3://b/lake/x"):
        S3Store("b", "lake").read("x")


def answering(client: Any, operation: str, *answers: tuple[int, bytes]) -> None:
    """Plant HTTP answers in front of the server: each request of `operation` takes the next, then the server's own come."""
    waiting = list(answers)

    def answer(request: Any, **_: Any) -> AWSResponse | None:
        if not waiting:
            return None
        status, body = waiting.pop(0)
        raw = HTTPResponse(BytesIO(body), preload_content=False)
        return AWSResponse(request.url, status, {"content-type": "application/xml"}, raw)

    client.meta.events.register(f"before-send.s3.{operation}", answer)


def error_xml(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>planted</Message></Error>".encode()


def failed_xml(key: str, code: str) -> bytes:
    error = f"<Error>{key}<Code>{code}</Code></Error>"
    return f"<?xml version='1.0'?><DeleteResult>{error}</DeleteResult>".encode()


DENIED = r"s3://{bucket}/lake/x: S3 answers AccessDenied\. Grant s3:GetObject"


@pytest.mark.parametrize(
    ("status", "code", "expected", "text"),
    [
        (403, "AccessDenied", Refused, DENIED),
        (503, "SlowDown", Transient, "S3 answers SlowDown"),
        (500, "InternalError", Transient, "S3 answers InternalError"),
        (501, "NotImplemented", Refused, r"S3 answers NotImplemented \(501\)"),
        (301, "PermanentRedirect", Refused, "Check bucket, region"),
    ],
)
def test_errors_of_s3_are_told_apart(
    bucket: str, status: int, code: str, expected: type[Exception], text: str
) -> None:
    client = boto3.client("s3", config=Config(retries={"total_max_attempts": 1}))
    answering(client, "GetObject", *[(status, error_xml(code))] * 3)
    with pytest.raises(expected, match=text.format(bucket=bucket)):
        S3Store(bucket, "lake", lambda: client).read("x")


@pytest.mark.parametrize(
    ("storage_class", "archived_in"),
    [
        *((each, None) for each in ("STANDARD", "STANDARD_IA", "GLACIER_IR")),
        *((each, each) for each in ("GLACIER", "DEEP_ARCHIVE")),
    ],
)
def test_an_archived_object_says_where_it_lies_until_it_is_restored(
    bucket: str, storage_class: str, archived_in: str | None
) -> None:
    store = S3Store(bucket, "lake")
    key = {"Bucket": bucket, "Key": "lake/x"}
    store.client.put_object(**key, Body=b"1", StorageClass=storage_class)
    if archived_in is not None:
        text = r"is archived and cannot be read\. Restore it first"
        with pytest.raises(ArchivedError, match=text) as error:
            store.read("x")
        assert error.value.storage_class == archived_in
        store.client.restore_object(**key, RestoreRequest={"Days": 1})
        assert store.client.head_object(**key)["StorageClass"] == storage_class
    assert store.read("x") == b"1"


def test_an_object_in_an_archive_tier_of_intelligent_tiering_is_archived(bucket: str) -> None:
    store = S3Store(bucket, "lake")
    tier = "<StorageClass>INTELLIGENT_TIERING</StorageClass><AccessTier>ARCHIVE_ACCESS</AccessTier>"
    xml = error_xml("InvalidObjectState").replace(b"</Error>", f"{tier}</Error>".encode())
    answering(store.client, "GetObject", (403, xml))
    with pytest.raises(ArchivedError) as error:
        store.read("x")
    assert error.value.storage_class == "INTELLIGENT_TIERING (ARCHIVE_ACCESS)"


def test_a_conflicting_conditional_write_is_tried_again(bucket: str) -> None:
    store = S3Store(bucket, "")
    store.put_if_absent("before", b"")  # asks the server whether it heeds conditions
    answering(store.client, "PutObject", (409, error_xml("ConditionalRequestConflict")))
    assert store.put_if_absent("x", b"1") is True


def test_a_conditional_write_whose_answer_was_lost_knows_its_own_work(bucket: str) -> None:
    store, lost = S3Store(bucket, ""), []
    store.put_if_absent("before", b"")  # asks the server whether it heeds conditions

    def lose_first_answer(response: Any, **_: Any) -> int | None:
        if response and response[0].status_code == 200 and not lost:
            lost.append(response)
            return 0
        return None

    store.client.meta.events.register_first("needs-retry.s3.PutObject", lose_first_answer)
    assert store.put_if_absent("x", b"1") is True
    assert len(lost) == 1
    assert store.put_if_absent("x", b"1") is False


@pytest.mark.parametrize("by_proxy", [True, False])
def test_a_write_that_was_repeated_unseen_knows_its_own_work(bucket: str, by_proxy: bool) -> None:
    """A proxy repeats it; or the first request is still under way when its repetition gets 409."""
    store, repeated = S3Store(bucket, ""), list[str]()
    store.put_if_absent("before", b"")  # asks the server whether it heeds conditions

    def write_first(request: Any, **_: Any) -> None:
        if not repeated:
            repeated.append(request.url)
            metadata = {"writer": request.headers["x-amz-meta-writer"].decode()}
            client = boto3.client("s3")
            client.put_object(Bucket=bucket, Key="x", Body=b"1", Metadata=metadata)

    store.client.meta.events.register("before-send.s3.PutObject", write_first)
    if not by_proxy:
        answering(store.client, "PutObject", (409, error_xml("ConditionalRequestConflict")))
    assert store.put_if_absent("x", b"1") is True
    assert store.put_if_absent("x", b"1") is False


def test_a_conditional_write_that_was_tried_again_knows_another_s_work(bucket: str) -> None:
    store = S3Store(bucket, "")
    assert store.put_if_absent("x", b"another's") is True
    answering(store.client, "PutObject", (500, error_xml("InternalError")))
    assert store.put_if_absent("x", b"mine") is False
    assert store.read("x") == b"another's"


def test_a_server_that_overwrites_what_is_taken_is_refused_before_it_can(bucket: str) -> None:
    store = S3Store(bucket, "lake")

    def unheard(request: Any, **_: Any) -> None:
        del request.headers["If-None-Match"]

    store.client.meta.events.register("before-sign.s3.PutObject", unheard)
    store.put("m/1", b"first")
    for _ in range(2):
        message = rf"s3://{bucket}/lake/.*If-None-Match.*\. Use AWS S3, or a server"
        with pytest.raises(Refused, match=message):
            store.put_if_absent("m/1", b"second")
    assert store.read("m/1") == b"first"


def test_that_a_server_keeps_what_is_taken_is_asked_once_by_two_requests(bucket: str) -> None:
    S3Store(bucket, "lake").put_if_absent("m/1", b"")
    store = S3Store(bucket, "lake")
    for number in range(2, 5):
        assert store.put_if_absent(f"m/{number}", b"") is True
    assert store.requests == {"PutObject": 4, "HeadObject": 1}


def test_keys_that_s3_fails_to_delete_are_asked_again_and_the_rest_is_named(bucket: str) -> None:
    store = S3Store(bucket, "")
    client = store.client
    store.put("a", b"")

    def failing(code: str) -> tuple[int, bytes]:
        return 200, failed_xml("<Key>a</Key>", code)

    answering(client, "DeleteObjects", failing("InternalError"))
    store.delete(["a"])
    assert names(store) == []
    answering(client, "DeleteObjects", failing("AccessDenied"))
    denied = rf"1 of 2 files could not be deleted, for example a in {bucket} \(AccessDenied\)\. "
    with pytest.raises(Refused, match=f"{denied}.*s3:DeleteObject"):
        store.delete(["a", "b"])
    answering(client, "DeleteObjects", *[failing("SlowDown")] * 5)
    with pytest.raises(Transient, match="SlowDown"):
        store.delete(["a"])


def test_an_answer_about_a_key_that_was_not_asked_about_deletes_nothing_else(bucket: str) -> None:
    store = S3Store(bucket, "lake")
    for name in ("a", "b"):
        store.put(name, b"")
    for key in ("<Key>lake/b</Key>", ""):
        answering(store.client, "DeleteObjects", (200, failed_xml(key, "InternalError")))
        with pytest.raises(Transient, match="which was not in the request"):
            store.delete(["a"])
    assert names(store) == ["a", "b"]
