"""Models of ratings: ids of users and items, offsets, and a matrix of small nuclear norm."""
