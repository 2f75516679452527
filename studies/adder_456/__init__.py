"""The 456-parameter adder: its studies and headline numbers."""
