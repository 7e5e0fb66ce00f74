"""The jobs ``dcgs bench``, ``dcgs reproduce`` and ``dcgs report``."""
