"""A JAX simulator of federated fraud detection: clients x settings x seeds in one compiled program."""
