"""The tasks of the papers, each under its name."""
