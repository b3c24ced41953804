"""What an operation costs in seconds, requests and money: predicted, measured, and held against each other."""
