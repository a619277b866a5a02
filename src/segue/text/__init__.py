"""Text to ids and back, with offsets. Start at `tokenizer`, which says what a tokeniser is."""
