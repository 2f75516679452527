"""Intervals and affine forms with every rounding; nothing here knows a model's task."""
