"""Files of users: tables that are read, and models that are written."""
