"""Pages that show a model from inside: one HTML file each, without a framework or a network."""
