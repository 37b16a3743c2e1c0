"""Where texts and sentence pairs come from, and what is done to them."""
