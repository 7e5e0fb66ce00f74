"""The paper's experiments: data, runs, and verdicts on the paper's claims."""
