"""Models from files: readers of what people have (:mod:`models.importers.readers`), and copies of live modules."""
