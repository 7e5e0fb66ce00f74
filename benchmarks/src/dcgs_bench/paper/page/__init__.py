"""The page about the paper's experiments: what it shows, and its templates."""
