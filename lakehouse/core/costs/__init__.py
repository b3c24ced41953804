"""The costs of an operation in seconds, requests and money: predicted, measured, and compared."""
