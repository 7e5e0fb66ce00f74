"""Checkpoints of a run: states of agents on disk, from which a run that was interrupted goes on."""
