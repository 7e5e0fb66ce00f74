"""The operating system processes of a run: supervisor, watchdog, and what launchers and MPI leave behind."""
