"""Constructions, known by their weight maps."""
