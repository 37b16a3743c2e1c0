"""What a model needs to be trained and used. Nothing here knows a particular model."""
