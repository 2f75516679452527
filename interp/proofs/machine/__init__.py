"""Models of one layer on any task whose answer needs a small memory."""
