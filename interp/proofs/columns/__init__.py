"""Adders and subtractors of one layer, or of two, column by column."""
