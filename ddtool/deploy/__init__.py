"""Deploying and running a service: facts → plan → transaction on the host → result."""
