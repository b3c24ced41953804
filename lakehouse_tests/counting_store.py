"""A store in memory that counts its requests by S3's names for them; several names are deleted in one."""

from collections.abc import Iterable, Iterator, Sequence

from lakehouse.store import StoredFile
from lakehouse_tests.memory_store import MemoryStore


class CountingStore(MemoryStore):
    """`requests` are those since it was cleared."""

    def list(self, prefix: str) -> list[StoredFile]:
        """One LIST, however many pages that would be."""
        self.requests["LIST"] += 1
        return super().list(prefix)

    def stat(self, name: str) -> StoredFile | None:
        """One HEAD."""
        self.requests["HEAD"] += 1
        return super().stat(name)

    def read(self, name: str) -> bytes:
        """One GET."""
        self.requests["GET"] += 1
        return super().read(name)

    def read_many(self, names: Sequence[str]) -> Iterator[bytes]:
        """One GET each."""
        return map(self.read, names)

    def put(self, name: str, data: bytes) -> None:
        """One PUT."""
        self.requests["PUT"] += 1
        super().put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """One PUT."""
        self.requests["PUT"] += 1
        return super().put_if_absent(name, data)

    def delete(self, names: Iterable[str]) -> None:
        """One DELETE, none for no names."""
        gone = [*names]
        self.requests["DELETE"] += bool(gone)
        super().delete(gone)

    def taken(self) -> dict[str, int]:
        """The requests since the last call, by kind."""
        taken = {kind: count for kind, count in self.requests.items() if count}
        self.requests.clear()
        return taken
