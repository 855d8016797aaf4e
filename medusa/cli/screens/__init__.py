"""What commands show in a terminal: numbers, tables, progress."""
