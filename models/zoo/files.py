"""What an entry calls its files, and what a weight file says of itself."""

WEIGHTS, CARD = "model.safetensors", "card.md"
STORED_AS = "stored_as"  # in a weight file's metadata: how the parameters were rounded
