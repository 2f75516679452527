"""The record of a verdict: what it says, its file, its check, and the time that it may take."""
