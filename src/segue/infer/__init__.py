"""Inference with trained models: sessions, generation, scoring, embedding, infilling and export."""
