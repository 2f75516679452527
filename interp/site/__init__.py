"""HTML output: single pages, the gallery, the report and the explorer."""
