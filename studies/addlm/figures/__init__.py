"""Figures of AddLM's results."""
