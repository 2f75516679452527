"""Domains whose problems can all be listed."""
