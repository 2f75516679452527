"""HTML: pages, the gallery, the report, the explorer."""
