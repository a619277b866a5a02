"""Data pipeline from a corpus on disk to batches: readers, store, lanes, batches."""
