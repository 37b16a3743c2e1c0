"""What the shelf adds to the translation model."""
