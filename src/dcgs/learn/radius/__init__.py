"""How the radius of a model is found, on data that the sites hold out."""
