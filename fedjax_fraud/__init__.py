"""fedjax_fraud."""
