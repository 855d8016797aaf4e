"""What must hold whatever happens. Apart from the code they check, and simpler than it."""
