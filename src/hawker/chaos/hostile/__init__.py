"""One tenant attacks a real node or fleet, and another one must notice nothing."""
