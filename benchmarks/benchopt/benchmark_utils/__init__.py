"""What all solvers of this benchmark share."""
