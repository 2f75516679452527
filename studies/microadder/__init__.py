"""MicroAdder: its studies, headline numbers and figures."""
