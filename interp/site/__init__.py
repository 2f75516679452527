"""HTML output: single pages, the report and the explorer."""
