"""The C sources of training, and their compiler."""
