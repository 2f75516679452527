"""File names of a zoo entry, and the metadata in a weight file."""

WEIGHTS, CARD = "model.safetensors", "card.md"
STORED_AS = "stored_as"  # in a weight file's metadata: how the parameters were rounded
