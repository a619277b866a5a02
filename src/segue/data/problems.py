"""What was wrong with the text and how it was mended: counted, with the first place of each kind."""

from collections.abc import Mapping

# In the order of a report.
MEANING: Mapping[str, str] = {
    "malformed_characters": "malformed bytes, replaced with U+FFFD",
    "nul_characters": "NUL characters, dropped",
    "lone_surrogates": "halves of surrogate pairs, replaced with U+FFFD",
    "cut_lines": "cuts in lines that are too long",
    "malformed_records": "records that cannot be read, left out",
    "empty_documents": "documents without text, left out",
    "empty_files": "files without text",
    "duplicate_files": "files with the content of another, left out",
    "skipped_files": "files in folders that are not text, left out",
    "unknown_tokens": "tokens unknown to the tokeniser",
}


class Problems:
    """Counts by kind (see MEANING)."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.first: dict[str, str] = {}

    def count(self, kind: str, where: str, number: int = 1) -> None:
        """Adds to a kind; the first place is remembered."""
        assert kind in MEANING, kind
        if number:
            self.counts[kind] = self.counts.get(kind, 0) + number
            self.first.setdefault(kind, where)
