"""Results on paper: an audit's table and figures, and pages about whole runs."""
