"""Samples of services and cards for those who monitor them."""
