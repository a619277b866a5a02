"""From a corpus on disk to batches: readers, store, lanes, batches."""
