"""Other programs' layouts of settings and weights of GPTs: modules that translate them into ours and back."""
