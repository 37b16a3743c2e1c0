"""The shelf: what the core can do without. Nothing of the core is here, and nobody has to read it first."""
