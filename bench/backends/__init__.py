"""leafward on every backend beside the driver's own limit there."""
