"""What the shelf adds to the GPT."""
