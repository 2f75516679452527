"""Files on disk: checkpoints, locks, names of stored models, texts."""
