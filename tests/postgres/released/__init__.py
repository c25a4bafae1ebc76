"""What a worker of each released schema does to its database: recorded once, done again on every later schema (RB-58)."""
