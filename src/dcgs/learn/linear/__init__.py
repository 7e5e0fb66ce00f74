"""Linear models of rows: standardized columns, an intercept, classes and scores."""
