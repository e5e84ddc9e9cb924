"""The market: an order is put to the workers of a region, their bids are ranked, and the best one gets the order."""
