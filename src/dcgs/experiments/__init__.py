"""The paper's experiments: what is run, how it is kept, and what it says of the paper's claims."""
