"""The operator's view of a journal: typed records, following them over links that break, showing them."""
