"""Problems found in text and how they were corrected: counts, with the first place of each kind."""

from collections.abc import Mapping

# In the order of the report.
MEANING: Mapping[str, str] = {
    "malformed_characters": "malformed bytes, replaced with U+FFFD",
    "nul_characters": "NUL characters, dropped",
    "lone_surrogates": "unpaired surrogates, replaced with U+FFFD",
    "cut_lines": "splits of overlong lines",
    "malformed_records": "unreadable records, skipped",
    "empty_documents": "documents without text, skipped",
    "empty_files": "files without text",
    "duplicate_files": "duplicate files, skipped",
    "skipped_files": "non-text files in folders, skipped",
    "unknown_tokens": "tokens unknown to the tokeniser",
}


class Problems:
    """Counts by kind (see MEANING)."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.first: dict[str, str] = {}

    def count(self, kind: str, where: str, number: int = 1) -> None:
        """Add to the count of a kind; the first location is stored."""
        assert kind in MEANING, kind
        if number:
            self.counts[kind] = self.counts.get(kind, 0) + number
            self.first.setdefault(kind, where)
