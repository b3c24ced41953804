"""What files suggest to declare, and the texts of a project around them."""
