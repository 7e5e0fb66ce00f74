"""Fit models to a user's own files, and predict with them: the work of ``dcgs fit`` and ``dcgs predict``."""
