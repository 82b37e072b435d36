"""Patch definitions, and views of what a host says about them."""
