"""What all SQL backends share: the tables, the statements, and operations that yield them."""
