"""The generated pages are what the code says."""

from lakehouse_tests.reference import FOLDER, pages


def test_generated_pages_are_fresh() -> None:
    stale = [
        name
        for name, text in pages().items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_text() != text
    ]
    assert stale == [], "Use: python -m lakehouse_tests.reference"
