"""Building blocks that two or more methods, or a method and its data, use."""
